"""AutoSwap's choice of what to swap: its candidates, its four scores, and their search. Pure.

After Zhang et al., "Efficient Memory Management for GPU-based Deep Learning Systems" (2019).
Candidates are the idle times of tensors that straddle the kernel with the highest load. For a limit
of the load they go in the order of a score until no kernel's load is above the limit:

  doa    duration of absence: the idle time less the times of both transfers
  aoa    area of absence: doa times bytes; where doa is negative, doa over bytes
  wdoa   weighted: the integral of the load above the limit over the idle time
  swdoa  submodular: the same of the load that is left after each choice

The search mixes their ranks by weights. The original draws weights by Bayesian optimisation; here
they are the four scores alone, then random ones from a seed.

A transfer to the host begins behind the use, in the order of uses. One to the GPU is planned
backwards, as late as the link lets it, and begins at that kernel once there is room for it up to
its use. Kernels wait for their tensors, and for room. Each direction has the link's full rate: the
original's assumption, kinder to it than the simulator is to pump.

TENSILE's choice for one job is here as well (`largest_first`): it has the same transfers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from study.greedy import Iteration, Numbers, add, prefix_sums

SCORES: Final = ("doa", "aoa", "wdoa", "swdoa")
SEARCH: Final = "search"
EVALUATIONS: Final = 200
SEED: Final = 1
OVERHEAD_MOST: Final = 0.01
STEP: Final = 0.01
"""Of the peak: limits of the load are multiples of it."""

ROUNDS: Final = 4
MEASURED: Final = 2
"""Iterations that are replayed, and the one that counts."""
SLACK_BYTES: Final = 1.0
"""For sums of floats."""

Choose = Callable[[float], "list[int] | None"]
"""Candidates for a limit of the load, in bytes; None where they do not get below it."""


@dataclass(frozen=True)
class Job:
    """One iteration, which repeats. seconds, live_bytes: by kernel, with all tensors in memory.
    begins, ends, sizes: of each idle time the kernels that use its tensor before and behind (of
    the next iteration: counted on), and bytes. Rates in 10^9 bytes a second."""

    seconds: Numbers
    live_bytes: Numbers
    begins: NDArray[np.int64]
    ends: NDArray[np.int64]
    sizes: Numbers
    in_gbps: float
    out_gbps: float

    @property
    def clock(self) -> Numbers:
        """When each kernel of two iterations begins, if none waits."""
        return prefix_sums(self.seconds)

    def inside(self, kernel: int) -> NDArray[np.bool_]:
        """Which idle times contain the kernel, of this iteration or the next."""
        found = (self.begins < kernel) & (kernel < self.ends)
        later = kernel + len(self.seconds)
        return found | ((self.begins < later) & (later < self.ends))

    def straddling_places(self) -> NDArray[np.int64]:
        """Of the idle times that contain the kernel with the highest load."""
        return np.flatnonzero(self.inside(int(self.live_bytes.argmax())))

    def straddling(self) -> Job:
        """The job with these alone: AutoSwap's candidates."""
        return self.only(self.straddling_places())

    def only(self, chosen: NDArray[np.int64]) -> Job:
        """The job with these idle times alone."""
        picked = self.begins[chosen], self.ends[chosen], self.sizes[chosen]
        return Job(self.seconds, self.live_bytes, *picked, self.in_gbps, self.out_gbps)

    def without(self, chosen: Sequence[int]) -> Numbers:
        """The load while these are away for all of their idle times."""
        live = self.live_bytes.copy()
        for one in chosen:
            add(live, self.begins[one] + 1, self.ends[one], -self.sizes[one])
        return live


def job_of(iteration: Iteration, in_gbps: float, out_gbps: float) -> Job:
    """The job of an iteration with all its idle times."""
    periods = iteration.periods
    begins, ends = (
        np.array([getattr(one, name) for one in periods], np.int64) for name in ("begin", "end")
    )
    sizes = np.array([one.length_bytes for one in periods], np.float64)
    return Job(iteration.seconds, iteration.live_bytes, begins, ends, sizes, in_gbps, out_gbps)


