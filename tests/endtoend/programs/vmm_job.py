"""Uses virtual memory management step by step with plain cuda-python; prints each step's answer."""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

import numpy as np

MIB = 1 << 20
PIECE = 8 * MIB


def without_context(ask: Any, properties: Any, access: Any) -> bool:
    """Returns whether a fresh thread without a context, as in PyTorch, can map memory."""
    from cuda.bindings import driver as cu

    done = []

    def steps() -> None:
        assert int(ask(cu.cuCtxGetCurrent())) == 0
        handle = ask(cu.cuMemCreate(PIECE, properties, 0))
        base = int(ask(cu.cuMemAddressReserve(PIECE, 0, 0, 0)))
        ask(cu.cuMemMap(base, PIECE, 0, handle, 0))
        ask(cu.cuMemSetAccess(base, PIECE, [access], 1))
        ask(cu.cuMemUnmap(base, PIECE))
        ask(cu.cuMemAddressFree(base, PIECE))
        ask(cu.cuMemRelease(handle))
        done.append(True)

    thread = threading.Thread(target=steps)
    thread.start()
    thread.join()
    return bool(done)


def main() -> None:
    from cuda.bindings import driver as cu

    def ask(answer: tuple[Any, ...]) -> Any:
        if int(answer[0]) != 0:
            raise SystemExit(f"error {answer[0].name}")
        return answer[1] if len(answer) == 2 else answer[1:]

    ask(cu.cuInit(0))
    ask(cu.cuCtxSetCurrent(ask(cu.cuDevicePrimaryCtxRetain(ask(cu.cuDeviceGet(0))))))
    free: list[int] = []
    codes: dict[str, int] = {}

    def note_free() -> None:
        free.append(int(ask(cu.cuMemGetInfo())[0]) // MIB)

    def note(name: str, answer: tuple[Any, ...]) -> None:
        codes[name] = int(answer[0])

    properties = cu.CUmemAllocationProp()
    properties.type = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    properties.location.id = 0
    least = cu.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
    granularity = int(ask(cu.cuMemGetAllocationGranularity(properties, least)))

    note_free()
    base = int(ask(cu.cuMemAddressReserve(64 * MIB, 0, 0, 0)))
    note_free()
    handles = [ask(cu.cuMemCreate(PIECE, properties, 0)) for _ in range(2)]
    note_free()
    note("too large", cu.cuMemCreate(1 << 40, properties, 0))
    note("misaligned", cu.cuMemCreate(4096, properties, 0))
    values = np.arange(2 * PIECE, dtype=np.uint32).astype(np.uint8)
    for i, handle in enumerate(handles):
        ask(cu.cuMemMap(base + i * PIECE, PIECE, 0, handle, 0))
    note("mapped twice", cu.cuMemMap(base, PIECE, 0, handles[0], 0))
    note("no access", cu.cuMemcpyHtoD(base, values.ctypes.data, 2 * PIECE))
    access = cu.CUmemAccessDesc()
    access.location = properties.location
    access.flags = cu.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    ask(cu.cuMemSetAccess(base, 2 * PIECE, [access], 1))
    ask(cu.cuMemcpyHtoD(base, values.ctypes.data, 2 * PIECE))
    back = np.zeros_like(values)
    ask(cu.cuMemcpyDtoH(back.ctypes.data, base, 2 * PIECE))
    note("beyond what is mapped", cu.cuMemsetD8(base, 0, 2 * PIECE + 1))
    note("cuMemFree", cu.cuMemFree(base))
    note("free of mapped addresses", cu.cuMemAddressFree(base, 64 * MIB))
    retained = ask(cu.cuMemRetainAllocationHandle(base))
    for handle in (*handles, retained):
        ask(cu.cuMemRelease(handle))
    note("released once more", cu.cuMemRelease(handles[0]))
    note_free()
    note("half a mapping", cu.cuMemUnmap(base, PIECE // 2))
    ask(cu.cuMemUnmap(base, 2 * PIECE))
    note_free()
    ask(cu.cuMemAddressFree(base, 64 * MIB))
    json.dump(
        {
            "free": [free[0] - now for now in free],
            "codes": codes,
            "without a context": without_context(ask, properties, access),
            "same": bool(np.array_equal(values, back)),
            "granularity": granularity,
        },
        sys.stdout,
    )


if __name__ == "__main__":
    main()
