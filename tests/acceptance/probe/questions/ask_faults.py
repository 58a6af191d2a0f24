"""Questions: costs of page faults and first pages."""

from __future__ import annotations

import array
import ctypes
import random
from collections.abc import Callable

from probe.driver import BLOCK, KIB, MIB, TO_HOST, call, timed
from probe.figures import Json, gbps, line_fit, median, now, rounded, undisturbed, us
from probe.gpu import Gpu, Launch
from probe.registry import Notes, question

SWEPT_BLOCKS = 128


@question(45, "demand model: bw_demand, t0 + t_replay, t_blk, t_pg; what an irregular gather costs")
def ask_faults(gpu: Gpu, out: Notes) -> None:
    gpu.warm_up()
    blocks = SWEPT_BLOCKS
    length = blocks * BLOCK
    address, sink = gpu.written(length), gpu.plain(BLOCK)
    order = gpu.plain(BLOCK)
    slots = list(range(length // (64 * KIB)))
    random.Random(1).shuffle(slots)
    shuffled = array.array("I", slots)
    call("cuMemcpyHtoD_v2", order, shuffled.buffer_info()[0], len(slots) * 4)

    def cold(prepared: Launch, repeats: int = 5) -> list[float]:
        samples = []
        for _ in range(repeats):
            gpu.move(address, length, TO_HOST)
            samples.append(gpu.kernel_ns(prepared))
        return samples

    for name, prepared in (
        ("sequential_read", gpu.read(address, length, sink)),
        ("sequential_write", gpu.fill(address, length, 3)),
        ("random_64_kib_slots", gpu.touch(address, 64 * KIB, len(slots), order)),
    ):
        samples = cold(prepared)
        warm = [gpu.kernel_ns(prepared) for _ in range(5)]
        out[name] = {"gbps": gbps(length, median(samples)), "us": us(samples), "warm_us": us(warm)}

    def fresh(work: Callable[[int], Launch], repeats: int = 5) -> list[float]:
        """Measures the same on memory that has no pages yet: nothing is copied or unmapped."""
        samples = []
        for _ in range(repeats):
            new = gpu.managed(length)
            samples.append(gpu.kernel_ns(work(new)))
            gpu.sync()
            gpu.free(new)
        return samples

    out["fresh_sequential_write_us"] = us(fresh(lambda at: gpu.fill(at, length, 3)))
    counts = (1, 8, 32, blocks)
    out["warm_touch_us"] = us(gpu.kernel_ns(gpu.touch(address, BLOCK, 1)) for _ in range(9))
    for kind in ("", "fresh_"):
        points = []
        for count in counts:
            samples = (
                fresh(lambda at, count=count: gpu.touch(at, BLOCK, count))
                if kind
                else cold(gpu.touch(address, BLOCK, count))
            )
            out[f"{kind}one_page_in_each_of_{count}_blocks_us"] = us(samples)
            points.append((float(count), undisturbed(samples) / 1e3))
        fixed, per_block = line_fit(points)
        out[f"{kind}fit_one_page_a_block"] = {
            "fixed_us": rounded(fixed),
            "per_block_us": rounded(per_block),
        }
        for pages in (1, 4, 16, 32):
            samples = (
                fresh(lambda at, pages=pages: gpu.touch(at, 64 * KIB, pages))
                if kind
                else cold(gpu.touch(address, 64 * KIB, pages))
            )
            out[f"{kind}{pages}_slots_of_64_kib_in_one_block_us"] = us(samples)
    samples = cold(gpu.chain(address, BLOCK, 64, sink), 7)
    warm = [gpu.kernel_ns(gpu.chain(address, BLOCK, 64, sink)) for _ in range(7)]
    out["serial_fault_us"] = us((cold_ns - median(warm)) / 64 for cold_ns in samples)


@question(40, "populate cost: bw_memset; why the executor should populate before the kernel does")
def ask_populate(gpu: Gpu, out: Notes) -> None:
    callers: list[tuple[float, float]] = []
    for mib in (2, 8, 32, 256):
        length = mib * MIB
        row: Json = {}
        for way in ("prefetch", "kernel", "memset", "kernel_after_prefetch", "cpu"):
            samples = [populate_fresh(gpu, length, way) for _ in range(8)][1:]
            totals = [total for _, total in samples]
            row[way] = {"total_us": us(totals), "gbps": gbps(length, median(totals))}
            if way in ("prefetch", "memset"):
                row[way]["caller_us"] = us(caller for caller, _ in samples)
        if mib > 2:  # several blocks: two passes
            callers.append((mib / 2, row["prefetch"]["caller_us"]["p10"]))
        out[f"{mib}_mib"] = row
    fixed, per_block = line_fit(callers)
    out["fit_prefetch_caller"] = {"fixed_us": rounded(fixed), "per_block_us": rounded(per_block)}


def populate_fresh(gpu: Gpu, length: int, way: str) -> tuple[float, float]:
    """Gives new managed memory its first pages in one way; returns (caller ns, total ns)."""
    address = gpu.managed(length)
    callers = [0]
    start = now()
    if way == "prefetch":
        caller, total = gpu.move(address, length, 0)
        callers.append(caller)
        spent: float = total
    elif way == "cpu":
        ctypes.memset(address, 5, length)
        spent = now() - start
    elif way == "memset":
        spent = gpu.between_events(
            lambda: callers.append(timed("cuMemsetD8Async", address, 5, length, gpu.stream))
        )
    else:
        if way == "kernel_after_prefetch":
            gpu.move(address, length, 0)
        spent = gpu.kernel_ns(gpu.fill(address, length, 5))
    gpu.sync()
    gpu.free(address)
    return callers[-1], spent