def scores(job: Job, limit: float, left: Numbers | None = None) -> dict[str, Numbers]:
    """Of each candidate, by name. left: the load after earlier choices, for swdoa. In seconds, byte
    seconds where positive (aoa), and byte seconds."""
    clock = job.clock
    transfers = job.sizes / (job.in_gbps * 1e9) + job.sizes / (job.out_gbps * 1e9)
    doa = clock[job.ends] - clock[job.begins + 1] - transfers
    return {
        "doa": doa,
        "aoa": np.where(doa > 0, doa * job.sizes, doa / job.sizes),
        "wdoa": _above(job, limit, job.live_bytes),
        "swdoa": _above(job, limit, job.live_bytes if left is None else left),
    }


def _above(job: Job, limit: float, load: Numbers) -> Numbers:
    area = prefix_sums(np.maximum(load - limit, 0) * job.seconds)
    found: Numbers = area[job.ends] - area[job.begins + 1]
    return found


def choose(job: Job, limit: float, weights: Sequence[float]) -> list[int] | None:
    """Candidates in the order of the weighted sum of their ranks by SCORES, until the load is at
    most `limit`; None where they do not suffice."""
    live = job.live_bytes.copy()
    usable = np.ones(len(job.sizes), np.bool_)
    taken: list[int] = []
    fixed = _mixed(scores(job, limit), weights[:-1])
    while (live > limit).any():
        if not usable.any():
            return None
        value = fixed
        if weights[-1]:
            value = fixed + weights[-1] * _rank(_above(job, limit, live))
        best = value[usable].max()
        ties = np.flatnonzero(usable & (value >= best))
        one = int(ties[np.argmax(job.sizes[ties])])
        usable[one] = False
        taken.append(one)
        add(live, job.begins[one] + 1, job.ends[one], -job.sizes[one])
    return taken


def largest_first(job: Job, limit: float) -> list[int] | None:
    """TENSILE's choice: what `by_largest` chooses until the load is at most `limit`. None where
    that does not suffice."""
    if job.live_bytes.max() <= limit:
        return []
    taken = []
    for one, left in by_largest(job):
        taken.append(one)
        if left.max() <= limit:
            return taken
    return None


def by_largest(job: Job, usable: NDArray[np.bool_] | None = None) -> Iterator[tuple[int, Numbers]]:
    """Of the idle times that contain the kernel with the highest load that is left, the one of the
    largest tensor, the longest of equals; again as long as there is one. Each with the load that it
    leaves. usable: these alone."""
    live = job.live_bytes.copy()
    open_ = np.ones(len(job.sizes), np.bool_) if usable is None else usable.copy()
    spans = job.ends - job.begins
    while True:
        found = np.flatnonzero(job.inside(int(live.argmax())) & open_)
        if not len(found):
            return
        one = int(found[np.lexsort((spans[found], job.sizes[found]))[-1]])
        open_[one] = False
        add(live, job.begins[one] + 1, job.ends[one], -job.sizes[one])
        yield one, live


def _mixed(values: dict[str, Numbers], weights: Sequence[float]) -> Numbers:
    """The weighted sum of ranks by the first scores."""
    found = np.zeros(len(values["doa"]))
    for name, weight in zip(SCORES, weights, strict=False):
        if weight:
            found += weight * _rank(values[name])
    return found


def _rank(values: Numbers) -> Numbers:
    """0 for the least to 1 for the most; equals have the same."""
    _, places = np.unique(values, return_inverse=True)
    return np.asarray(places, np.float64) / max(1, places.max(initial=0))


# ---- what a choice costs -----------------------------------------------------------------


def arrivals(job: Job, chosen: Sequence[int]) -> list[int]:
    """By choice, the kernel with which its transfer to the GPU begins: planned backwards on a clock
    where no kernel waits, as late as all transfers behind it let it."""
    count, clock = len(job.seconds), job.clock
    whole = clock[count]
    begin_of: dict[int, float] = {}
    free = np.inf
    # Two iterations: what comes late in one is in the way of what comes early in the next.
    ends = [(int(job.ends[one]) % count, one) for one in chosen]
    for turn in (1, 0):
        for end, one in sorted(ends, reverse=True):
            needed = clock[end] + turn * whole
            free = min(free, needed) - job.sizes[one] / (job.in_gbps * 1e9)
            begin_of[one] = free - turn * whole
    found = []
    for one in chosen:
        begin = begin_of[one] + (whole if job.ends[one] >= count else 0.0)
        kernel = int(np.searchsorted(clock, begin, side="right")) - 1
        found.append(max(kernel, int(job.begins[one]) + 1))
    return found


