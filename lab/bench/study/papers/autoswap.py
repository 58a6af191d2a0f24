"""AutoSwap's choice of tensors to swap: its candidates, its four scores, and their search. Pure.

After Zhang et al., "Efficient Memory Management for GPU-based Deep Learning Systems" (2019).
Candidates are tensors' idle times that contain the kernel with the highest load. For a limit of the
load, they are taken in the order of a score until no kernel's load is above the limit.

  `doa`    Duration of absence: the idle time less the times of both transfers.
  `aoa`    Area of absence: doa times bytes; for a negative doa, doa / bytes.
  `wdoa`   Weighted: the integral of the load above the limit over the idle time.
  `swdoa`  Submodular: the same for the remaining load after each choice.

The search mixes their ranks by weights. The original draws weights by Bayesian optimisation. Here
the first weights select one score each, and the others are random, from a seed.

A transfer to the host begins after the use, in the order of uses. A transfer to the GPU is planned
backwards, as late as the link allows. It begins at the planned kernel, if memory is free for it
until its use. Kernels wait for their tensors and for memory. Each direction has the link's full
rate: the original's assumption, which the simulator does not grant to pump.

TENSILE's choice for one job is also here (`largest_first`): it has the same transfers.
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
"""Limits of the load are multiples of this share of the peak."""

ROUNDS: Final = 4
MEASURED: Final = 2
"""Number of replayed iterations, and index of the measured one."""
SLACK_BYTES: Final = 1.0
"""Tolerance for sums of floats."""

Choose = Callable[[float], "list[int] | None"]
"""Returns candidates for a limit of the load, in bytes; None if they do not suffice."""


@dataclass(frozen=True)
class Job:
    """One iteration, which repeats. `seconds`, `live_bytes`: by kernel, with all tensors in memory.
    `begins`, `ends`, `sizes`: for each idle time, the kernels that use its tensor before and after,
    and its bytes. Kernels of the next iteration are counted on. Rates are in 10^9 bytes a second.
    """

    seconds: Numbers
    live_bytes: Numbers
    begins: NDArray[np.int64]
    ends: NDArray[np.int64]
    sizes: Numbers
    in_gbps: float
    out_gbps: float

    @property
    def clock(self) -> Numbers:
        """Returns when each kernel of two iterations begins, if none waits."""
        return prefix_sums(self.seconds)

    def inside(self, kernel: int) -> NDArray[np.bool_]:
        """Returns which idle times contain the kernel, of this iteration or the next."""
        found = (self.begins < kernel) & (kernel < self.ends)
        later = kernel + len(self.seconds)
        return found | ((self.begins < later) & (later < self.ends))

    def straddling_places(self) -> NDArray[np.int64]:
        """Returns the places of the idle times that contain the kernel with the highest load."""
        return np.flatnonzero(self.inside(int(self.live_bytes.argmax())))

    def straddling(self) -> Job:
        """Returns the job with only these idle times: AutoSwap's candidates."""
        return self.only(self.straddling_places())

    def only(self, chosen: NDArray[np.int64]) -> Job:
        """Returns the job with only the chosen idle times."""
        picked = self.begins[chosen], self.ends[chosen], self.sizes[chosen]
        return Job(self.seconds, self.live_bytes, *picked, self.in_gbps, self.out_gbps)

    def without(self, chosen: Sequence[int]) -> Numbers:
        """Returns the load while the chosen tensors are away for all of their idle times."""
        live = self.live_bytes.copy()
        for one in chosen:
            add(live, self.begins[one] + 1, self.ends[one], -self.sizes[one])
        return live


def job_of(iteration: Iteration, in_gbps: float, out_gbps: float) -> Job:
    """Returns the job of an iteration, with all its idle times."""
    periods = iteration.periods
    begins, ends = (
        np.array([getattr(one, name) for one in periods], np.int64) for name in ("begin", "end")
    )
    sizes = np.array([one.length_bytes for one in periods], np.float64)
    return Job(iteration.seconds, iteration.live_bytes, begins, ends, sizes, in_gbps, out_gbps)


def scores(job: Job, limit: float, left: Numbers | None = None) -> dict[str, Numbers]:
    """Returns the scores of each candidate, by name. `left`: the load after earlier choices, for
    swdoa. Units are seconds for doa and byte seconds for the others (aoa: if positive)."""
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
    """Takes candidates in the order of the weighted sum of their ranks by SCORES, until the load is
    at most `limit`. Returns None if they do not suffice."""
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
    """Returns TENSILE's choice: the idle times of `by_largest` until the load is at most `limit`,
    or None if they do not suffice."""
    if job.live_bytes.max() <= limit:
        return []
    taken = []
    for one, left in by_largest(job):
        taken.append(one)
        if left.max() <= limit:
            return taken
    return None


def by_largest(job: Job, usable: NDArray[np.bool_] | None = None) -> Iterator[tuple[int, Numbers]]:
    """Yields idle times that contain the kernel with the highest remaining load, each with the load
    that it leaves. The largest tensor comes first, among equals the longest time. `usable`: only
    these idle times."""
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
    """Returns the weighted sum of ranks by the first scores."""
    found = np.zeros(len(values["doa"]))
    for name, weight in zip(SCORES, weights, strict=False):
        if weight:
            found += weight * _rank(values[name])
    return found


