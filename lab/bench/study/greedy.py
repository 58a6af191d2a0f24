"""G10's greedy schedule of one iteration, carried out by pump's executors.

After G10 (MICRO 2023). A candidate is the time between two uses of a span, including the
wrap-around to the next iteration, if the contents are needed again. Its benefit is the span's bytes
times the kernel time in between during which the live bytes exceed the memory. The candidate with
the highest benefit is booked first: its eviction on the link right after the use, its prefetch as
late as the link allows. It is taken only if the eviction ends before the prefetch begins. Then
prefetches move earlier, kernel by kernel, while they fit. The allocator's discards free dead
memory. Blocks that are written again get memory AHEAD kernels before the write.

With flash, a period goes to flash if it is longer than both transfers and SLACK. If flash has no
time to write in the period and the host has free memory, the period goes to the host. Shorter
periods go to the host if they are long enough for its transfers. Unlike in G10, kernel times
contain no stalls, and there is one limit (LINE of the memory). The tolerant limit belongs to a
variant without published results.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray
from study.baselines import take

from pump.model.bounds import BLOCK_BYTES
from pump.model.client import ClientModel
from pump_lab.sim import program as form
from pump_lab.sim.deciding import Blocks, Decision, View
from pump_lab.sim.program import Program, ProgramError

LINE: Final = 0.99
"""Share of the memory that the schedule may fill."""

DEAD_KERNELS: Final = 4
"""Blocks that are dead for longer get memory again AHEAD kernels before their use."""
AHEAD: Final = 4

SLACK: Final = 0.5
"""A period must exceed two transfers by this share of a transfer's time."""

Numbers = NDArray[np.float64]
Span = tuple[int, int, int]


@dataclass
class Period:
    """A span's idle time: after kernel `begin`, before kernel `end`. Numbers of kernels of the next
    iteration continue after this iteration's last one."""

    span: Span
    begin: int
    end: int
    leaves: int = 0
    """As scheduled, the span is away during kernels [`leaves`, `comes`)."""
    comes: int = 0
    past_host: bool = False
    """The span goes to flash."""

    @property
    def length_bytes(self) -> int:
        return self.span[2]


@dataclass(frozen=True)
class Flash:
    """A host of `host_bytes` with flash as the next tier: rates and latencies."""

    host_bytes: int
    read_gbps: float
    write_gbps: float
    read_us: float
    write_us: float


@dataclass(frozen=True)
class Iteration:
    """The kernels of one iteration. `kernel_steps`: their positions after step `first_step`."""

    first_step: int
    steps: int
    kernel_steps: list[int]
    seconds: Numbers
    live_bytes: Numbers
    periods: list[Period]
    dead: list[tuple[int, int]]
    """Blocks whose contents no kernel needs for a while, and the kernel that writes them again."""


def iteration_of(program: Program) -> Iteration:
    """Returns the iteration that the program replays. Raises ProgramError if it has none."""
    if "steps_per_iteration" not in program.facts:
        raise ProgramError(f"{program.name}: no iteration is known to schedule")
    steps = int(program.facts["steps_per_iteration"])
    first = len(program.steps) - steps * int(program.facts["iterations"])
    rows = program.steps[first : first + steps].tolist()
    kernel_steps = [i for i, row in enumerate(rows) if row[3]]
    uses = program.uses.tolist()
    used: dict[Span, list[tuple[int, bool]]] = {}
    for kernel, i in enumerate(kernel_steps):
        for offset, length, index, access, *_ in uses[rows[i][6] : rows[i][6] + rows[i][7]]:
            needs = access != form.OVERWRITE
            used.setdefault((index, offset, length), []).append((kernel, needs))
    count = len(kernel_steps)
    live = np.zeros(count)
    periods = []
    for span, places in used.items():
        following = [*places[1:], (places[0][0] + count, places[0][1])]
        for (kernel, _), (after, needs) in zip(places, following, strict=True):
            live[kernel] += span[2]
            if needs and after - kernel > 1:
                periods.append(Period(span, kernel, after))
                add(live, kernel + 1, after, span[2])
    seconds = np.array([rows[i][1] / 1e9 for i in kernel_steps])
    dead = _dead_blocks(program, used, count)
    return Iteration(first, steps, kernel_steps, seconds, live, periods, dead)