def overhead(job: Job, chosen: Sequence[int], limit: float) -> float:
    """Time of a steady iteration with these transfers / without any, less 1. The load is never
    above `limit`. Infinite where the transfers wait for each other."""
    ends = _Replay(job, chosen, limit).run()
    if ends is None:
        return float("inf")
    whole = float(job.seconds.sum())
    return (ends[MEASURED] - ends[MEASURED - 1]) / whole - 1


class _Replay:
    """Kernels and transfers of ROUNDS iterations, in the order of time."""

    def __init__(self, job: Job, chosen: Sequence[int], limit: float) -> None:
        self.count, self.limit = len(job.seconds), limit + SLACK_BYTES
        self.seconds = job.seconds.tolist()
        self.loads = np.tile(job.without(chosen), ROUNDS + 1)
        """By kernel of all iterations, with what is chosen away."""
        self.sizes = job.sizes[list(chosen)].tolist()
        self.out_s = [size / (job.out_gbps * 1e9) for size in self.sizes]
        self.in_s = [size / (job.in_gbps * 1e9) for size in self.sizes]
        self.behind: dict[int, list[int]] = {}
        """By kernel of one iteration: places in `chosen` that leave behind it."""
        self.needed: dict[int, list[int]] = {}
        """By kernel of all iterations: places that it waits for."""
        coming = []
        comes = arrivals(job, chosen)
        for place, one in enumerate(chosen):
            begin, end = int(job.begins[one]), int(job.ends[one])
            self.behind.setdefault(begin, []).append(place)
            for shift in range(0, ROUNDS * self.count, self.count):
                self.needed.setdefault(end + shift, []).append(place)
                coming.append((end + shift, comes[place] + shift, begin + shift, place))
        self.coming = deque(sorted(coming))
        self.leaving: deque[tuple[int, int]] = deque()
        """Place, and the kernel behind which it leaves."""
        self.gone: set[tuple[int, int]] = set()
        self.held = 0.0
        """Bytes of what is chosen that are in memory although no kernel uses them."""
        self.early: dict[tuple[int, int], float] = {}
        """Of these, what is back or on its way: kernel that uses it and place; bytes."""
        self.there: set[tuple[int, int]] = set()
        self.out: tuple[float, int, int] | None = None
        self.come: tuple[float, int, int] | None = None
        """When the transfer under way ends, its kernel and its place."""

    def run(self) -> list[float] | None:
        """When each iteration ended; None where nothing can go on."""
        now, kernel, until = 0.0, 0, float("inf")
        running = False
        ends: list[float] = []
        while True:
            if not running and self._may_begin(kernel):
                self._begin(kernel)
                until, running = now + self.seconds[kernel % self.count], True
            self._send(now, kernel, running)
            times = [one[0] for one in (self.out, self.come) if one]
            now = min([*times, until] if running else times, default=float("inf"))
            if now == float("inf"):
                return None
            self._end(now)
            if running and until <= now:
                for place in self.behind.get(kernel % self.count, ()):
                    self.held += self.sizes[place]
                    self.leaving.append((place, kernel))
                kernel, running = kernel + 1, False
                if kernel % self.count == 0:
                    ends.append(now)
                if len(ends) == ROUNDS - 1:
                    return ends

    def _end(self, now: float) -> None:
        """Ends the transfers that end now."""
        if self.out and self.out[0] <= now:
            _, kernel, place = self.out
            self.held -= self.sizes[place]
            self.gone.add((kernel, place))
            self.out = None
        if self.come and self.come[0] <= now:
            self.there.add(self.come[1:])
            self.come = None

    def _may_begin(self, kernel: int) -> bool:
        own = [(kernel, place) for place in self.needed.get(kernel, ())]
        if any(one not in self.there for one in own):
            return False
        rest = self.held - sum(self.early[one] for one in own)
        return bool(self.loads[kernel] + rest <= self.limit)

    def _begin(self, kernel: int) -> None:
        """From here on the kernel's load counts what it waited for."""
        for place in self.needed.get(kernel, ()):
            self.held -= self.early.pop((kernel, place))

    def _send(self, now: float, kernel: int, running: bool) -> None:
        if self.out is None and self.leaving:
            place, begin = self.leaving.popleft()
            self.out = now + self.out_s[place], begin, place
        if self.come is None and self.coming:
            end, comes, begin, place = self.coming[0]
            size = self.sizes[place]
            if comes > kernel or (begin, place) not in self.gone:
                return
            if not self._room(kernel, end, size, running):
                return
            self.coming.popleft()
            self.held += size
            self.early[end, place] = size
            self.come = now + self.in_s[place], end, place

    def _room(self, kernel: int, end: int, size: float, running: bool) -> bool:
        """Whether so much more fits now, and in all kernels up to the one that uses it."""
        now = self.loads[kernel] + self.held
        if not running:  # the kernel's load counts what it waits for
            now -= sum(self.sizes[place] for place in self.needed.get(kernel, ()))
        if now + size > self.limit:
            return False
        first = kernel + running
        later = self.loads[first:end].copy()
        for (use, _), early in self.early.items():
            later[: max(0, use - first)] += early
        return bool(later.max(initial=0) + size <= self.limit)


