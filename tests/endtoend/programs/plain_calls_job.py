"""Plain allocations at the limits of CUDA's rules; the same program with and without pump.

Usage: plain_calls_job.py STEPS. Prints the answers of the calls and the number of right copies.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
from cuda.bindings import driver as cu

MIB = 1 << 20
BYTES = 3 * MIB + 4096
"""Does not end at a block boundary."""


def ask(answer: tuple[Any, ...]) -> Any:
    if int(answer[0]) != 0:
        raise SystemExit(f"error {answer[0].name}")
    return answer[1] if len(answer) == 2 else answer[1:]


def freed_in_order(steps: int, streams: list[Any]) -> int:
    """Writes, reads and frees memory in stream order in each step; counts the right values."""
    host = np.zeros(steps, dtype=np.uint32)
    for step in range(steps):
        stream = streams[step % len(streams)]
        memory = ask(cu.cuMemAlloc(BYTES))
        ask(cu.cuMemsetD32Async(memory, step, BYTES // 4, stream))
        last = int(memory) + BYTES - 4
        ask(cu.cuMemcpyDtoHAsync(host[step : step + 1].ctypes.data, last, 4, stream))
        ask(cu.cuMemFreeAsync(memory, stream))
    for stream in streams:
        ask(cu.cuStreamSynchronize(stream))
    return int((host == np.arange(steps)).sum())


def attributes(memory: int) -> list[list[int]]:
    """Returns attributes of addresses in an allocation, past its end, and in the next block."""
    asked = [
        getattr(cu.CUpointer_attribute, f"CU_POINTER_ATTRIBUTE_{name}")
        for name in ("MEMORY_TYPE", "IS_MANAGED", "RANGE_SIZE", "DEVICE_ORDINAL", "MAPPED")
    ]
    said = []
    for address in (memory, memory + BYTES - 1, memory + BYTES, memory + 4 * MIB - 1):
        alone = [cu.cuPointerGetAttribute(one, address) for one in asked]
        _, together = cu.cuPointerGetAttributes(len(asked), asked, address)
        found = int(cu.cuMemGetAddressRange(address)[0])
        said.append(
            [found, *(int(part or 0) for one in alone for part in one), *map(int, together)]
        )
    return said


def edges() -> dict[str, Any]:
    """Returns the answers about addresses around an allocation, and to a second free."""
    memory = int(ask(cu.cuMemAlloc(BYTES)))
    inside, outside = memory + BYTES - 1, memory + BYTES
    _, base, length = cu.cuMemGetAddressRange(inside)
    stream = ask(cu.cuStreamCreate(1))
    ordered = int(ask(cu.cuMemAllocAsync(BYTES, stream)))
    found = {
        "attributes": [attributes(memory), attributes(ordered)],
        "inside": [int(base) - memory, int(length)],
        "outside": int(cu.cuMemGetAddressRange(outside)[0]),
        "free": int(cu.cuMemFreeAsync(memory, stream)[0]),
    }
    ask(cu.cuMemFreeAsync(ordered, stream))
    ask(cu.cuStreamSynchronize(stream))
    return found | {"again": int(cu.cuMemFreeAsync(memory, stream)[0])}


def reaching(memory: int, length: int, stream: Any) -> dict[str, int]:
    """Returns the answers of each copy and memset of `length` bytes from the start of `memory`."""
    other, array = int(ask(cu.cuMemAlloc(2 * BYTES))), np.empty(2 * BYTES, np.uint8)
    host = array.ctypes.data
    order = cu.CUmemcpySrcAccessOrder.CU_MEMCPY_SRC_ACCESS_ORDER_STREAM
    attributes = cu.CUmemcpyAttributes()
    attributes.srcAccessOrder = order
    pairs = [cu.CUdeviceptr(other)], [cu.CUdeviceptr(memory)], [length]
    context = ask(cu.cuCtxGetCurrent())
    row, rest = 4096, length - 4096 * (length // 4096)
    rows = {"srcPitch": row, "dstPitch": row, "WidthInBytes": rest or row}
    height = length // row + (rest > 0)
    device = cu.CUmemorytype.CU_MEMORYTYPE_DEVICE

    def box(made: Any, to: int, source: int, **more: int) -> Any:
        made.srcMemoryType = made.dstMemoryType = device
        made.srcDevice, made.dstDevice = source, to
        for name, value in {**rows, **more}.items():
            setattr(made, name, value)
        return made

    def operand(to: int, source: int) -> Any:
        made = cu.CUDA_MEMCPY3D_BATCH_OP()
        for side, address in ((made.src, source), (made.dst, to)):
            side.type = cu.CUmemcpy3DOperandType.CU_MEMCPY_OPERAND_TYPE_POINTER
            side.op.ptr.ptr, side.op.ptr.rowLength, side.op.ptr.layerHeight = address, row, height
        made.extent.width, made.extent.height, made.extent.depth = rest or row, height, 1
        made.srcAccessOrder = order
        return made

    calls = {
        "cuMemcpy": cu.cuMemcpy(memory, other, length),
        "cuMemcpy from": cu.cuMemcpy(other, memory, length),
        "cuMemcpyAsync": cu.cuMemcpyAsync(memory, other, length, stream),
        "cuMemcpyPeer": cu.cuMemcpyPeer(memory, context, other, context, length),
        "cuMemcpyPeerAsync": cu.cuMemcpyPeerAsync(memory, context, other, context, length, stream),
        "cuMemcpyHtoD": cu.cuMemcpyHtoD(memory, host, length),
        "cuMemcpyHtoDAsync": cu.cuMemcpyHtoDAsync(memory, host, length, stream),
        "cuMemcpyDtoH": cu.cuMemcpyDtoH(host, memory, length),
        "cuMemcpyDtoHAsync": cu.cuMemcpyDtoHAsync(host, memory, length, stream),
        "cuMemcpyDtoD": cu.cuMemcpyDtoD(memory, other, length),
        "cuMemcpyDtoDAsync": cu.cuMemcpyDtoDAsync(other, memory, length, stream),
        "cuMemcpyBatchAsync": cu.cuMemcpyBatchAsync(*pairs, 1, [attributes], [0], 1, stream),
        "cuMemcpy2D": cu.cuMemcpy2D(box(cu.CUDA_MEMCPY2D(), memory, other, Height=height)),
        "cuMemcpy2DUnaligned": cu.cuMemcpy2DUnaligned(
            box(cu.CUDA_MEMCPY2D(), other, memory, Height=height)
        ),
        "cuMemcpy2DAsync": cu.cuMemcpy2DAsync(
            box(cu.CUDA_MEMCPY2D(), memory, other, Height=height), stream
        ),
        "cuMemcpy3D": cu.cuMemcpy3D(
            box(cu.CUDA_MEMCPY3D(), memory, other, Height=1, Depth=height, srcHeight=1, dstHeight=1)
        ),
        "cuMemcpy3DAsync": cu.cuMemcpy3DAsync(
            box(cu.CUDA_MEMCPY3D(), other, memory, Height=height, Depth=1), stream
        ),
        "cuMemcpy3DPeer": cu.cuMemcpy3DPeer(
            box(cu.CUDA_MEMCPY3D_PEER(), memory, other, Height=height, Depth=1)
        ),
        "cuMemcpy3DPeerAsync": cu.cuMemcpy3DPeerAsync(
            box(cu.CUDA_MEMCPY3D_PEER(), other, memory, Height=height, Depth=1), stream
        ),
        "cuMemcpy3DBatchAsync": cu.cuMemcpy3DBatchAsync(1, [operand(memory, other)], 0, stream),
        "cuMemsetD8": cu.cuMemsetD8(memory, 1, length),
        "cuMemsetD8Async": cu.cuMemsetD8Async(memory, 1, length, stream),
        "cuMemsetD16": cu.cuMemsetD16(memory, 1, (length + 1) // 2),
        "cuMemsetD32Async": cu.cuMemsetD32Async(memory, 1, (length + 3) // 4, stream),
        "cuMemsetD2D8": cu.cuMemsetD2D8(memory, row, 1, rest or row, height),
        "cuMemsetD2D8Async": cu.cuMemsetD2D8Async(memory, row, 1, rest or row, height, stream),
    }
    ask(cu.cuStreamSynchronize(stream))
    ask(cu.cuMemFree(other))
    return {name: int(answer[0]) for name, answer in calls.items()}


def ends() -> dict[str, Any]:
    """Copies and memsets up to the end of an allocation, and one byte past the end."""
    stream = ask(cu.cuStreamCreate(1))
    found = {}
    for kind in ("plain", "ordered"):
        plain = kind == "plain"
        memory = int(ask(cu.cuMemAlloc(BYTES) if plain else cu.cuMemAllocAsync(BYTES, stream)))
        found[f"{kind} within"] = reaching(memory, BYTES, stream)
        found[f"{kind} beyond"] = reaching(memory, BYTES + 1, stream)
        ask(cu.cuMemFree(memory) if plain else cu.cuMemFreeAsync(memory, stream))
        ask(cu.cuStreamSynchronize(stream))
    return found


def captured() -> int:
    """Returns CUDA's answer if plain memory is freed during a capture."""
    memory = ask(cu.cuMemAlloc(BYTES))
    stream = ask(cu.cuStreamCreate(1))
    ask(cu.cuStreamBeginCapture(stream, cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
    answer = int(cu.cuMemFreeAsync(memory, stream)[0])
    cu.cuStreamEndCapture(stream)
    ask(cu.cuMemFree(memory))
    return answer


def main() -> None:
    ask(cu.cuInit(0))
    ask(cu.cuCtxSetCurrent(ask(cu.cuDevicePrimaryCtxRetain(ask(cu.cuDeviceGet(0))))))
    streams = [ask(cu.cuStreamCreate(1)) for _ in range(2)] + [cu.CUstream(0)]
    right = freed_in_order(int(sys.argv[1]), streams)
    print(json.dumps({"right": right, "captured": captured(), **edges(), "ends": ends()}))


if __name__ == "__main__":
    main()
