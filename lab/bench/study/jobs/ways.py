"""Ways of sharing a GPU between jobs, to be compared (world.Way). Pure.

Equal shares; the service's arbiter (pump/policy/arbiter.py), with the jobs' priorities or with one
for all, which is water filling; its turns (pump/policy/turns.py); turns of one job at a time, as
nvshare has them; shares that never change; TENSILE's choice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice, product
from typing import Final

from study.jobs.mixes import Mix
from study.jobs.world import Card, Seen, Shares

from pump.model.bounds import BLOCK_BYTES
from pump.policy.arbiter import Claim, arbitrate, less_spill
from pump.policy.turns import Ready, Turns

GPU: Final = "gpu"
QUANTA_S: Final = (5.0, 10.0, 30.0)
"""Of turns; nvshare's own is 30."""
SEEN_S: Final = 2.0
"""Pauses that are shorter are not seen: jobs report every two seconds whether they run."""
DUTY_LEAST: Final = 0.6
"""Of the looks at which a job runs, for it to take turns (daemon/pumpd/lease/job_usage.py)."""
DUTY_SHARE: Final = 0.025
"""Of a look, twice a second: 20 s."""
FACTORS: Final = (4.0, 2.0, 1.4)
"""By which the search for the best partition changes a job's share, in turn."""
EVALUATIONS: Final = 24
"""Of that search, at most."""


class Equal:
    """The same for each."""

    name = "equal"

    def look(self, _now: float, jobs: Sequence[Seen], card: Card) -> Shares:
        return by_weight(jobs, card, {one.number: 1.0 for one in jobs})


class Arbiter:
    """The service's arbiter, without turns. priorities: the jobs have theirs."""

    def __init__(self, *, priorities: bool = False) -> None:
        self.name = "priorities" if priorities else "water filling"
        self.priorities = priorities

    def look(self, _now: float, jobs: Sequence[Seen], card: Card) -> Shares:
        priorities = {one.number: one.job.priority for one in jobs if self.priorities}
        return Shares(arbitrated(jobs, card, priorities), yielding=below_another(priorities))


class InTurns:
    """What the service does with turns (pump/policy/turns.py). priorities: the jobs have theirs."""

    def __init__(self, *, priorities: bool = False) -> None:
        self.name = "turns, priorities" if priorities else "turns"
        self.priorities = priorities
        self.turns = Turns()
        self.ran_s: dict[int, float] = {}
        """When each job was last seen to run."""
        self.duty: dict[int, float] = {}
        """Recent part of the looks at which it ran, without long pauses."""

    def look(self, now: float, jobs: Sequence[Seen], card: Card) -> Shares:
        self.ran_s |= {one.number: now for one in jobs if one.runs or one.number not in self.ran_s}
        used = [one for one in jobs if now - self.ran_s[one.number] < SEEN_S]
        for one in used:
            duty = self.duty.setdefault(one.number, 1.0)
            self.duty[one.number] += DUTY_SHARE * (one.runs - duty)
        priorities = {one.number: one.job.priority * self.priorities for one in jobs}
        ready = [
            Ready(
                one.number,
                one.wanted_bytes,
                int(one.held_bytes),
                one.number,
                one.job.weight,
                priorities[one.number],
                self.duty[one.number] >= DUTY_LEAST,
            )
            for one in used
        ]
        running = self.turns.look(now, card.memory_bytes, ready)
        levels = {job: self.turns.level(own, job in running) for job, own in priorities.items()}
        engine = {one.job: float(one.job in running) for one in ready if self.turns.crowded}
        return Shares(arbitrated(jobs, card, levels), engine, below_another(priorities))


class Slices:
    """Turns of one job at a time, with as much memory as it takes. The others wait, and keep what
    it leaves, the next in turn first."""

    def __init__(self, quantum_s: float) -> None:
        self.name = f"slices of {quantum_s:g} s"
        self.quantum_s = quantum_s
        self.holder = -1
        self.until = 0.0

    def look(self, now: float, jobs: Sequence[Seen], card: Card) -> Shares:
        order = sorted(jobs, key=lambda one: (one.number <= self.holder, one.number))
        ready = [one.number for one in order if one.runs]
        if ready and (now >= self.until or self.holder not in ready):
            self.holder, self.until = ready[0], now + self.quantum_s
        order = sorted(jobs, key=lambda one: (one.number < self.holder, one.number))
        return Shares(
            in_order(order, card),
            {one.number: float(one.number == self.holder) for one in jobs},
        )


class Partition:
    """Shares by weights that do not change."""

    name = "partition"

    def __init__(self, weights: Sequence[float]) -> None:
        self.weights = weights

    def look(self, _now: float, jobs: Sequence[Seen], card: Card) -> Shares:
        return by_weight(jobs, card, {one.number: self.weights[one.number] for one in jobs})


