"""Questions: costs of evictions and returns, and what the driver reports about residency."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from probe.driver import BLOCK, INT, MIB, TO_HOST, call
from probe.figures import gbps, median, now, rounded, undisturbed, us
from probe.gpu import Gpu, peek, read_pages
from probe.moves import moves_summary
from probe.registry import Notes, question


@question(40, "t_hostalloc, t_cpuunmap: price of the first and later evictions and of the return")
def ask_way_back(gpu: Gpu, out: Notes) -> None:
    length = 128 * MIB
    first, later = [], []
    for _ in range(4):
        address = gpu.written(length)
        first.append(gpu.move(address, length, TO_HOST))
        gpu.move(address, length, 0)
        later.append(gpu.move(address, length, TO_HOST))
        gpu.free(address)
    out["first_out"], out["later_out"] = moves_summary(first, length), moves_summary(later, length)
    # Block by block, because a long call overlaps the CPU's work with copies of other blocks.
    address, sink = gpu.written(length), gpu.plain(BLOCK)
    single: list[list[tuple[int, int]]] = []
    for _ in range(3):
        single.append([gpu.move(address + at, BLOCK, TO_HOST) for at in range(0, length, BLOCK)])
        gpu.move(address, length, 0)
    rows = [single[0], single[1] + single[2]]
    for name, samples in zip(("first", "later"), rows, strict=True):
        out[f"one_block_{name}_out"] = moves_summary(samples, BLOCK)
    extra = [undisturbed(float(caller) for caller, _ in row) for row in rows]
    out["first_out_extra_us_per_block"] = rounded((extra[0] - extra[1]) / 1e3)
    gpu.move(address, length, TO_HOST)

    def cpu_read() -> None:
        gpu.move(address, length, TO_HOST)
        read_pages(address, length)

    def cpu_write() -> None:
        gpu.move(address, length, TO_HOST)
        ctypes.memset(address, 9, length)

    states: dict[str, Callable[[], Any]] = {
        "untouched": lambda: gpu.move(address, length, TO_HOST),
        "cpu_read": cpu_read,
        "cpu_written": cpu_write,
        "cpu_faulted_without_prefetch": lambda: read_pages(address, length),
    }
    for name, evict in states.items():
        back, spent = [], []
        for _ in range(6):
            start = now()
            evict()
            spent.append(now() - start)
            back.append(gpu.move(address, length, 0))
        out[f"in_after_{name}"] = moves_summary(back[1:], length) | {"leaving_us": us(spent[1:])}
    reads = []
    for _ in range(5):
        gpu.move(address, length, TO_HOST)
        reads.append(gpu.kernel_ns(gpu.read(address, length, sink)))
    out["in_by_kernel_faults"] = {"total_us": us(reads), "gbps": gbps(length, median(reads))}


@question(20, "whether the driver tells residency, or a shadow model of every block is needed")
def ask_residency(gpu: Gpu, out: Notes) -> None:
    address, sink = gpu.written(BLOCK), gpu.plain(BLOCK)

    def last_prefetch() -> int:
        where = INT(-99)
        call("cuMemRangeGetAttribute", ctypes.byref(where), 4, 4, address, BLOCK)
        return where.value

    out["after_prefetch_in"] = last_prefetch()
    gpu.move(address, BLOCK, TO_HOST)
    out["after_prefetch_out"] = last_prefetch()
    gpu.kernel_ns(gpu.read(address, BLOCK, sink))
    out["after_kernel_brought_it_back"] = last_prefetch()
    gpu.move(address, BLOCK, 0)
    peek(address)
    out["after_prefetch_in_and_cpu_load"] = last_prefetch()