def _dead_blocks(
    program: Program, used: dict[Span, list[tuple[int, bool]]], count: int
) -> list[tuple[int, int]]:
    firsts = program.ranges["first_block"].tolist()
    by_block: dict[int, dict[int, bool]] = {}
    for (index, offset, length), places in used.items():
        begin = firsts[index] + offset // BLOCK_BYTES
        end = firsts[index] - (-(offset + length) // BLOCK_BYTES)
        for block in range(begin, end):
            uses = by_block.setdefault(block, {})
            for kernel, needs in places:
                uses[kernel] = uses.get(kernel, False) or needs
    found = []
    for block, uses in by_block.items():
        kernels = sorted(uses)
        for kernel, after in zip(kernels, [*kernels[1:], kernels[0] + count], strict=True):
            if not uses[after % count] and after - kernel > DEAD_KERNELS:
                found.append((block, after))
    return found


def add(line: Numbers, begin: int, end: int, amount: float) -> None:
    """Adds `amount` to kernels [begin, end), which may continue in the next iteration."""
    count = len(line)
    inside = min(end, count)
    line[min(begin, count) : inside] += amount
    if end > count:
        line[max(begin - count, 0) : end - count] += amount


def schedule(
    iteration: Iteration,
    memory_bytes: int,
    in_gbps: float,
    out_gbps: float,
    flash: Flash | None = None,
) -> list[Period]:
    """Returns the periods to evict in, with times. Without flash the host holds everything."""
    limit = memory_bytes * LINE
    live = iteration.live_bytes.copy()
    in_left, out_left = (iteration.seconds * gbps * 1e9 for gbps in (in_gbps, out_gbps))
    open_ = list(iteration.periods)
    sizes = np.array([period.length_bytes for period in open_], np.float64)
    begins = np.array([period.begin + 1 for period in open_], np.int64)
    ends = np.array([period.end for period in open_], np.int64)
    clock = prefix_sums(iteration.seconds)
    idle = (clock[ends] - clock[begins]) * sizes
    usable = np.ones(len(open_), np.bool_)
    tiers = None
    if flash is not None:
        rate = min(in_gbps, out_gbps)
        tiers = _Tiers(iteration.seconds, flash, rate, (in_left, out_left))
    taken = []
    while usable.any() and (live > limit).any():
        crowded = prefix_sums(np.where(live > limit, iteration.seconds, 0))
        benefit = np.where(usable, (crowded[ends] - crowded[begins]) * sizes, 0)
        best = benefit.max()
        if best <= 0:
            break
        ties = np.flatnonzero(benefit >= best)
        chosen = int(ties[np.argmax(idle[ties])])
        usable[chosen] = False
        period = open_[chosen]
        seconds = float(clock[period.end] - clock[period.begin + 1])
        if not (tiers.book(period, seconds) if tiers else _book(period, in_left, out_left)):
            continue
        add(live, period.leaves, period.comes, -period.length_bytes)
        taken.append(period)
    for period in sorted(taken, key=lambda p: p.comes):
        _pull(period, live, limit)
    return taken


def prefix_sums(values: Numbers) -> Numbers:
    """Returns prefix sums over two iterations."""
    return np.concatenate(([0.0], np.cumsum(np.tile(values, 2))))


def _book(period: Period, in_left: Numbers, out_left: Numbers) -> bool:
    """Books both directions on the link, or neither."""
    count = len(in_left)
    out = _take(out_left, range(period.begin + 1, period.end), period.length_bytes)
    if out is None:
        return False
    back = _take(in_left, range(period.end - 1, period.begin, -1), period.length_bytes)
    leaves, comes = max(out) + 1, min(back or {period.begin: 0.0})
    if back is None or comes < leaves:
        return False
    for left, parts in ((out_left, out), (in_left, back)):
        for kernel, amount in parts.items():
            left[kernel % count] -= amount
    period.leaves, period.comes = leaves, comes
    return True


class _Tiers:
    """Chooses between flash and the host by their free capacity."""

    def __init__(
        self, seconds: Numbers, flash: Flash, gbps: float, link: tuple[Numbers, Numbers]
    ) -> None:
        """Takes `gbps`, the rate of the slower direction, and `link`, the free bytes of both."""
        self.flash, self.gbps, self.link = flash, gbps, link
        self.reads, self.writes = (
            seconds * gbps * 1e9 for gbps in (flash.read_gbps, flash.write_gbps)
        )
        self.host = np.zeros(len(seconds))
        self.clock = prefix_sums(seconds)

    def book(self, period: Period, seconds: float) -> bool:
        """Books both directions of a period of `seconds`, or neither."""
        size, flash = period.length_bytes, self.flash
        to_flash = max(flash.read_us, flash.write_us) / 1e6
        to_flash += size / min(flash.read_gbps, flash.write_gbps) / 1e9
        to_host = size / self.gbps / 1e9
        if seconds > (2 + SLACK) * to_flash and not (
            self._is_busy(period, to_flash) and self._has_room(period)
        ):
            return self._book_flash(period)
        if seconds <= (2 + SLACK) * to_host or not self._has_room(period):
            return False
        if not _book(period, *self.link):
            return False
        add(self.host, period.begin, period.end, size)
        return True

    def _has_room(self, period: Period) -> bool:
        return bool(self.host.max() + period.length_bytes <= self.flash.host_bytes)

    def _is_busy(self, period: Period, to_flash: float) -> bool:
        """Returns whether flash has no free write time in the kernels that end before this write
        would be done; also true if there are no such kernels."""
        done = float(self.clock[period.begin + 1]) + to_flash
        last = int(np.searchsorted(self.clock, done, "right")) - 1
        count = len(self.writes)
        return all(self.writes[kernel % count] <= 0 for kernel in range(period.begin + 1, last))

    def _book_flash(self, period: Period) -> bool:
        reads, writes = self.reads.copy(), self.writes.copy()
        if not _book(period, self.reads, self.writes):
            return False
        for left, before, now in zip(self.link, (reads, writes), (self.reads, self.writes),
                                     strict=True):  # fmt: skip
            np.maximum(left - (before - now), 0, out=left)
        period.past_host = True
        return True


def _take(left: Numbers, kernels: range, need: float) -> dict[int, float] | None:
    """Returns the part of `need` that each kernel's time carries, in order; None if not all."""
    found: dict[int, float] = {}
    for kernel in kernels:
        amount = min(need, left[kernel % len(left)])
        if amount > 0:
            found[kernel] = amount
            need -= amount
        if need <= 0:
            return found
    return None


def _pull(period: Period, live: Numbers, limit: float) -> None:
    while period.comes > period.leaves:
        before = (period.comes - 1) % len(live)
        if live[before] + period.length_bytes > limit:
            return
        live[before] += period.length_bytes
        period.comes -= 1


class Carried:
    """Sends a schedule's transfers when the kernel's turn comes; faults move the rest.

    Evictions start after the previous use, prefetches with the kernel that their period names.
    """

    name: ClassVar[str] = "schedule"
    prefetches: ClassVar[bool] = True
    predicts: ClassVar[bool] = False

    def __init__(self, program: Program, iteration: Iteration, periods: Sequence[Period]):
        self._iteration = iteration
        self._firsts = program.ranges["first_block"].tolist()
        count = len(self._iteration.kernel_steps)
        self._turns: list[list[tuple[bool, Blocks]]] = [[] for _ in range(count)]
        self._past: list[list[int]] = [[] for _ in range(count)]
        self.past_host: list[int] = []
        """Blocks that go to flash when they leave, for the simulation."""
        for period in periods:
            blocks = self._blocks(period.span)
            self._turns[(period.begin + 1) % count].append((False, blocks))
            if period.past_host:
                self._past[(period.begin + 1) % count] += blocks.tolist()
            self._turns[period.comes % count].append((True, blocks))
        coming: list[list[int]] = [[] for _ in range(count)]
        for block, end in self._iteration.dead:
            coming[(end - AHEAD) % count].append(block)
        for turn, chosen in enumerate(coming):
            if chosen:
                self._turns[turn].append((True, np.array(sorted(chosen), np.int64)))
        self._seen = -1
        self._waiting: dict[bool, deque[Blocks]] = {True: deque(), False: deque()}

    def _blocks(self, span: Span) -> Blocks:
        """Returns the blocks wholly inside the span: border blocks belong to others as well."""
        index, offset, length = span
        first, end = -(-offset // BLOCK_BYTES), -(-(offset + length) // BLOCK_BYTES)
        if (offset + length) % BLOCK_BYTES and offset:
            end -= 1
        return np.arange(self._firsts[index] + first, self._firsts[index] + end)

    def at(self, _issued: int, run: int, _model: ClientModel) -> None:
        """Queues the transfers that have become due; all steps before `run` have run."""
        inside = run - self._iteration.first_step
        if inside < 0:
            return
        round_, place = divmod(inside, self._iteration.steps)
        kernel = int(np.searchsorted(self._iteration.kernel_steps, place))
        count = len(self._turns)
        now = round_ * count + min(kernel, count - 1)
        self.past_host = []
        for turn in range(self._seen + 1, now + 1):
            self.past_host += self._past[turn % count]
            for to_gpu, blocks in self._turns[turn % count]:
                self._waiting[to_gpu].append(blocks)
        self._seen = max(self._seen, now)

    def decide(self, view: View) -> Decision:
        """Returns the due transfers, as far as they may be sent. Free memory is managed by the
        schedule, and by the driver, which takes discarded memory first."""
        to_gpu = take(self._waiting[True], view.to_gpu_credit)
        return Decision(to_gpu, take(self._waiting[False], view.to_host_credit))


class Greedy(Carried):
    """Carries out G10's schedule."""

    name: ClassVar[str] = "g10"

    def __init__(
        self,
        program: Program,
        memory_bytes: int,
        in_gbps: float,
        out_gbps: float,
        flash: Flash | None = None,
    ):
        iteration = iteration_of(program)
        periods = schedule(iteration, memory_bytes, in_gbps, out_gbps, flash)
        super().__init__(program, iteration, periods)