# ---- the least memory ----------------------------------------------------------------------


@dataclass
class Search:
    """The least limit of the load, in shares of the peak, at which transfers cost no more than
    `most` of the time. Counts what it evaluates."""

    job: Job
    most: float = OVERHEAD_MOST
    step: float = STEP
    evaluations: int = 0

    def holds(self, share: float, choice: Choose) -> bool:
        """Whether the choice for this limit costs no more than allowed."""
        self.evaluations += 1
        limit = float(self.job.live_bytes.max()) * share
        chosen = choice(limit)
        return chosen is not None and overhead(self.job, chosen, limit) <= self.most

    def least(self, choice: Choose) -> float:
        """By bisection: as if what holds with less memory held with more."""
        return bisected(lambda share: self.holds(share, choice), self.step)

    def by_weights(self, evaluations: int = EVALUATIONS, seed: int = SEED) -> dict[str, float]:
        """By score, and `search`: the least of these and of what weights drawn from the seed
        reach, with so many evaluations in all."""
        random = np.random.default_rng(seed)
        found = {}
        for name, weights in zip(SCORES, np.eye(len(SCORES)).tolist(), strict=True):
            found[name] = self.least(self.mixed(weights))
        best = min(found.values())
        while self.evaluations < evaluations:
            choice = self.mixed(random.dirichlet(np.ones(len(SCORES))).tolist())
            while self.evaluations < evaluations and self.holds(best - self.step, choice):
                best -= self.step
        return {**found, SEARCH: best}

    def mixed(self, weights: Sequence[float]) -> Choose:
        """The choice by these weights of the scores."""
        return lambda limit: choose(self.job, limit, weights)


def chosen(
    job: Job, limit: float, score: str, evaluations: int = EVALUATIONS, seed: int = SEED
) -> list[int]:
    """Candidates for a limit, by one score; by SEARCH those that cost least of the four scores and
    of weights drawn from the seed. All candidates where none suffice."""
    pure = np.eye(len(SCORES)).tolist()
    if score != SEARCH:
        found = choose(job, limit, pure[SCORES.index(score)])
        return list(range(len(job.sizes))) if found is None else found
    random = np.random.default_rng(seed)
    drawn = random.dirichlet(np.ones(len(SCORES)), max(0, evaluations - len(pure))).tolist()
    best, least = list(range(len(job.sizes))), float("inf")
    for weights in (*pure, *drawn):
        found = choose(job, limit, weights)
        if found is None:  # nor would other weights do: all of them together do not suffice
            break
        cost = overhead(job, found, limit)
        if cost < least:
            best, least = found, cost
    return best


def bisected(holds: Callable[[float], bool], step: float = STEP) -> float:
    """The least share for which `holds`, in whole steps up to 1, as if it held for all above it; 1
    holds without a question."""
    fails, least = 0, round(1 / step)
    while least - fails > 1:
        middle = (least + fails) // 2
        if holds(middle * step):
            least = middle
        else:
            fails = middle
    return least * step