class Tensile:
    """The largest tensor of the jobs' peaks is swapped, again and again, until the rest fits; what
    each has is its peak then. Peaks are taken to meet: jobs that wait for each other drift."""

    name = "tensile"

    def __init__(self) -> None:
        self.known: dict[object, Shares] = {}

    def look(self, _now: float, jobs: Sequence[Seen], card: Card) -> Shares:
        key = tuple((one.number, one.wanted_bytes) for one in jobs)
        if key not in self.known:
            self.known[key] = self._lowered(jobs, card)
        return self.known[key]

    def _lowered(self, jobs: Sequence[Seen], card: Card) -> Shares:
        peaks = {one.number: float(one.wanted_bytes) for one in jobs}
        most = card.memory_bytes - len(jobs) * BLOCK_BYTES
        coming = {one.number: iter(one.job.curve.lowering) for one in jobs}
        next_ = {one.number: next(coming[one.number], None) for one in jobs}
        while sum(peaks.values()) > most:
            open_ = [(step[0] * one.wanted_bytes, one.number, step[1] * one.wanted_bytes)
                     for one in jobs if (step := next_[one.number])]  # fmt: skip
            if not open_:  # no tensor is left: all have less
                return by_weight(jobs, card, peaks)
            _, number, peak = max(open_)
            peaks[number] = peak
            next_[number] = next(coming[number], None)
        return Shares({
            number: (1 + int(peak // BLOCK_BYTES)) * BLOCK_BYTES for number, peak in peaks.items()
        })  # fmt: skip


def arbitrated(jobs: Sequence[Seen], card: Card, priorities: Mapping[int, int]) -> dict[int, int]:
    """What the service's arbiter gives. priorities: by job; 0 for the others."""
    claims = [
        Claim(
            one.number,
            GPU,
            priorities.get(one.number, 0),
            one.wanted_bytes,
            one.use,
            one.job.weight,
        )
        for one in jobs
    ]
    left = less_spill({GPU: card.memory_bytes}, claims)
    return {job: share for (job, _), share in arbitrate(left, claims).items()}


def below_another(priorities: Mapping[int, int]) -> frozenset[int]:
    """The jobs below the greatest priority: they yield."""
    most = max(priorities.values(), default=0)
    return frozenset(job for job, priority in priorities.items() if priority < most)


def by_weight(jobs: Sequence[Seen], card: Card, weights: Mapping[int, float]) -> Shares:
    """Whole blocks by weight, one at least."""
    whole = sum(weights.values())
    blocks = card.memory_bytes // BLOCK_BYTES - len(jobs)
    return Shares({
        one.number: (1 + int(blocks * weights[one.number] / whole)) * BLOCK_BYTES for one in jobs
    })  # fmt: skip


def in_order(order: Sequence[Seen], card: Card) -> dict[int, int]:
    """Each as much as it takes, the first ones first."""
    left = card.memory_bytes
    found = {}
    for one in order:
        found[one.number] = min(one.wanted_bytes, left) // BLOCK_BYTES * BLOCK_BYTES
        left -= found[one.number]
    return found


def best_slices(mix: Mix) -> tuple[float, list[float]]:
    """The best quantum in hindsight, and what the jobs have by it."""
    found = {quantum: mix.progress(Slices(quantum)) for quantum in QUANTA_S}
    best = max(found, key=lambda quantum: mix.mean(found[quantum]))
    return best, found[best]


def best_partition(mix: Mix, least: Sequence[float] = ()) -> tuple[list[float], list[float]]:
    """The best weights that a search finds in hindsight, and what the jobs have by them. From equal
    shares, those by size and each job's whole it changes one at a time, EVALUATIONS in all.

    least: of progress by job, which has to be kept where it can be; then twice as many."""
    count = len(mix.jobs)
    starts = [[1.0] * count, [job.size for job in mix.jobs]]
    starts += [[1.0 if i == k else 0.05 for i in range(count)] for k in range(count)]

    def found_by(weights: list[float]) -> tuple[float, float, list[float], list[float]]:
        shares = mix.progress(Partition(weights))
        lacks = sum(max(0.0, low - one) for one, low in zip(shares, least, strict=False))
        return -lacks, mix.mean(shares), weights, shares

    best = max(map(found_by, starts))
    changes = product(FACTORS, range(count), (1, -1))
    evaluations = 2 * EVALUATIONS if least else EVALUATIONS
    for factor, i, sign in islice(changes, evaluations - len(starts)):
        weights = [one * factor**sign if k == i else one for k, one in enumerate(best[2])]
        best = max(best, found_by(weights))
    return best[2], best[3]
