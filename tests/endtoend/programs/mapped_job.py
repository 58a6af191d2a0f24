"""Runs one named step with virtual memory management that programs may rely on.

Prints the driver's answers as JSON. They are the same with and without pump, except for the
differences in test_mapped.py. Steps are functions of this file.
"""

from __future__ import annotations

import ctypes
import json
import sys
import threading
from typing import Any

import numpy as np
from cuda.bindings import driver as cu
from mapped_calls import (
    MIB,
    PIECE,
    access,
    ask,
    code,
    create,
    create_as,
    holds,
    place,
    remove,
    reserve,
    wishes,
    write,
)


def free_mib(before: int = 0) -> int:
    return int(ask(cu.cuMemGetInfo())[0]) // MIB - before


def contents_go_with_the_handle() -> Any:
    """Moves contents with their handle: to another address, past another owner of the old address
    and the end of its reservation, and to addresses that overlap the old ones."""
    first, second = reserve(4), reserve(2)
    one, two = create(), create()
    place(first, one)
    write(first, 1)
    remove(first)
    place(second, one)
    moved = holds(second, 1)
    remove(second)
    place(second, two)
    write(second, 2)
    place(first + PIECE, one)
    displaced = holds(first + PIECE, 1) and holds(second, 2)
    remove(second)
    freed = code(cu.cuMemAddressFree(second, 2 * PIECE))
    place(first, two)
    outlived = holds(first, 2) and holds(first + PIECE, 1)
    for address in (first, first + PIECE):
        remove(address)
    large = create(2)
    place(first, large, 2)
    write(first, 3, 2)
    remove(first, 2)
    place(first + PIECE, large, 2)
    return [moved, displaced, freed, outlived, holds(first + PIECE, 3, 2)]


def released_memory_lives_as_long_as_its_mapping() -> Any:
    base, handle = reserve(2), create()
    place(base, handle)
    write(base, 1)
    ask(cu.cuMemRelease(handle))
    kept = holds(base, 1)
    again = ask(cu.cuMemRetainAllocationHandle(base + 5))
    remove(base)
    place(base + PIECE, again)
    return [kept, holds(base + PIECE, 1), code(cu.cuMemRelease(again))]


