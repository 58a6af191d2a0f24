"""Programs about memory, copies and advice, run by driver_programs.py."""

from __future__ import annotations

import ctypes
import itertools
import resource
import time
from typing import Any

import numpy as np
from cuda.bindings import driver as cu
from driver_base import ADD, MIB, SCALE, Gpu, ask, code_of
from driver_kernels import vector_add


def oversubscribed(blocks: str, rounds: str) -> Any:
    """Sweeps `rounds` times over `blocks` arrays of 8 MiB; returns seconds, and events' ms."""
    gpu = Gpu()
    arrays = [int(ask(cu.cuMemAllocManaged(8 * MIB, 1))) for _ in range(int(blocks))]
    first, last = ask(cu.cuEventCreate(0)), ask(cu.cuEventCreate(0))
    began = time.perf_counter()
    ask(cu.cuEventRecord(first, gpu.stream))
    for _ in range(int(rounds)):
        for address in arrays:
            gpu.launch("scale", (address, 1.0, 1), SCALE)
    ask(cu.cuEventRecord(last, gpu.stream))
    ask(cu.cuEventSynchronize(last))
    seconds = time.perf_counter() - began
    return {"seconds": seconds, "event_ms": ask(cu.cuEventElapsedTime(first, last))}


def blocks(events: str, offset: str, graph: str) -> None:
    """Launches a kernel at an offset in an array of 8 MiB, after an allocator's OFFSET:BYTES events
    (0 bytes: freed). `graph`: Captures the launch before the last event."""
    gpu = Gpu()
    base = int(ask(cu.cuMemAllocManaged(8 * MIB, 1)))
    report = ctypes.CDLL("libcuda.so.1").pump_virtual_block
    report.argtypes = (ctypes.c_uint64, ctypes.c_uint64)
    *first, last = events.split(",")
    arguments = (base + int(offset), 1.0, 1)

    def apply(event: str) -> None:
        at, length = map(int, event.split(":"))
        report(base + at, length)

    for event in first:
        apply(event)
    if not graph:
        apply(last)
        gpu.launch("scale", arguments, SCALE)
        return
    mode = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL
    ask(cu.cuStreamBeginCapture(gpu.stream, mode))
    gpu.launch("scale", arguments, SCALE)
    captured = ask(cu.cuStreamEndCapture(gpu.stream))
    apply(last)
    ask(cu.cuGraphLaunch(ask(cu.cuGraphInstantiate(captured, 0)), gpu.stream))


def profiled(stretches: str) -> Any:
    """Sweeps once before the first profiled stretch, in each, and after each. One more stretch is
    still profiled when the program ends."""
    gpu = Gpu()
    arrays = [int(ask(cu.cuMemAllocManaged(8 * MIB, 1))) for _ in range(48)]

    def sweep() -> None:
        for address in arrays:
            gpu.launch("scale", (address, 1.0, 1), SCALE)
        gpu.sync()

    sweep()
    for _ in range(int(stretches)):
        ask(cu.cuProfilerStart())
        sweep()
        ask(cu.cuProfilerStop())
        ask(cu.cuProfilerStop())
        sweep()
    ask(cu.cuProfilerStart())
    sweep()


