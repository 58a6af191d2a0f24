"""Question: the cost of read duplication, and how written pages can be detected."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Any

from probe.driver import BLOCK, KIB, MIB, TO_HOST, U64, MemLocation, load_libcuda, refused, timed
from probe.figures import Json, line_fit, now, rounded, us
from probe.gpu import Gpu
from probe.moves import moves_summary, sliced
from probe.registry import Notes, question
from probe.threads import Worker

SET, END = 1, 2
"""CU_MEM_ADVISE_SET_READ_MOSTLY and CU_MEM_ADVISE_UNSET_READ_MOSTLY."""
PAGE = 4 * KIB
SPANS = (1, 4, 16, 64)
"""Numbers of blocks in a call."""
SAMPLES = 40
BESIDE_S = 1.5
BESIDE_BLOCKS = 4
"""Blocks of a call during prefetches: 8 MiB, the size of an eviction."""
PRESENT = 1 << 63


@question(40, "whether memory that was only read may leave without a copy: what advice costs")
def ask_duplicates(gpu: Gpu, out: Notes) -> None:
    address = gpu.written(max(SPANS) * BLOCK)
    advise = adviser(gpu)
    costs(gpu, advise, address, out)
    out["page_map"] = shown(gpu, advise, address)
    out["collapse"] = collapsed(gpu, advise, address)
    out["departure"] = departed(gpu, advise, address)
    out["beside_prefetches"] = beside(gpu, advise, address)
    gpu.free(address)


Adviser = Callable[[int, int, int], int]
"""Advises on an address and its length; returns the call's nanoseconds."""


def arguments(gpu: Gpu, address: int, length: int, advice: int) -> tuple[Any, ...]:
    """Returns this driver's advice call and its arguments."""
    if hasattr(load_libcuda(), "cuMemAdvise_v2"):
        return "cuMemAdvise_v2", address, length, advice, MemLocation(1, int(gpu.device))
    return "cuMemAdvise", address, length, advice, int(gpu.device)


def adviser(gpu: Gpu) -> Adviser:
    return lambda address, length, advice: timed(*arguments(gpu, address, length, advice))


def duplicate(gpu: Gpu, advise: Adviser, address: int, length: int) -> int:
    """Evicts memory and brings it back as duplicates; returns the advice's nanoseconds."""
    gpu.move(address, length, TO_HOST)
    spent = advise(address, length, SET)
    gpu.move(address, length, 0)
    return spent


def costs(gpu: Gpu, advise: Adviser, address: int, out: Notes) -> None:
    """Measures the caller's time for advice on an idle GPU."""
    ask = refused(*arguments(gpu, 0, 0, SET))
    asking: list[float] = []
    for _ in range(50):
        start = now()
        ask()
        asking.append(now() - start)
    out["refused_us"] = us(asking[10:])
    points: list[tuple[float, float]] = []
    for blocks in SPANS:
        length = blocks * BLOCK
        begun, ended = [], []
        for _ in range(SAMPLES):
            begun.append(duplicate(gpu, advise, address, length))
            ended.append(advise(address, length, END))
        row = {"set_us": us(begun[2:]), "end_us": us(ended[2:])}
        out[f"{blocks}_blocks"] = row
        points.append((float(blocks), row["end_us"]["p10"]))
    fixed, per_block = line_fit(points)
    out["fit_end"] = {"fixed_us": rounded(fixed), "per_block_us": rounded(per_block)}


