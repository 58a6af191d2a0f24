"""Programs about the cost of calls and waits for their thread, run by driver_programs.py."""

from __future__ import annotations

import resource
import time
from typing import Any

import numpy as np
from cuda.bindings import driver as cu
from driver_base import MIB, SCALE, Gpu, ask

WAITS = 100


def prefetch_costs(blocks: str) -> Any:
    """Prefetches `blocks` blocks to the host and back. Returns for each: wall seconds, the thread's
    CPU seconds, and how often it blocked."""
    gpu = Gpu()
    size, stream = int(blocks) * 2 * MIB, ask(cu.cuStreamCreate(1))
    data = int(ask(cu.cuMemAllocManaged(size, 1)))
    ask(cu.cuMemsetD8Async(data, 7, size, gpu.stream))
    gpu.sync()
    host, device = cu.CUmemLocation(), cu.CUmemLocation()
    host.type, host.id = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_HOST, 0
    device.type, device.id = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE, 0
    costs = []
    for location in (host, device):
        blocked = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
        wall, processor = time.monotonic(), time.thread_time()
        ask(cu.cuMemPrefetchAsync(data, size, location, 0, stream))
        spent = time.monotonic() - wall, time.thread_time() - processor
        costs.append([*spent, resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw - blocked])
        ask(cu.cuStreamSynchronize(stream))
    return costs


def waits_for_kernels() -> Any:
    """Returns how late waits for a kernel end, in microseconds, ascending, and the thread's CPU
    seconds for all of them."""
    gpu = Gpu()
    word = gpu.array(np.ones(1, np.float32))
    first, last = ask(cu.cuEventCreate(0)), ask(cu.cuEventCreate(0))
    late, processor = [], time.thread_time()
    for _ in range(WAITS):
        began = time.monotonic_ns()
        ask(cu.cuEventRecord(first, gpu.stream))
        gpu.launch("scale", (word, 1.0, 1), SCALE)
        ask(cu.cuEventRecord(last, gpu.stream))
        gpu.sync()
        spent_us = (time.monotonic_ns() - began) / 1000
        late.append(spent_us - 1000 * ask(cu.cuEventElapsedTime(first, last)))
    return {"late_us": sorted(late), "processor": time.thread_time() - processor}