def memory_limit() -> Any:
    gpu = Gpu()
    free, total = ask(cu.cuMemGetInfo())
    held = ask(cu.cuMemAlloc(total // 2))
    again = code_of(cu.cuMemAlloc(total // 2 + 2 * MIB))
    managed = code_of(cu.cuMemAllocManaged(2 * total, 1))
    ask(cu.cuMemFree(held))
    after = code_of(cu.cuMemAlloc(total // 2 + 2 * MIB))
    del gpu
    return {"free": free, "total": total, "codes": [again, managed, after]}


def few_addresses(gib: str) -> Any:
    resource.setrlimit(resource.RLIMIT_AS, (int(gib) << 30, int(gib) << 30))
    started = code_of(cu.cuInit(0))
    return vector_add("ptx") if started == 0 else started


def pageable_source() -> Any:
    """Overwrites a buffer as soon as its asynchronous copy has returned; counts wrong bytes."""
    gpu = Gpu()
    wrong = 0
    for size in (4096, 8 * MIB):
        target = int(ask(cu.cuMemAlloc(size)))
        buffer = np.full(size, 1, np.uint8)
        ask(cu.cuMemcpyHtoDAsync(target, buffer.ctypes.data, size, gpu.stream))
        buffer[:] = 2
        gpu.sync()
        seen = np.zeros(size, np.uint8)
        ask(cu.cuMemcpyDtoH(seen.ctypes.data, target, size))
        wrong += int(np.count_nonzero(seen != 1))
    return wrong


def copy_and_back(kib: str) -> Any:
    """Copies from pinned memory and back; returns seconds, and whether the last byte arrived."""
    Gpu()
    length = int(kib) << 10
    there = ask(cu.cuMemHostAlloc(length, 0))
    back = ask(cu.cuMemHostAlloc(length, 0))
    for address in (there, back):
        ctypes.memset(address, 1 if address == there else 0, length)
    device = ask(cu.cuMemAlloc(length))
    began = time.monotonic()
    ask(cu.cuMemcpyHtoD(device, there, length))
    ask(cu.cuMemcpyDtoH(back, device, length))
    spent = time.monotonic() - began
    return {"seconds": spent, "arrived": ctypes.string_at(back + length - 1, 1) == b"\x01"}


def copies_2d_3d() -> Any:
    gpu = Gpu()
    source = np.arange(64 * 100, dtype=np.uint8).reshape(64, 100)
    address, pitch = ask(cu.cuMemAllocPitch(100, 64, 4))
    copy = cu.CUDA_MEMCPY2D()
    copy.srcMemoryType = cu.CUmemorytype.CU_MEMORYTYPE_HOST
    copy.srcHost = source.ctypes.data
    copy.srcPitch = 100
    copy.dstMemoryType = cu.CUmemorytype.CU_MEMORYTYPE_DEVICE
    copy.dstDevice = address
    copy.dstPitch = pitch
    copy.WidthInBytes, copy.Height = 100, 64
    ask(cu.cuMemcpy2D(copy))
    back = np.zeros((64, 100), np.uint8)
    deep = cu.CUDA_MEMCPY3D()
    deep.srcMemoryType = cu.CUmemorytype.CU_MEMORYTYPE_DEVICE
    deep.srcDevice, deep.srcPitch, deep.srcHeight = address, pitch, 16
    deep.dstMemoryType = cu.CUmemorytype.CU_MEMORYTYPE_HOST
    deep.dstHost, deep.dstPitch, deep.dstHeight = back.ctypes.data, 100, 16
    deep.WidthInBytes, deep.Height, deep.Depth = 100, 16, 4
    ask(cu.cuMemcpy3DAsync(deep, gpu.stream))
    gpu.sync()
    return bool(pitch % 512 == 0 and np.array_equal(back, source))


def read_mostly(advice: str) -> Any:
    """Returns the last prefetch location of managed memory, under READ_MOSTLY and after it."""
    gpu = Gpu()
    data = int(ask(cu.cuMemAllocManaged(8 * MIB, 1)))
    ask(cu.cuMemsetD32Async(data, 7, 2 * MIB, gpu.stream))
    gpu.sync()
    device, host = cu.CUmemLocation(), cu.CUmemLocation()
    device.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    host.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_HOST
    for number in advice.split():
        ask(cu.cuMemAdvise(data, 8 * MIB, cu.CUmem_advise(int(number)), device))
    ask(cu.cuMemPrefetchAsync(data, 8 * MIB, host, 0, gpu.stream))
    gpu.sync()
    names = cu.CUmem_range_attribute
    last = names.CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION
    mostly = names.CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY
    return {
        "last": int(ask(cu.cuMemRangeGetAttribute(4, last, data, 8 * MIB))),
        "read_mostly": bool(ask(cu.cuMemRangeGetAttribute(4, mostly, data, 8 * MIB))),
    }


def accessed_by(advice: str) -> Any:
    """Adds to managed memory on the host, after this advice. Returns whether it is right, and the
    attribute."""
    gpu = Gpu()
    size = 16 * MIB
    device, host = cu.CUmemLocation(), cu.CUmemLocation()
    device.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    host.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_HOST
    first, second, out = (
        gpu.array(np.full(size // 4, value, np.float32), managed=True) for value in (1, 2, 0)
    )
    for address in (first, second, out):
        ask(cu.cuMemPrefetchAsync(address, size, host, 0, gpu.stream))
        gpu.sync()
        for number in advice.split():
            ask(cu.cuMemAdvise(address, size, cu.CUmem_advise(int(number)), device))
    part = 1 << 20  # threads of a launch
    gpu.launch("add", (first, second, out, part), ADD)
    gpu.sync()
    name = cu.CUmem_range_attribute.CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY
    return {
        "right": bool(np.all(gpu.read(out, part) == 3)),
        "accessed_by": [int(one) for one in ask(cu.cuMemRangeGetAttribute(4, name, first, size))],
    }


def duplicates() -> Any:
    """Adds buffers that do not fit, under READ_MOSTLY, and writes a part of the last one in each
    round. Returns the number of wrong values."""
    gpu = Gpu()
    size, count = 16 * MIB, 6
    n = size // 4
    device, host = cu.CUmemLocation(), cu.CUmemLocation()
    device.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    host.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_HOST
    buffers = [gpu.array(np.full(n, i + 1, np.float32), managed=True) for i in range(count)]
    expected = [np.full(n, i + 1, np.float32) for i in range(count)]
    mostly, ends = cu.CUmem_advise(1), cu.CUmem_advise(2)
    for address in buffers:
        ask(cu.cuMemPrefetchAsync(address, size, host, 0, gpu.stream))
        ask(cu.cuMemAdvise(address, size, mostly, device))
    for i in range(4):
        for first, second in itertools.pairwise(buffers[:-1]):
            for address in (first, second, buffers[-1]):
                ask(cu.cuMemPrefetchAsync(address, size, device, 0, gpu.stream))
                part = (1 << 20) // (i + 1)  # a launch has 2^20 threads
            gpu.launch("add", (first, second, buffers[-1], part), ADD)
        expected[-1][:part] = expected[count - 3][0] + expected[count - 2][0]
        gpu.sync()
    for address in buffers[::2]:
        ask(cu.cuMemAdvise(address, size, ends, device))
        ask(cu.cuMemPrefetchAsync(address, size, host, 0, gpu.stream))
    gpu.sync()
    read = [gpu.read(address, n) for address in buffers]
    pairs = zip(read, expected, strict=True)
    return {"wrong": sum(int((found != right).sum()) for found, right in pairs)}


def prefetch(to_host: str) -> Any:
    """Prefetches with the v2 call and in a batch; returns the last location that is reported."""
    gpu = Gpu()
    size = 16 * MIB
    data = int(ask(cu.cuMemAllocManaged(size, 1)))
    ask(cu.cuMemsetD8Async(data, 7, size, gpu.stream))
    gpu.sync()
    location = cu.CUmemLocation()
    host = to_host == "host"
    kinds = cu.CUmemLocationType
    location.type = kinds.CU_MEM_LOCATION_TYPE_HOST if host else kinds.CU_MEM_LOCATION_TYPE_DEVICE
    location.id = 0
    ask(cu.cuMemPrefetchAsync(data, size, location, 0, gpu.stream))
    gpu.sync()
    attribute = cu.CUmem_range_attribute.CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION
    last = ask(cu.cuMemRangeGetAttribute(4, attribute, data, size))
    batch = code_of(
        cu.cuMemPrefetchBatchAsync(
            [cu.CUdeviceptr(data)], [size], 1, [location], [0], 1, 0, gpu.stream
        )
    )
    gpu.sync()
    ask(cu.cuMemFree(data))
    freed = code_of(cu.cuMemPrefetchAsync(data, size, location, 0, gpu.stream))
    return {"last": int(last), "batch": batch, "freed": freed}


def discarded() -> Any:
    """Reads managed memory after a discard and enough pressure to evict it."""
    gpu = Gpu()
    size = 16 * MIB
    ones = np.ones(size // 4, np.float32)
    kept, dead = gpu.array(ones, managed=True), gpu.array(ones, managed=True)
    ask(cu.cuMemDiscardBatchAsync([cu.CUdeviceptr(dead)], [size], 1, 0, gpu.stream))
    gpu.sync()
    pressure = [int(ask(cu.cuMemAllocManaged(16 * MIB, 1))) for _ in range(8)]
    for address in pressure:
        ask(cu.cuMemsetD8Async(address, 1, 16 * MIB, gpu.stream))
    gpu.sync()
    seen = [float(gpu.read(address, size // 4)[100]) for address in (kept, dead)]
    return {"kept": seen[0], "dead_is_ones": seen[1] == 1.0}


def dead_on_the_host(call: str) -> Any:
    """Moves host memory to the GPU: by a prefetch, or with a discard in the same call."""
    gpu = Gpu()
    size = 16 * MIB
    data = int(ask(cu.cuMemAllocManaged(size, 1)))
    device, host = cu.CUmemLocation(), cu.CUmemLocation()
    device.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    host.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_HOST
    ask(cu.cuMemPrefetchAsync(data, size, device, 0, gpu.stream))
    ask(cu.cuMemsetD8Async(data, 7, size, gpu.stream))
    ask(cu.cuMemPrefetchAsync(data, size, host, 0, gpu.stream))
    ask(getattr(cu, call)([cu.CUdeviceptr(data)], [size], 1, [device], [0], 1, 0, gpu.stream))
    ask(cu.cuMemsetD8Async(data, 9, size, gpu.stream))
    gpu.sync()
    return sorted(set(gpu.read(data, size // 4).view(np.uint8).tolist()))


def allocate(times: str) -> Any:
    Gpu()
    return [code_of(cu.cuMemAlloc(4096)) for _ in range(int(times))]
