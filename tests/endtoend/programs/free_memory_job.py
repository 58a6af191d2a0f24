"""Prints as JSON, in MiB, how cuMemGetInfo and the pool attributes follow allocations and frees of
every kind. With the argument `threshold`, the pool keeps some of its memory."""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Callable
from typing import Any

from cuda.bindings import driver as cu

MIB = 1 << 20
Ordered = cu.CUmemPool_attribute


def ask(answer: tuple[Any, ...]) -> Any:
    if int(answer[0]) != 0:
        raise SystemExit(f"error {answer[0].name}")
    return answer[1] if len(answer) == 2 else answer[1:]


class Program:
    """A context with a stream; collects the used memory since the start, by step."""

    def __init__(self) -> None:
        ask(cu.cuInit(0))
        self.device = ask(cu.cuDeviceGet(0))
        ask(cu.cuCtxSetCurrent(ask(cu.cuDevicePrimaryCtxRetain(self.device))))
        self.stream = ask(cu.cuStreamCreate(cu.CUstream_flags.CU_STREAM_NON_BLOCKING))
        self.event = ask(cu.cuEventCreate(0))
        self.pool = ask(cu.cuDeviceGetDefaultMemPool(self.device))
        self.told: list[tuple[str, int]] = []
        self.first = int(ask(cu.cuMemGetInfo())[0])

    def tell(self, name: str) -> None:
        self.told.append((name, (self.first - int(ask(cu.cuMemGetInfo())[0])) // MIB))

    def figures(self, name: str, pool: Any) -> None:
        for which in (
            "RESERVED_MEM_CURRENT",
            "RESERVED_MEM_HIGH",
            "USED_MEM_CURRENT",
            "USED_MEM_HIGH",
        ):
            attribute = getattr(Ordered, f"CU_MEMPOOL_ATTR_{which}")
            answer = ask(cu.cuMemPoolGetAttribute(pool, attribute))
            self.told.append((f"{name}: {which}", int(answer) // MIB))

    def come_and_go(self, wait: Callable[[], Any], *mib: int, pool: Any = None) -> None:
        name = f"{mib} with {getattr(wait, '__name__', wait)}"
        taken = []
        for size in mib:
            if pool is None:
                taken.append(ask(cu.cuMemAllocAsync(size * MIB, self.stream)))
            else:
                taken.append(ask(cu.cuMemAllocFromPoolAsync(size * MIB, pool, self.stream)))
            ask(cu.cuMemsetD8Async(taken[-1], 1, size * MIB, self.stream))
        ask(cu.cuStreamSynchronize(self.stream))
        self.tell(f"{name}: taken")
        for address in taken:
            ask(cu.cuMemFreeAsync(address, self.stream))
        wait()
        self.tell(f"{name}: freed")
        self.figures(name, pool or self.pool)

    def stream_wait(self) -> None:
        ask(cu.cuStreamSynchronize(self.stream))

    def event_wait(self) -> None:
        ask(cu.cuEventRecord(self.event, self.stream))
        ask(cu.cuEventSynchronize(self.event))

    def context_wait(self) -> None:
        ask(cu.cuCtxSynchronize())

    def reset_high(self, pool: Any) -> None:
        for which in (
            Ordered.CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH,
            Ordered.CU_MEMPOOL_ATTR_USED_MEM_HIGH,
        ):
            ask(cu.cuMemPoolSetAttribute(pool, which, cu.cuuint64_t(0)))


def own_pool() -> Any:
    properties = cu.CUmemPoolProps()
    properties.allocType = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    return ask(cu.cuMemPoolCreate(properties))


def ordered(program: Program) -> None:
    program.come_and_go(program.stream_wait, 100)
    program.come_and_go(program.event_wait, *[64] * 6)
    program.reset_high(program.pool)
    program.figures("reset", program.pool)
    program.come_and_go(program.context_wait, 32, 96)
    pool = own_pool()
    program.come_and_go(program.context_wait, 48, 16, pool=pool)
    ask(cu.cuMemPoolTrimTo(pool, 0))
    program.tell("trimmed")
    ask(cu.cuMemPoolDestroy(pool))
    program.tell("destroyed")


def mapped(program: Program) -> None:
    properties = cu.CUmemAllocationProp()
    properties.type = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    access = cu.CUmemAccessDesc()
    access.location = properties.location
    access.flags = cu.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    base = ask(cu.cuMemAddressReserve(64 * MIB, 0, 0, 0))
    handle = ask(cu.cuMemCreate(64 * MIB, properties, 0))
    ask(cu.cuMemMap(base, 64 * MIB, 0, handle, 0))
    ask(cu.cuMemSetAccess(base, 64 * MIB, [access], 1))
    program.tell("mapped")
    ask(cu.cuMemUnmap(base, 64 * MIB))
    ask(cu.cuMemRelease(handle))
    program.tell("unmapped and released")
    ask(cu.cuMemAddressFree(base, 64 * MIB))


def graphed(program: Program) -> None:
    mode = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    ask(cu.cuStreamBeginCapture(program.stream, mode))
    address = ask(cu.cuMemAllocAsync(32 * MIB, program.stream))
    ask(cu.cuMemsetD8Async(address, 1, 32 * MIB, program.stream))
    ask(cu.cuMemFreeAsync(address, program.stream))
    graph = ask(cu.cuStreamEndCapture(program.stream))
    executable = ask(cu.cuGraphInstantiate(graph, 0))
    ask(cu.cuGraphLaunch(executable, program.stream))
    program.stream_wait()
    program.tell("graph launched")
    ask(cu.cuGraphExecDestroy(executable))
    ask(cu.cuGraphDestroy(graph))
    none = ask(cu.cuCtxPopCurrent())
    ask(cu.cuDeviceGraphMemTrim(program.device))  # of that device, without a current context
    ask(cu.cuCtxPushCurrent(none))
    program.tell("graphs trimmed")


def plain(program: Program) -> None:
    address = ask(cu.cuMemAlloc(80 * MIB))
    program.tell("plain")
    ask(cu.cuMemFree(address))
    program.tell("plain freed")
    address = ask(cu.cuMemAllocAsync(40 * MIB, program.stream))
    program.stream_wait()
    program.tell("ordered")
    ask(cu.cuMemFree(address))
    program.tell("ordered, freed at once")


def threshold(program: Program) -> None:
    attribute = Ordered.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
    for bytes_ in (64 * MIB, ctypes.c_uint64(-1).value):
        ask(cu.cuMemPoolSetAttribute(program.pool, attribute, cu.cuuint64_t(bytes_)))
        program.come_and_go(program.stream_wait, 100, 100)
    ask(cu.cuMemPoolTrimTo(program.pool, 32 * MIB))
    program.tell("trimmed to 32")
    ask(cu.cuMemPoolSetAttribute(program.pool, attribute, cu.cuuint64_t(0)))
    program.context_wait()
    program.tell("without a threshold")


def main() -> None:
    program = Program()
    steps = (threshold,) if sys.argv[1:] == ["threshold"] else (ordered, mapped, graphed, plain)
    for step in steps:
        step(program)
    print(json.dumps(program.told))


if __name__ == "__main__":
    main()
