"""Question: GPU access to system-allocated memory (HMM, or the CPU's page tables)."""

from __future__ import annotations

import ctypes
import mmap
from pathlib import Path

from probe.driver import MIB, CudaError, UnsupportedError, outcome
from probe.figures import Json, now, us
from probe.gpu import Gpu
from probe.registry import Notes, question

LENGTH = 64 * MIB
PAGE = mmap.PAGESIZE
MADV_PAGEOUT = 21
VALUE = 7
REPEATS = 5


@question(45, "whether flash behind the host can be had: memory that the kernel swaps", False)
def ask_pageable(gpu: Gpu, out: Notes) -> None:
    out["swap_kib"] = swap_kib()
    out["access"] = gpu.attribute("PAGEABLE_MEMORY_ACCESS")
    out["host_page_tables"] = gpu.attribute("PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES")
    if not out["access"]:
        raise UnsupportedError("device attribute PAGEABLE_MEMORY_ACCESS is 0")
    gpu.warm_up()
    with mmap.mmap(-1, LENGTH) as memory:
        holder = (ctypes.c_ubyte * LENGTH).from_buffer(memory)
        try:
            asked(gpu, out, ctypes.addressof(holder), memory)
        finally:
            del holder  # an exported buffer prevents closing the mapping


def asked(gpu: Gpu, out: Notes, address: int, memory: mmap.mmap) -> None:
    """Measures the GPU's reads, and whether a prefetch moves memory and brings it from swap."""
    out["read"] = reads(gpu, address, memory, prefetched=False, swapped=False)
    out["read_prefetched"] = reads(gpu, address, memory, prefetched=True, swapped=False)
    if not out["swap_kib"]:
        out["swapped"] = "no swap is on"
        return
    out["swapped"] = reads(gpu, address, memory, prefetched=False, swapped=True)
    out["swapped_prefetched"] = reads(gpu, address, memory, prefetched=True, swapped=True)


def reads(gpu: Gpu, address: int, memory: mmap.mmap, *, prefetched: bool, swapped: bool) -> Json:
    """Returns microseconds of two reads by the GPU after writes by the CPU, and of the prefetch.
    `in_memory`, `in_memory_behind_prefetch`: share of pages in CPU memory before and after it."""
    sink = gpu.plain(MIB)
    read = gpu.read(address, LENGTH, sink)
    spent: dict[str, list[float]] = {"first": [], "second": [], "prefetch": []}
    row: Json = {}
    for _ in range(REPEATS):
        ctypes.memset(address, VALUE, LENGTH)
        if swapped:
            memory.madvise(MADV_PAGEOUT)
            row["in_memory"] = in_memory(address)
        if prefetched:
            begin = now()
            try:
                gpu.move(address, LENGTH, 0)
            except CudaError as error:
                return {"failed": str(error)}
            spent["prefetch"].append(now() - begin)
            row["in_memory_behind_prefetch"] = in_memory(address)
        spent["first"].append(gpu.kernel_ns(read))
        spent["second"].append(gpu.kernel_ns(read))
    gpu.launch(gpu.fill(address, LENGTH, VALUE + 1))
    row["written"] = outcome(gpu.sync)
    row["seen"] = ctypes.c_uint32.from_address(address + LENGTH - 4).value == VALUE + 1
    gpu.free(sink)
    return row | {f"{name}_us": us(values) for name, values in spent.items() if values}


def in_memory(address: int) -> float:
    """Returns the share of the pages that are in the CPU's memory."""
    pages = (ctypes.c_ubyte * (LENGTH // PAGE))()
    libc = ctypes.CDLL(None, use_errno=True)
    length = ctypes.c_size_t(LENGTH)
    if libc.mincore(ctypes.c_void_p(address), length, pages) != 0:
        raise OSError(ctypes.get_errno(), "mincore")
    return sum(page & 1 for page in pages) / len(pages)


def swap_kib() -> int:
    """Returns this machine's swap space in KiB; 0 if unknown."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return 0
    found = (line.split()[1] for line in lines if line.startswith("SwapTotal:"))
    return int(next(found, "0"))