def mapped_pages(address: int, length: int) -> list[bool] | None:
    """Returns which pages the CPU has mapped, from the process's page map; None if there is none.
    The virtual driver's memory has no page tables, so that driver answers itself."""
    count = length // PAGE
    entries = (U64 * count)()
    answer: Any = getattr(load_libcuda(), "pump_page_map", None)
    if answer is not None:
        answer.argtypes, answer.restype = (U64, ctypes.c_void_p, ctypes.c_uint32), None
        answer(address, entries, count)
    else:
        try:
            file = os.open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            data = os.pread(file, 8 * count, address // PAGE * 8)
        finally:
            os.close(file)
        ctypes.memmove(entries, data, len(data))
    return [bool(entry & PRESENT) for entry in entries]


def shown(gpu: Gpu, advise: Adviser, address: int) -> Json:
    """Counts a block's mapped pages: on the host, as a duplicate, read, and partly written."""
    half = BLOCK // 2
    sink = gpu.plain(BLOCK)

    def count(begin: int = 0, length: int = BLOCK) -> int | None:
        found = mapped_pages(address + begin, length)
        return None if found is None else sum(found)

    gpu.move(address, BLOCK, TO_HOST)
    row: Json = {"pages": BLOCK // PAGE, "on_the_host": count()}
    duplicate(gpu, advise, address, BLOCK)
    row["duplicated"] = count()
    gpu.kernel_ns(gpu.read(address, BLOCK, sink))
    row["read"] = count()
    gpu.kernel_ns(gpu.fill(address, half, 5))
    row["written_half"], row["other_half"] = count(0, half), count(half, half)
    advise(address, BLOCK, END)
    gpu.free(sink)
    told = [row[name] for name in ("duplicated", "read", "written_half", "other_half")]
    pages = BLOCK // PAGE
    row["tells_writes"] = told == [pages, pages, 0, pages // 2]
    return row


def collapsed(gpu: Gpu, advise: Adviser, address: int) -> Json:
    """Measures the GPU time of writes to duplicates and to resident memory."""
    points: list[tuple[float, float]] = []
    row: Json = {}
    for blocks in (1, 4, 8):
        length = blocks * BLOCK
        write = gpu.fill(address, length, 6)
        resident, duplicates = [], []
        for _ in range(6):
            gpu.move(address, length, 0)
            resident.append(gpu.kernel_ns(write))
            duplicate(gpu, advise, address, length)
            duplicates.append(gpu.kernel_ns(write))
            advise(address, length, END)
        row[f"{blocks}_blocks"] = {"resident_us": us(resident), "duplicated_us": us(duplicates)}
        points.append((float(blocks), us(duplicates)["p10"] - us(resident)["p10"]))
    fixed, per_block = line_fit(points)
    return row | {"fit": {"fixed_us": rounded(fixed), "per_block_us": rounded(per_block)}}


def departed(gpu: Gpu, advise: Adviser, address: int) -> Json:
    """Measures evictions after the end of the advice, and checks that words survive them."""
    length = 16 * MIB
    clean, written, back = [], [], []
    for number in range(8):
        duplicate(gpu, advise, address, length)
        advise(address, length, END)
        clean.append(gpu.move(address, length, TO_HOST))
        back.append(gpu.move(address, length, 0))
        duplicate(gpu, advise, address, length)
        gpu.kernel_ns(gpu.fill(address, length, number))
        advise(address, length, END)
        written.append(gpu.move(address, length, TO_HOST))
    words = set(ctypes.string_at(address, length)[::BLOCK])
    return {
        "clean_out": moves_summary(clean[2:], length),
        "written_out": moves_summary(written[2:], length),
        "in_after_clean_out": moves_summary(back[2:], length),
        "kept_words": words == {7},
    }


def beside(gpu: Gpu, advise: Adviser, address: int) -> Json:
    """Measures advice on 8 MiB while another thread prefetches to the GPU, and the times of those
    prefetches with and without advice."""
    length, moved = BESIDE_BLOCKS * BLOCK, 64 * MIB
    other = gpu.written(moved)
    stop, advised = False, False
    slices: dict[bool, list[int]] = {False: [], True: []}
    phase = ""

    def prefetch() -> None:
        nonlocal phase
        stream = gpu.new_stream()
        while not stop:
            sliced(gpu, other, moved, slice_length=8 * MIB, to=TO_HOST, stream=stream)
            phase = "in"
            for at in range(0, moved, 8 * MIB):
                slices[advised].append(gpu.prefetch(other + at, 8 * MIB, 0, stream))
            gpu.sync(stream)
            phase = ""

    worker = Worker(gpu, prefetch)
    begun: list[int] = []
    ended: list[int] = []
    try:
        for advised in (False, True):
            until = now() + int(BESIDE_S / 2 * 1e9)
            while now() < until:
                gpu.move(address, length, TO_HOST)
                first, inside = (advise(address, length, SET) if advised else 0), phase
                gpu.move(address, length, 0)
                last = advise(address, length, END) if advised else 0
                if advised and inside == "in":
                    begun.append(first)
                if advised and phase == "in":
                    ended.append(last)
    finally:
        stop = True
        worker.finish()
    gpu.free(other)
    return {
        "set_us": us(begun),
        "end_us": us(ended),
        "prefetch_us": us(slices[False]),
        "prefetch_beside_advice_us": us(slices[True]),
    }
