"""A floor that keeps the order of operations: the least time of each part of an iteration. Pure.

DESIGN
pump_lab.floor lets all bytes of an iteration cross the link at any time. This floor cuts the
repeating iteration between operations into consecutive parts. At a cut the memory holds at most C
blocks. A stay is a block between two uses on both sides of a cut, if the second use needs its
contents:

  1. The block is on the GPU during both uses. If the block is absent at the first cut between them,
     it was evicted in the part of the first use. If it is absent at the last cut between them, it
     arrives in the part of the second use.
  2. If a block is in memory at only one of two neighbouring cuts, it crosses the link between
     them. Without duplicates Unified Memory has no clean blocks, so each departure is copied.
     With duplicates, a block that the first use only read need not be copied, because the host
     may have it. If it was written before that use and has not left since, the host lacks it.
     The bound is then far too low.
  3. A part takes at least as long as its kernels, and as its bytes in each direction at the
     link's rate. It also takes as long as all its bytes at the combined rate.

Stays are grouped by the parts of their two uses. The variables of a linear program are, for each
group, the blocks in memory at each cut and the blocks that cross in each part. The least sum of the
parts' times is the floor. The values of any schedule satisfy all constraints, so no schedule is
faster, even with the future known. Fractions of blocks, and any order within a part, only lower the
floor. Contents that are discarded, or overwritten before they are read, are not stays and need no
memory. The floor is a mean over many iterations: the mean of schedules satisfies the program, too.

With a limited host, an absent block is in host memory or on flash. At a cut at most H blocks are in
the host. A block on flash was written there after the first use, and is read before the second. A
part takes at least as long as its bytes each way at the rates of flash. A copy on flash stays valid
until the second use, which may overwrite the block. A write budget bounds the sum of the writes, in
proportion to the sum of the parts' times.

If kernels may run again to recreate dropped blocks, an absent block is in the host or nowhere. A
block that arrives was in the host, so it was copied there before. A block that is nowhere is
recreated in some part before the second use. That part's kernels then take longer, by the block's
share of the kernel that made it. The inputs of that kernel count as present and need no memory.

Both directions together carry duplex_in + duplex_out of one direction's rate, as the link does
(lab/gpu/uvm_link.h): while both are busy, each keeps its own share of its rate.

The bound is not tight. It ignores that an operation needs all its blocks at once: a block may leave
while its kernel runs.

Needs scipy (`pip install 'pump-cuda[simulate]'`), whose solver takes a second (HiGHS).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pump.model.bounds import BLOCK_BYTES
from pump_lab.floor import Rates, Touch, duplex_shares

CUTS: Final = 64
"""Approximate number of cuts in an iteration."""
CUTS_WITH_FLASH: Final = 32
"""With flash the program has three times as many variables."""
CUTS_REMADE: Final = 32
"""As with flash, the program has three times as many variables."""

Stays = Counter[tuple[int, int]]
"""Blocks with contents that are needed later, by (operation that leaves them, number of operations
until they are needed)."""
Counts = Mapping[tuple[int, int], float]
"""Like Stays, but may count parts of blocks."""


@dataclass(frozen=True)
class Flash:
    """A host with limited memory and a flash tier. Rates are in bytes per nanosecond. `written`:
    The mean limit of all writes; infinite without a budget."""

    host_bytes: int
    read: float
    write: float
    written: float = float("inf")


def available() -> bool:
    """Returns whether scipy is installed."""
    return find_spec("scipy") is not None


def least_seconds(
    operations: Sequence[Touch],
    compute_ns: Sequence[int],
    memory_bytes: int,
    rates: Rates,
    cuts: int | None = None,
    *,
    duplicates: bool = False,
    flash: Flash | None = None,
) -> float:
    """Returns the least seconds of one iteration out of many, as a mean, for any policy.

    `compute_ns`: The time of each operation. `cuts`: The approximate number of cuts. `duplicates`:
    Blocks that were only read may leave without a copy. `flash`: None: the host holds everything.
    Raises ArithmeticError if the solver fails.
    """
    if cuts is None:
        cuts = CUTS if flash is None else CUTS_WITH_FLASH
    around = stays(operations)
    edges, compute = _parts(around, compute_ns, cuts)
    kinds = [_Kind(_by_cuts(around, edges))]
    if duplicates:
        parted = ((stays(operations, written=written), written) for written in (True, False))
        kinds = [_Kind(_by_cuts(part, edges), copied=written) for part, written in parted]
    program = _Program(kinds, compute, memory_bytes // BLOCK_BYTES, flash)
    return program.least(rates)


def least_seconds_remade(
    kinds: Sequence[tuple[Counts, float | None]],
    compute_ns: Sequence[int],
    memory_bytes: int,
    rates: Rates,
    cuts: int = CUTS_REMADE,
) -> float:
    """Like least_seconds, for policies that may also drop blocks and run their kernels again.

    `kinds`: Blocks, and how many seconds the kernel that made one of them takes for it; None: it
    cannot run again. Raises ArithmeticError if the solver fails.
    """
    around: Counter[tuple[int, int]] = Counter()
    for blocks, _ in kinds:
        around.update(blocks)
    edges, compute = _parts(around, compute_ns, cuts)
    by_cuts = [_Kind(_by_cuts(blocks, edges), again_s=seconds) for blocks, seconds in kinds]
    return _Program(by_cuts, compute, memory_bytes // BLOCK_BYTES, None).least(rates)


def stays(operations: Sequence[Touch], *, written: bool | None = None) -> Stays:
    """Counts blocks by pairs of uses, if the second use needs the contents of the first. The key is
    (operation, number of operations until the second use), in an iteration that repeats. `written`:
    Counts only blocks that the first use wrote (True), or only the others (False)."""
    found: Stays = Counter()
    writes = [{*touch.updates, *touch.overwrites} for touch in operations]
    last: dict[int, int] = {}
    for turn in (0, 1):
        for number, touch in enumerate(operations, turn * len(operations)):
            needed = (*touch.reads, *touch.updates)
            if turn:
                found.update(
                    (last[b] % len(operations), number - last[b])
                    for b in needed
                    if written in (None, b in writes[last[b] % len(operations)])
                )
            last.update(dict.fromkeys((*needed, *touch.overwrites), number))
    return found


def _parts(
    around: Counts, compute_ns: Sequence[int], cuts: int
) -> tuple[list[int], NDArray[np.float64]]:
    """Returns the edges of the parts, and the seconds of their kernels."""
    passed = np.concatenate(([0], np.cumsum(np.asarray(compute_ns, np.float64)))) / 1e9
    edges = _edges(around, passed, len(compute_ns), cuts)
    return edges, np.diff(passed[edges], prepend=passed[edges[-1]] - passed[-1])


def _edges(around: Counts, passed: NDArray[np.float64], operations: int, cuts: int) -> list[int]:
    """Returns the number of operations before each cut; the last cut is the iteration's end. There
    are cuts before and after the longest operations, because only these can hide many transfers.
    The other cuts are in equal stretches, each where most blocks await their next use."""
    kept = np.zeros(2 * operations + 1)
    for (first, later), count in around.items():
        kept[first] += count
        kept[first + later] -= count
    kept = np.cumsum(kept)
    kept = kept[:operations] + kept[operations : 2 * operations]
    parts = max(1, min(cuts // 2, operations))
    ends = [operations * i // parts for i in range(parts + 1)]
    fullest = (b + int(kept[b:e].argmax()) + 1 for b, e in pairwise(ends))
    longest = np.argsort(-np.diff(passed), kind="stable")[: cuts // 4].tolist()
    beside = (edge for number in longest for edge in (number, number + 1))
    return sorted({operations, *fullest, *beside} - {0})


def _by_cuts(around: Counts, edges: Sequence[int]) -> Counts:
    """Counts blocks by the first cut that they cross, and how many they cross in a row."""
    found: dict[tuple[int, int], float] = {}
    for (first, later), count in around.items():
        turns, second = divmod(first + later, edges[-1])
        begin = bisect_right(edges, first)
        crossed = bisect_right(edges, second) + turns * len(edges) - begin
        if crossed:
            found[begin, crossed] = found.get((begin, crossed), 0) + count
    return found


@dataclass(frozen=True)
class _Kind:
    """Stays by cuts. `copied`: they are copied when they leave. `again_s`: Seconds to recreate a
    block; None: impossible."""

    stays: Counts
    copied: bool = True
    again_s: float | None = None


class _Program:
    """The linear program. Columns: The present blocks of each stay at each of its cuts, the
    arriving blocks in each of its parts except the last, the seconds of each part. Flash adds
    columns: At each cut the blocks that are only on flash and the written blocks. In each part
    except the last the blocks that are read."""

    def __init__(
        self,
        kinds: Iterable[_Kind],
        compute: NDArray[np.float64],
        blocks: int,
        flash: Flash | None,
    ) -> None:
        self.compute, self.flash = compute, flash
        parts = len(compute)
        self._rows: list[tuple[int, int, float]] = []
        self._most: list[float] = []
        self._bounds: list[float] = []
        # By part: (column, factor) of the blocks that cross in each direction, and constant terms.
        self._come: list[list[tuple[int, float]]] = [[] for _ in range(parts)]
        self._leave: list[list[tuple[int, float]]] = [[] for _ in range(parts)]
        self._always = np.zeros((2, parts))
        self._written: list[list[tuple[int, float]]] = [[] for _ in range(parts)]
        self._read: list[list[tuple[int, float]]] = [[] for _ in range(parts)]
        self._again: list[list[tuple[int, float]]] = [[] for _ in range(parts)]
        there: list[list[int]] = [[] for _ in range(parts)]
        kept, on_flash = np.zeros(parts), [list[int]() for _ in range(parts)]
        every = ((*stay, kind) for kind in kinds for stay in kind.stays.items())
        for (first, cuts), count, kind in every:
            if (seconds := kind.again_s) is not None:
                for cut, column in enumerate(self._made_again(first, cuts, count, seconds), first):
                    there[cut % parts].append(column)
                continue
            copied = kind.copied
            columns = self._columns(2 * cuts - 1, count)
            at, come = columns[:cuts], columns[cuts:]
            for cut, column in enumerate(at, first):
                there[cut % parts].append(column)
            if copied:
                self._always[1, first] += count
                self._leave[first].append((at[0], -1))
            for part, (before, after, comes) in enumerate(
                zip(at, at[1:], come, strict=False), first + 1
            ):
                self._come[part % parts].append((comes, 1))
                if copied:
                    self._leave[part % parts] += [(comes, 1), (before, 1), (after, -1)]
                self._at_most([(after, 1), (before, -1), (comes, -1)], 0)
            end = (first + cuts) % parts
            self._always[0, end] += count
            self._come[end].append((at[-1], -1))
            if flash is None:
                continue
            for cut, column in enumerate(self._flash_columns(first, at, count, copied), first):
                on_flash[cut % parts].append(column)
                kept[cut % parts] += count
        for columns in there:
            self._at_most([(column, 1) for column in columns], blocks)
        if flash is not None:
            room = flash.host_bytes // BLOCK_BYTES
            for columns, others, blocks_kept in zip(there, on_flash, kept, strict=True):
                every_one = [(column, -1.0) for column in (*columns, *others)]
                self._at_most(every_one, room - float(blocks_kept))
        self._seconds = self._columns(parts, np.inf)

    def _made_again(self, first: int, cuts: int, count: float, seconds: float) -> Sequence[int]:
        """Adds a stay with blocks that can be recreated; returns its present blocks' columns."""
        parts = len(self.compute)
        columns = self._columns(5 * cuts, count)
        at, host, come, made, leave = (columns[i * cuts : (i + 1) * cuts] for i in range(5))
        for there, away in zip(at, host, strict=True):
            self._at_most([(there, 1), (away, 1)], count)
        self._at_most([(host[0], 1), (leave[0], -1)], 0)
        # come[i] and made[i] belong to the part after the part of leave[i].
        for i, part in enumerate(range(first, first + cuts)):
            self._leave[part % parts].append((leave[i], 1))
            self._come[(part + 1) % parts].append((come[i], 1))
            self._again[(part + 1) % parts].append((made[i], seconds))
        for i in range(cuts - 1):
            arrives, leaves = [(come[i], -1.0), (made[i], -1.0)], leave[i + 1]
            self._at_most([(at[i + 1], 1), (at[i], -1), *arrives, (leaves, 1)], 0)
            self._at_most([(host[i + 1], 1), (host[i], -1), (leaves, -1), (come[i], 1)], 0)
        self._at_most([(come[-1], 1), (host[-1], -1)], 0)
        self._at_most([(at[-1], -1), (come[-1], -1), (made[-1], -1)], -count)
        return at

    def _flash_columns(
        self, first: int, at: Sequence[int], count: float, copied: bool
    ) -> Sequence[int]:
        """Returns the columns of a stay's blocks that are only on flash, by cut. `at`: The columns
        of the blocks on the GPU. `copied`: False: flash may have them already."""
        cuts, parts = len(at), len(self.compute)
        columns = self._columns(3 * cuts - 1, count)
        alone, written, read = columns[:cuts], columns[cuts : 2 * cuts], columns[2 * cuts :]
        for there, away, copies in zip(at, alone, written, strict=True):
            self._at_most([(there, 1), (away, 1)], count)
            self._at_most([(away, 1), (copies, -1)], 0)
        if copied:
            self._written[first].append((written[0], 1))
        for part, (before, after) in enumerate(pairwise(written), first + 1):
            self._at_most([(before, 1), (after, -1)], 0)
            if copied:
                self._written[part % parts] += [(after, 1), (before, -1)]
        for part, (reads, (before, after)) in enumerate(
            zip(read, pairwise(alone), strict=True), first + 1
        ):
            self._at_most([(before, 1), (after, -1), (reads, -1)], 0)
            self._read[part % parts].append((reads, 1))
        self._read[(first + cuts) % parts].append((alone[-1], 1))
        return alone

    def _take_flash(self, flash: Flash) -> None:
        """Makes each part take as long as its flash reads and writes."""
        for ways, rate in ((self._written, flash.write), (self._read, flash.read)):
            for blocks, column in zip(ways, self._seconds, strict=True):
                seconds = BLOCK_BYTES / rate / 1e9
                self._at_most([*((c, f * seconds) for c, f in blocks), (column, -1)], 0)
        seconds = BLOCK_BYTES / flash.written / 1e9
        if seconds:
            every = [(c, f * seconds) for blocks in self._written for c, f in blocks]
            self._at_most([*every, *((column, -1) for column in self._seconds)], 0)

    def least(self, rates: Rates) -> float:
        from scipy.optimize import linprog
        from scipy.sparse import csr_array

        there, back = BLOCK_BYTES / rates.h2d / 1e9, BLOCK_BYTES / rates.d2h / 1e9
        share_in, share_out = duplex_shares(rates)
        for part, column in enumerate(self._seconds):
            for come, leave in ((there * share_in, back), (there, back * share_out)):
                always = float(self._always[:, part] @ (come, leave))
                crossing = [(c, f * come) for c, f in self._come[part]]
                crossing += [(c, f * leave) for c, f in self._leave[part]]
                self._at_most([*crossing, (column, -1)], -always)
        for again, column, least in zip(self._again, self._seconds, self.compute, strict=True):
            if again:
                self._at_most([*again, (column, -1)], -float(least))
        if self.flash is not None:
            self._take_flash(self.flash)
        rows, columns, factors = zip(*self._rows, strict=True)
        shape = len(self._most), len(self._bounds)
        matrix = csr_array((factors, (rows, columns)), shape=shape)
        bounds = np.zeros((shape[1], 2))
        bounds[:, 1] = self._bounds
        bounds[self._seconds, 0] = self.compute
        costs = np.zeros(shape[1])
        costs[self._seconds] = 1
        found: Any = linprog(costs, matrix, self._most, bounds=bounds, method="highs-ds")
        if found.status != 0:
            raise ArithmeticError(f"no floor of parts: {found.message}")
        return float(found.fun)

    def _columns(self, count: int, most: float) -> list[int]:
        first = len(self._bounds)
        self._bounds += [most] * count
        return list(range(first, first + count))

    def _at_most(self, row: Iterable[tuple[int, float]], most: float) -> None:
        number = len(self._most)
        self._rows += ((number, column, factor) for column, factor in row if factor)
        self._most.append(most)