def _rank(values: Numbers) -> Numbers:
    """Returns ranks from 0 for the least to 1 for the most; equal values have equal ranks."""
    _, places = np.unique(values, return_inverse=True)
    return np.asarray(places, np.float64) / max(1, places.max(initial=0))


# ---- the cost of a choice ----------------------------------------------------------------


def arrivals(job: Job, chosen: Sequence[int]) -> list[int]:
    """Returns, by choice, the kernel with which its transfer to the GPU begins. It is planned
    backwards on a clock without waits, as late as all later transfers allow."""
    count, clock = len(job.seconds), job.clock
    whole = clock[count]
    begin_of: dict[int, float] = {}
    free = np.inf
    # Two iterations: late transfers of one compete with early transfers of the next.
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
    """Returns the time of a steady iteration with these transfers / without any, less 1. The load
    is never above `limit`. Returns infinity if the transfers wait for each other."""
    ends = _Replay(job, chosen, limit).run()
    if ends is None:
        return float("inf")
    whole = float(job.seconds.sum())
    return (ends[MEASURED] - ends[MEASURED - 1]) / whole - 1


class _Replay:
    """Replays kernels and transfers of ROUNDS iterations in the order of time."""

    def __init__(self, job: Job, chosen: Sequence[int], limit: float) -> None:
        self.count, self.limit = len(job.seconds), limit + SLACK_BYTES
        self.seconds = job.seconds.tolist()
        self.loads = np.tile(job.without(chosen), ROUNDS + 1)
        """Load by kernel of all iterations, with the chosen tensors away."""
        self.sizes = job.sizes[list(chosen)].tolist()
        self.out_s = [size / (job.out_gbps * 1e9) for size in self.sizes]
        self.in_s = [size / (job.in_gbps * 1e9) for size in self.sizes]
        self.behind: dict[int, list[int]] = {}
        """Places in `chosen` that leave after a kernel, by kernel of one iteration."""
        self.needed: dict[int, list[int]] = {}
        """Places in `chosen` that a kernel waits for, by kernel of all iterations."""
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
        """Place, and the kernel after which it leaves."""
        self.gone: set[tuple[int, int]] = set()
        self.held = 0.0
        """Bytes of chosen tensors that are in memory although no kernel uses them."""
        self.early: dict[tuple[int, int], float] = {}
        """Bytes of chosen tensors that are back or in flight, by (next kernel, place)."""
        self.there: set[tuple[int, int]] = set()
        self.out: tuple[float, int, int] | None = None
        self.come: tuple[float, int, int] | None = None
        """End, kernel and place of the transfer in flight, for each direction."""

    def run(self) -> list[float] | None:
        """Returns when each iteration ended; None if nothing can proceed."""
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
        """Begins a kernel: from here, its load includes the tensors that it waited for."""
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
        """Returns whether `size` more bytes fit now, and in all kernels until their use."""
        now = self.loads[kernel] + self.held
        if not running:  # the kernel's load includes the tensors that it waits for
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
    """Searches for the least limit of the load, in shares of the peak, with transfers that cost no
    more than `most` of the time. Counts its evaluations."""

    job: Job
    most: float = OVERHEAD_MOST
    step: float = STEP
    evaluations: int = 0

    def holds(self, share: float, choice: Choose) -> bool:
        """Returns whether the choice for this limit costs no more than allowed."""
        self.evaluations += 1
        limit = float(self.job.live_bytes.max()) * share
        chosen = choice(limit)
        return chosen is not None and overhead(self.job, chosen, limit) <= self.most

    def least(self, choice: Choose) -> float:
        """Returns the least share by bisection, assuming that more memory is never worse."""
        return bisected(lambda share: self.holds(share, choice), self.step)

    def by_weights(self, evaluations: int = EVALUATIONS, seed: int = SEED) -> dict[str, float]:
        """Returns the least share for each score and for the search. The search also tries weights
        drawn from the seed, with `evaluations` in all."""
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
        """Returns the choice by these weights of the scores."""
        return lambda limit: choose(self.job, limit, weights)


def chosen(
    job: Job, limit: float, score: str, evaluations: int = EVALUATIONS, seed: int = SEED
) -> list[int]:
    """Returns candidates for a limit, by one score. SEARCH takes the cheapest candidates of the
    four scores and of weights drawn from the seed. If none suffice, all candidates are returned."""
    pure = np.eye(len(SCORES)).tolist()
    if score != SEARCH:
        found = choose(job, limit, pure[SCORES.index(score)])
        return list(range(len(job.sizes))) if found is None else found
    random = np.random.default_rng(seed)
    drawn = random.dirichlet(np.ones(len(SCORES)), max(0, evaluations - len(pure))).tolist()
    best, least = list(range(len(job.sizes))), float("inf")
    for weights in (*pure, *drawn):
        found = choose(job, limit, weights)
        if found is None:  # other weights fail, too: all candidates together do not suffice
            break
        cost = overhead(job, found, limit)
        if cost < least:
            best, least = found, cost
    return best


def bisected(holds: Callable[[float], bool], step: float = STEP) -> float:
    """Returns the least share for which `holds`, in whole steps up to 1. Assumes that it holds for
    all shares above, and for 1 without a check."""
    fails, least = 0, round(1 / step)
    while least - fails > 1:
        middle = (least + fails) // 2
        if holds(middle * step):
            least = middle
        else:
            fails = middle
    return least * step