def bad_calls() -> Any:
    base, handle = reserve(4), create()
    place(base, handle)
    other, stray = create(), create()
    gone = create()
    ask(cu.cuMemRelease(gone))
    return {
        "overlap": code(cu.cuMemMap(base, PIECE, 0, other, 0)),
        "an offset": code(cu.cuMemMap(base + PIECE, PIECE, MIB, other, 0)),
        "flags": code(cu.cuMemMap(base + PIECE, PIECE, 0, other, 1)),
        "larger than its memory": code(cu.cuMemMap(base + PIECE, 2 * PIECE, 0, other, 0)),
        "where nothing is reserved": code(cu.cuMemMap(base + 4 * PIECE, PIECE, 0, stray, 0)),
        "past the reservation": code(cu.cuMemMap(base + 3 * PIECE + 2 * MIB, PIECE, 0, other, 0)),
        "half a block": code(cu.cuMemMap(base + PIECE + MIB, PIECE, 0, other, 0)),
        "released": code(cu.cuMemMap(base + PIECE, PIECE, 0, gone, 0)),
        "released twice": code(cu.cuMemRelease(gone)),
        "properties": code(cu.cuMemGetAllocationPropertiesFromHandle(gone)),
        "unmapped twice": code(cu.cuMemUnmap(base + PIECE, PIECE)),
        "access to a hole": code(cu.cuMemSetAccess(base, 2 * PIECE, [access()], 1)),
        "no such device": code(cu.cuMemSetAccess(base, PIECE, [access(3, 7)], 1)),
        "retained where nothing is": code(cu.cuMemRetainAllocationHandle(base + PIECE)),
        "part of a reservation": code(cu.cuMemAddressFree(base, PIECE)),
        "alignment": code(cu.cuMemAddressReserve(PIECE, 3, 0, 0)),
        "no bytes": code(cu.cuMemAddressReserve(0, 0, 0, 0)),
        "cuMemFreeAsync": code(cu.cuMemFreeAsync(base, 0)),
        "copy into a hole": code(cu.cuMemcpyDtoD(base + PIECE - 64, base, 128)),
        "memset of a hole": code(cu.cuMemsetD8(base + 2 * PIECE, 0, 1)),
        "copy behind all": code(cu.cuMemsetD8(base + 3 * PIECE, 0, PIECE + 1)),
        "mapped memory": code(cu.cuMemcpyDtoD(base + PIECE // 2, base, 128)),
    }


def answers() -> Any:
    """Returns the answers to queries about mapped memory."""
    names = cu.CUpointer_attribute
    base, handle = reserve(4, 1 << 30), create(1, 1)
    for i, owner in enumerate((handle, create())):
        ask(cu.cuMemMap(base + i * PIECE, PIECE, 0, owner, 0))
    ask(cu.cuMemSetAccess(base, 2 * PIECE, [access()], 1))
    at = base + PIECE + 12345
    described = access()
    location = described.location
    ask(cu.cuMemSetAccess(base, PIECE, [access(1)], 1))
    start, length = ask(cu.cuMemGetAddressRange(at))
    managed = ask(cu.cuPointerGetAttribute(names.CU_POINTER_ATTRIBUTE_IS_MANAGED, at))
    begin = ask(cu.cuPointerGetAttribute(names.CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, at))
    told = ask(cu.cuMemGetAllocationPropertiesFromHandle(handle))
    return {
        "aligned": base % (1 << 30),
        "range": [int(start) - base, int(length)],
        "start": int(begin) - base,
        "managed": int(managed),
        "access": [int(ask(cu.cuMemGetAccess(location, base + i * PIECE))) for i in range(2)],
        "no access": code(cu.cuMemGetAccess(location, base + 3 * PIECE)),
        "handle types": int(told.requestedHandleTypes),
        "device": told.location.id,
    }


def counted() -> Any:
    """Checks that free memory shrinks when memory is created, not when it is reserved or mapped."""
    before = free_mib()
    found = []
    base = reserve(1 << 14)  # 64 GiB
    found.append(free_mib(before))
    handles = [create() for _ in range(3)]
    found.append(free_mib(before))
    for i, handle in enumerate(handles):
        place(base + i * PIECE, handle)
        write(base + i * PIECE, i)
    found.append(free_mib(before))
    remove(base + PIECE)
    found.append(free_mib(before))
    ask(cu.cuMemRelease(handles[1]))
    found.append(free_mib(before))
    place(base + PIECE, create())
    write(base + PIECE, 5)
    found.append(free_mib(before))
    same = [holds(base, 0), holds(base + PIECE, 5), holds(base + 2 * PIECE, 2)]
    return [found, same]


def grown_at_a_hint() -> Any:
    """Grows a vector as in CUDA's documentation: at its end if possible, else elsewhere with the
    same handles."""
    base, handle = reserve(2), create(2)
    place(base, handle, 2)
    write(base, 1, 2)
    wish = base + 2 * PIECE
    got = int(ask(cu.cuMemAddressReserve(2 * PIECE, 0, wish, 0)))
    if got != wish:
        ask(cu.cuMemAddressFree(got, 2 * PIECE))
        larger = reserve(4)
        remove(base, 2)
        ask(cu.cuMemAddressFree(base, 2 * PIECE))
        base = larger
        place(base, handle, 2)
    place(base + 2 * PIECE, create(2), 2) if got != wish else place(wish, create(2), 2)
    write(base + 2 * PIECE, 2, 2)
    return [holds(base, 1, 2), holds(base + 2 * PIECE, 2, 2)]


def slept() -> Any:
    """Releases memory and creates it again at the same addresses."""
    base, handle = reserve(4), create(4)
    found = []
    before = free_mib()
    for round_ in range(3):
        place(base, handle, 4)
        write(base, round_, 4)
        found.append(holds(base, round_, 4))
        remove(base, 4)
        ask(cu.cuMemRelease(handle))
        found.append(free_mib(before))
        handle = create(4)
    return found


def threads() -> Any:
    """Runs threads with separate addresses and memory; wrong contents or errors name the thread."""
    context = ask(cu.cuCtxGetCurrent())
    wrong: list[str] = []

    def work(number: int) -> None:
        try:
            ask(cu.cuCtxSetCurrent(context))
            for turn in range(8):
                base, handle = reserve(2), create()
                place(base + turn % 2 * PIECE, handle)
                write(base + turn % 2 * PIECE, number * 100 + turn)
                if not holds(base + turn % 2 * PIECE, number * 100 + turn):
                    wrong.append(f"{number}: contents")
                remove(base + turn % 2 * PIECE)
                ask(cu.cuMemRelease(handle))
                ask(cu.cuMemAddressFree(base, 2 * PIECE))
        except BaseException as error:
            wrong.append(f"{number}: {error}")

    workers = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return wrong


def without_a_context() -> Any:
    """Addresses and memory belong to no context. A thread without a current context makes and frees
    them, and still has no context afterwards."""
    found: dict[str, Any] = {}

    def alone(step: Any) -> None:
        def work() -> None:
            found[step.__name__] = [step(), int(ask(cu.cuCtxGetCurrent()))]

        worker = threading.Thread(target=work)
        worker.start()
        worker.join()

    def made() -> int:
        found["base"], found["handle"] = reserve(4), create()
        place(found["base"], found["handle"])
        return code(cu.cuMemsetD8(found["base"], 0, 1))

    def moved() -> None:
        ask(cu.cuMemUnmap(found["base"], PIECE))
        place(found["base"] + PIECE, found["handle"])

    def ended() -> int:
        ask(cu.cuMemUnmap(found["base"] + PIECE, PIECE))
        ask(cu.cuMemRelease(found["handle"]))
        return code(cu.cuMemAddressFree(found["base"], 4 * PIECE))

    before = free_mib()
    alone(made)
    write(found["base"], 1)
    ask(cu.cuCtxSynchronize())
    alone(moved)
    same = holds(found["base"] + PIECE, 1)
    alone(ended)
    return [same, found["made"], found["moved"], found["ended"], free_mib(before)]


def captured() -> Any:
    """Maps memory during a capture; the capture continues, as with the driver."""
    stream = ask(cu.cuStreamCreate(1))
    base = reserve(2)
    one = create()
    place(base, one)
    write(base, 1)
    ask(cu.cuStreamBeginCapture(stream, cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
    ask(cu.cuMemsetD8Async(base, 7, PIECE, stream))
    place(base + PIECE, create())
    graph = ask(cu.cuStreamEndCapture(stream))
    instance = ask(cu.cuGraphInstantiate(graph, 0))
    ask(cu.cuGraphLaunch(instance, stream))
    ask(cu.cuStreamSynchronize(stream))
    back = np.zeros(PIECE, np.uint8)
    ask(cu.cuMemcpyDtoH(back.ctypes.data, base, PIECE))
    return bool((back == 7).all())


def reset() -> Any:
    """Frees reservations that a context's end has emptied."""
    base, handle = reserve(2), create()
    place(base, handle)
    ask(cu.cuDevicePrimaryCtxReset(0))
    ask(cu.cuCtxSetCurrent(ask(cu.cuDevicePrimaryCtxRetain(0))))
    found = [code(cu.cuMemUnmap(base, PIECE)), code(cu.cuMemRelease(handle))]
    return [*found, code(cu.cuMemAddressFree(base, 2 * PIECE)), free_mib() > 0]


def aliased() -> Any:
    """Maps memory twice: CUDA allows this, pump does not."""
    base, handle = reserve(2), create()
    place(base, handle)
    return code(cu.cuMemMap(base + PIECE, PIECE, 0, handle, 0))


def exported() -> Any:
    """Exports a mapped and a never mapped handle; the virtual GPU exports neither."""
    handle = create(1, 1)
    kind = cu.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    unmapped = code(cu.cuMemExportToShareableHandle(handle, kind, 0))
    base = reserve(2)  # the driver's, like the handle
    place(base, handle)
    write(base, 1)
    ours = create(1, 1)
    second = reserve(2)
    place(second, ours)
    mapped = code(cu.cuMemExportToShareableHandle(ours, kind, 0))
    return [unmapped, holds(base, 1), mapped]


def bound() -> Any:
    """Binds never mapped and mapped memory to a multicast object; the virtual GPU has none."""
    group = cu.CUmemGenericAllocationHandle(1)
    unmapped = code(cu.cuMulticastBindMem(group, 0, create(), 0, PIECE, 0))
    handle = create()
    place(reserve(1), handle)
    return [unmapped, code(cu.cuMulticastBindMem(group, 0, handle, 0, PIECE, 0))]


def in_array() -> Any:
    """Maps nothing and a handle into a sparse array; the virtual GPU has no such arrays."""
    piece = cu.CUarrayMapInfo()
    answers = [code(cu.cuMemMapArrayAsync([piece], 1, 0))]
    piece.memHandle.memHandle = create()
    return [*answers, code(cu.cuMemMapArrayAsync([piece], 1, 0))]


def beside_the_drivers() -> Any:
    """Maps the driver's memory next to memory that pump serves."""
    base, handle = reserve(2), create()
    place(base, handle)
    return code(cu.cuMemMap(base + PIECE, PIECE, 0, create_as(usage=1), 0))


def among_the_drivers() -> Any:
    """Maps memory that pump could serve in a reservation that already has memory of the driver:
    before, next to and after it. A second reservation is not affected."""
    drivers, ours = create_as(usage=1), create()
    base = reserve(2)
    place(base, drivers)
    place(base + PIECE, ours)
    write(base, 1, 2)
    found = [holds(base, 1, 2)]
    remove(base, 2)
    place(base, create())
    place(base + PIECE, drivers)
    write(base, 2, 2)
    found.append(holds(base, 2, 2))
    other = reserve(1)
    place(other, create())
    found.append(is_served(other))
    remove(base, 2)
    freed = [code(cu.cuMemAddressFree(base, 2 * PIECE)), code(cu.cuMemRelease(drivers))]
    return [found, freed, code(cu.cuMemRelease(ours))]


def is_served(address: int) -> bool:
    """Returns whether pump has made this memory pageable; such memory has only one address."""
    handle = ask(cu.cuMemRetainAllocationHandle(address))
    other = reserve(1)
    answer = code(cu.cuMemMap(other, PIECE, 0, handle, 0))
    ask(cu.cuMemRelease(handle))
    return answer != 0


def too_much() -> Any:
    """Creates, writes and reads twice the memory of the device."""
    count = 32
    base = reserve(2 * count)
    created = []
    for i in range(count):
        answer = cu.cuMemCreate(PIECE, wishes(), 0)
        if code(answer) != 0:
            return [len(created), code(answer)]
        created.append(answer[1])
        place(base + i * PIECE, answer[1])
        write(base + i * PIECE, i)
    return [len(created), all(holds(base + i * PIECE, i) for i in range(count))]


def arena() -> Any:
    """Creates an arena like JAX: one exportable handle for three quarters of the GPU, then its
    addresses. Buffers of several sizes are written and read in it."""
    total = int(ask(cu.cuMemGetInfo())[1])
    pieces = total * 3 // 4 // PIECE
    handle = create(pieces, 1)
    base = reserve(pieces)
    place(base, handle, pieces)
    sizes = [1 + i % 3 for i in range(pieces // 2)]
    for turn in range(3):
        at = base
        for i, size in enumerate(sizes):
            write(at, turn * 100 + i, size)
            at += size * PIECE
        at = base
        for i, size in enumerate(sizes):
            if not holds(at, turn * 100 + i, size):
                return [turn, i]
            at += size * PIECE
    remove(base, pieces)
    ask(cu.cuMemRelease(handle))
    return [pieces, code(cu.cuMemAddressFree(base, pieces * PIECE))]


def bare_arena() -> Any:
    """Creates an arena in a thread without a current context. The primary context exists, but it
    is not current."""
    ask(cu.cuCtxSetCurrent(0))
    total = 128 * MIB
    pieces = total * 3 // 4 // PIECE
    handle = create(pieces, 1)
    base = reserve(pieces)
    place(base, handle, pieces)
    ask(cu.cuCtxSetCurrent(ask(cu.cuDevicePrimaryCtxRetain(0))))
    for i in range(pieces):
        write(base + i * PIECE, i)
    return [pieces, all(holds(base + i * PIECE, i) for i in range(pieces))]


TOUCH = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry touch(.param .u64 memory) { ret; }
"""


def launch_each(addresses: list[int]) -> None:
    function = ask(cu.cuModuleGetFunction(ask(cu.cuModuleLoadData(TOUCH)), b"touch"))
    for address in addresses:
        values = (address,), (ctypes.c_uint64,)
        ask(cu.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, 0, values, 0))
    ask(cu.cuCtxSynchronize())


def touched_mapped() -> None:
    """Launches kernels on memory that ends at a gap or after several mappings, and from a gap."""
    base = reserve(64)
    for at, pieces in ((0, 1), (2, 4), (6, 4)):
        place(base + at * PIECE, create(pieces), pieces)
    launch_each([base + piece * PIECE for piece in (0, 1, 2, 3)])


def touched_allocated() -> None:
    """Launches kernels on plain memory of the same lengths."""
    launch_each([int(ask(cu.cuMemAlloc(n * PIECE))) if n else 0 for n in (1, 0, 8, 7)])


def main() -> None:
    ask(cu.cuInit(0))
    ask(cu.cuCtxSetCurrent(ask(cu.cuDevicePrimaryCtxRetain(0))))
    json.dump(globals()[sys.argv[1]](), sys.stdout)


if __name__ == "__main__":
    main()
