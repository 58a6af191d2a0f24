"""Sparse memory, migrated or read in place: programs, and the bound of the model's own read rate.

DESIGN
  Each program has one range that does not fit, written once, and launches that touch a part of it
  and are waited for. A Case says what a launch touches. Ways to run it:

    `naive`    Only the driver's paging.
    `window`   pump's policy window, which believes that a launch reaches the whole range.
    `remote`   The driver's paging, but the range is under SET_ACCESSED_BY after it was written.
               What is resident then stays, the rest is read in place. Nothing decides this: it
               shows what a decision could gain, without the cost of SET and of trials.

  The bound is the time of a launch if all its rows on the host were read at the model's rate for
  such rows. It needs a half of the range that stays resident, so the ways can only approach it.

  Zipf: the range's blocks are sorted by how often they are read, and groups of them become uses of
  the kernel. `by_heat`: rows are stored in the order of their frequency. Otherwise hashed: each
  row is in a random block. The model knows no block that is cached: translations of the hottest
  blocks on the host are missed as often as those of others.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from pump.model.bounds import BLOCK_BYTES
from pump.policy import by_name
from pump_lab.abi import lib
from pump_lab.profiles import Profile
from pump_lab.sim import program as form
from pump_lab.sim.program import Builder, Program, Use
from pump_lab.sim.simulation import Machine, run

WAYS = ("naive", "window", "remote")
WARM, MEASURED = 1, 2
"""Launches before the measured ones, and their number."""
OUTPUT_BLOCKS = 32
PARTS = 16
"""Parts in which the range is written. The last ones stay resident."""
TOP_ROWS = 1 << 20
"""Most frequent rows that are placed one by one if ids are hashed; the others are spread evenly."""
PAGE_BYTES = 64 << 10
DENSE_RANGES = 16
SECTOR, LINE, REQUEST, SWEEP = 32, 128, 20, 1550.0
"""Constants of lab/gpu/uvm_remote.c, in bytes."""
GATHERED, DENSE = 1, 1000
"""Signatures of launches."""


@dataclass(frozen=True)
class Case:
    """What a launch touches. `times`: bytes of the range / the GPU's memory. `share`: rows that a
    launch reads / rows of the range; above 1 if rows are read again. `zipf`: the exponent, 0 for
    uniform rows. `hot_resident`: which half is resident at first. `ascending`: rows are read in the
    order of their addresses. `layers`: launches that share the range and the rows. `same_pages`:
    64 KiB pages of each block that every launch reads, instead of rows. `dense`: bytes of further
    memory that is read whole after each launch / the GPU's memory."""

    times: float
    row_bytes: int
    share: float
    zipf: float = 0.0
    by_heat: bool = True
    hot_resident: bool = False
    ascending: bool = False
    layers: int = 1
    same_pages: int = 0
    dense: float = 0.0

    def blocks(self, memory_bytes: int) -> int:
        whole = round(self.times * memory_bytes / BLOCK_BYTES)
        return whole // (self.layers * PARTS) * self.layers * PARTS

    def rows(self, memory_bytes: int) -> int:
        """Returns the rows that all launches of a step read together."""
        return round(self.blocks(memory_bytes) * BLOCK_BYTES // self.row_bytes * self.share)


@dataclass(frozen=True)
class Stratum:
    """Adjacent blocks with equally frequent rows. `share`: of all reads."""

    first: int
    blocks: int
    share: float


def strata(case: Case, memory_bytes: int) -> list[Stratum]:
    """Returns the range's blocks in groups, the most frequent first."""
    blocks = case.blocks(memory_bytes)
    if not case.zipf:
        each = blocks // case.layers
        return [Stratum(n * each, each, 1 / case.layers) for n in range(case.layers)]
    rows_of_block = BLOCK_BYTES // case.row_bytes
    heat = _heat(blocks, rows_of_block, case.zipf, case.by_heat)
    ends = [0, *(1 << n for n in range(blocks.bit_length())), blocks]
    spans = [(a, b) for a, b in itertools.pairwise(ends) if b > a]
    return [Stratum(a, b - a, float(heat[a:b].sum())) for a, b in spans]


@cache
def _heat(blocks: int, rows_of_block: int, exponent: float, by_heat: bool) -> np.ndarray:
    """Returns each block's share of the reads, in descending order."""
    if by_heat:
        ends = _frequency_until(np.arange(blocks + 1) * rows_of_block, exponent)
        return np.diff(ends) / ends[-1]
    top = min(TOP_ROWS, blocks * rows_of_block)
    ranks = _frequency_until(np.arange(top + 1), exponent)
    whole = _frequency_until(np.array([blocks * rows_of_block]), exponent)[0]
    places = np.random.default_rng(1).integers(0, blocks, top)
    heat = np.bincount(places, np.diff(ranks), blocks) + (whole - ranks[-1]) / blocks
    return np.sort(heat / whole)[::-1]


def _frequency_until(ranks: np.ndarray, exponent: float) -> np.ndarray:
    """Returns the sum of i ** -exponent up to each rank: exact for 1000, then by the integral."""
    exact = np.concatenate(([0.0], np.cumsum(np.arange(1, 1001) ** -exponent)))
    far = np.maximum(ranks, 1000).astype(float) + 0.5
    if exponent == 1:
        tail = np.log(far / 1000.5)
    else:
        tail = (far ** (1 - exponent) - 1000.5 ** (1 - exponent)) / (1 - exponent)
    return exact[np.minimum(ranks, 1000)] + tail


# ---- the program ---------------------------------------------------------------------


def launches(case: Case, memory_bytes: int) -> Iterator[list[Use]]:
    """Yields the uses of each launch of a step. The program's range is 0, its output 1."""
    found, rows = strata(case, memory_bytes), case.rows(memory_bytes)
    output: Use = (1, 0, OUTPUT_BLOCKS * BLOCK_BYTES, form.OVERWRITE)
    uses: list[Use] = []
    for one in found:
        reads = 0 if case.same_pages else max(1, round(rows * one.share))
        sparse = reads, case.row_bytes * (reads > 0), int(case.ascending), case.same_pages
        uses.append((0, one.first * BLOCK_BYTES, one.blocks * BLOCK_BYTES, form.READ, *sparse))
    if case.layers == 1:
        yield [*uses, output]
    else:
        for use in uses:
            yield [use, output]


def program(case: Case, profile: Profile, memory_bytes: int, *, advised: bool) -> Program:
    blocks, gbps = case.blocks(memory_bytes), float(profile.values["kernels.default_gbps"])
    dense = round(case.dense * memory_bytes / BLOCK_BYTES / DENSE_RANGES)
    lengths = [blocks, OUTPUT_BLOCKS, *[dense] * (DENSE_RANGES * (dense > 0))]
    ranges, arena = form.ranges_in_a_row([count * BLOCK_BYTES for count in lengths])
    builder = Builder()
    for index in range(len(ranges)):
        builder.alloc(index)
    builder.sync()
    each = blocks // PARTS
    for part in range(PARTS) if not case.hot_resident else reversed(range(PARTS)):
        span = 0, part * each * BLOCK_BYTES, each * BLOCK_BYTES, form.WRITE
        builder.operation(form.KERNEL, [span], duration_ns=round(span[2] / gbps), signature=7)
    builder.sync()
    if advised:
        builder.advise(0, lib.GPU_ADVICE_ACCESSED_BY)
    read_bytes = case.rows(memory_bytes) * case.row_bytes / case.layers
    if case.same_pages:
        read_bytes = blocks * case.same_pages * PAGE_BYTES / case.layers
    for _ in range(WARM + MEASURED):
        for number, uses in enumerate(launches(case, memory_bytes)):
            builder.operation(
                form.KERNEL,
                uses,
                duration_ns=max(3000, round(read_bytes / gbps)),
                host_ns=8000,
                signature=GATHERED + number,
            )
        for index in range(2, len(lengths)):
            whole = index, 0, dense * BLOCK_BYTES, form.READ
            builder.operation(
                form.KERNEL, [whole], duration_ns=round(whole[2] / gbps), host_ns=8000,
                signature=DENSE + index,
            )  # fmt: skip
        builder.sync(mark=True)
    steps, uses_table = builder.tables()
    return Program("sparse", steps, uses_table, ranges, arena, 1, arena * BLOCK_BYTES)


# ---- times ---------------------------------------------------------------------------


def row_ns(profile: Profile, case: Case, range_bytes: float) -> float:
    """Returns the time of one row on the host, as lab/gpu/uvm_remote.c computes it."""
    value = {key: float(profile.values[f"link.{key}"]) for key in
             ("remote_gbps", "copy_h2d_gbps", "remote_walk_ns", "remote_reach_gib")}  # fmt: skip

    def touched(unit: int) -> float:
        return (case.row_bytes + unit - math.gcd(case.row_bytes, unit)) / unit

    wire = (touched(SECTOR) * SECTOR + touched(LINE) * REQUEST) * LINE / (LINE + REQUEST)
    page_kib = float(profile.values["uvm.host_page_kib"])
    reach = value["remote_reach_gib"] * (1 << 30) * page_kib / 2048
    missed = max(0.0, 1 - reach / range_bytes) if range_bytes else 0.0
    walks = case.row_bytes / SWEEP if case.row_bytes > SWEEP else 1 - case.ascending
    rate = min(value["remote_gbps"], value["copy_h2d_gbps"])
    slow = wire / value["remote_gbps"] + walks * missed * value["remote_walk_ns"]
    return max(slow, wire / rate)


def bound_seconds(case: Case, profile: Profile, memory_bytes: int) -> float:
    """Returns the seconds of a step if rows on the host are read at the model's rate, launches
    included. The resident part: what the memory holds beside output and dense memory."""
    value = {key: float(profile.values[key]) for key in
             ("kernels.default_gbps", "kernels.launch_us", "link.remote_us")}  # fmt: skip
    gbps, launch_s = value["kernels.default_gbps"], value["kernels.launch_us"] / 1e6
    blocks, rows = case.blocks(memory_bytes), case.rows(memory_bytes)
    if case.same_pages:
        rows = blocks * case.same_pages * PAGE_BYTES // case.row_bytes
    dense = round(case.dense * memory_bytes / BLOCK_BYTES)
    away = max(0, blocks - (memory_bytes // BLOCK_BYTES - OUTPUT_BLOCKS - dense))
    found = strata(case, memory_bytes)
    inside = [_overlap(one, (blocks - away, blocks) if case.hot_resident else (0, away))
              for one in found]  # fmt: skip
    reads = [
        rows * one.share * there / one.blocks for one, there in zip(found, inside, strict=True)
    ]
    if case.layers == 1:
        reads, inside = [sum(reads)], [sum(inside)]
    whole_ns = max(3000.0, rows * case.row_bytes / gbps / case.layers)
    total_s = dense * BLOCK_BYTES / gbps / 1e9
    for count, there in zip(reads, inside, strict=True):
        reads_ns = count * row_ns(profile, case, there * BLOCK_BYTES)
        latency_ns = value["link.remote_us"] * 1000 * (count > 0)
        total_s += max(whole_ns, reads_ns + latency_ns) / 1e9 + launch_s
    return total_s


def _overlap(one: Stratum, span: tuple[int, int]) -> int:
    return max(0, min(span[1], one.first + one.blocks) - max(span[0], one.first))


def seconds(
    case: Case, profile: Profile, memory_bytes: int, way: str
) -> tuple[float, dict[str, int]]:
    """Returns the steady seconds of a step, and the last step's counters."""
    made = program(case, profile, memory_bytes, advised=way == "remote")
    machine = Machine(profile, memory_bytes)
    found = run(made, machine, by_name("window") if way == "window" else None)
    steady = found.stretches[-MEASURED:]
    return statistics.median(one.seconds for one in steady), dict(steady[-1].counters)


def without_walks(profile: Profile) -> Profile:
    """Returns the profile of a GPU that misses no translation."""
    return profile.changed({"link.remote_walk_ns": "0"})


# ---- the cases -----------------------------------------------------------------------

SHARES = {"1024th": 1 / 1024, "64th": 1 / 64, "8th": 1 / 8}
ROWS = (128, 256, 512, 1024)
ZIPF = (0.75, 1.0, 1.2)
USED = {"8th": 1 / 8, "4th": 1 / 4, "half": 1 / 2, "all": 1.0}
LAYERS = 32


def tables(rows: tuple[int, ...] = ROWS) -> dict[str, Case]:
    """Returns uniform tables, by size, row and share."""
    return {
        f"table.{times}x.{row}.{name}": Case(times, row, share)
        for times in (2, 4)
        for row in rows
        for name, share in SHARES.items()
    }


def skewed() -> dict[str, Case]:
    """Returns tables with Zipf's frequencies, by exponent, order of rows and resident half."""
    found = {}
    for exponent in ZIPF:
        for by_heat in (True, False):
            for hot in (True, False):
                half = "hot" if hot else "cold"
                name = f"zipf.{round(100 * exponent)}.{'heat' if by_heat else 'hashed'}.{half}"
                found[name] = Case(2, 256, 1 / 64, zipf=exponent, by_heat=by_heat, hot_resident=hot)
    return found


def others() -> dict[str, Case]:
    """Returns the other programs.

    `paged`: attention over a cache of 64 KiB rows, in 32 layers that each launch reads at random
    places; `paged_same`: at the same places in each launch. `ascending`: sorted ids. `many`: 32
    tables, a launch each. `mixed`: a sparse table before dense memory that fits beside half of it.
    `dense`: 32 layers of which each launch reads all, so many times.
    """
    paged = Case(2, PAGE_BYTES, 1.0, layers=LAYERS)
    found = {f"paged.{name}": replace(paged, share=share) for name, share in USED.items()}
    for name, share in USED.items():
        found[f"paged_same.{name}"] = replace(paged, share=share, same_pages=round(32 * share))
    for name, share in SHARES.items():
        found[f"ascending.{name}"] = Case(2, 256, share, ascending=True)
        found[f"many.{name}"] = Case(2, 256, share, layers=LAYERS)
    found["mixed.64th"] = Case(2, 512, 1 / 64, dense=0.5)
    for times in (1, 2, 8, 64):
        found[f"dense.{times}"] = Case(1.5, PAGE_BYTES, times, layers=LAYERS)
    return found
