"""Ways of sharing a GPU between jobs, for comparison (world.Way). Pure.

Equal shares; the service's arbiter (pump/policy/arbiter.py), with the jobs' priorities or with one
for all, which is water filling; the service's turns (pump/policy/turns.py). Also turns of one job
at a time, as in nvshare; shares that never change; TENSILE's choice.
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
"""Lengths of turns; nvshare uses 30."""
SEEN_S: Final = 2.0
"""Shorter pauses are not seen: jobs report every two seconds whether they run."""
DUTY_LEAST: Final = 0.6
"""A job takes turns if it runs in this share of polls or more (daemon/pumpd/lease/job_usage.py)."""
DUTY_SHARE: Final = 0.025
"""Weight of a poll, twice a second: a time constant of 20 s."""
FACTORS: Final = (4.0, 2.0, 1.4)
"""Factors for changes of a job's share in the search for the best partition, in turn."""
EVALUATIONS: Final = 24
"""Most evaluations of that search."""


class Equal:
    """The same share for each job."""

    name = "equal"

    def look(self, _now: float, jobs: Sequence[Seen], card: Card) -> Shares:
        return by_weight(jobs, card, {one.number: 1.0 for one in jobs})


class Arbiter:
    """The service's arbiter, without turns. `priorities`: the jobs have priorities."""

    def __init__(self, *, priorities: bool = False) -> None:
        self.name = "priorities" if priorities else "water filling"
        self.priorities = priorities

    def look(self, _now: float, jobs: Sequence[Seen], card: Card) -> Shares:
        priorities = {one.number: one.job.priority for one in jobs if self.priorities}
        return Shares(arbitrated(jobs, card, priorities), yielding=below_another(priorities))


class InTurns:
    """The service's turns (pump/policy/turns.py). `priorities`: the jobs have priorities."""

    def __init__(self, *, priorities: bool = False) -> None:
        self.name = "turns, priorities" if priorities else "turns"
        self.priorities = priorities
        self.turns = Turns()
        self.ran_s: dict[int, float] = {}
        """Time when each job was last seen to run."""
        self.duty: dict[int, float] = {}
        """Recent share of the polls in which each job ran, without long pauses."""

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
        running = self.turns.update(now, card.memory_bytes, ready)
        levels = {job: self.turns.level(own, job in running) for job, own in priorities.items()}
        engine = {one.job: float(one.job in running) for one in ready if self.turns.crowded}
        return Shares(arbitrated(jobs, card, levels), engine, below_another(priorities))


class Slices:
    """Turns of one job at a time, with as much memory as it takes. The others wait and keep the
    rest, the next in turn first."""

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
    """The largest tensor of the jobs' peaks is swapped, again and again, until the rest fits; each
    job gets its remaining peak. Peaks are assumed to coincide: jobs that wait for each other drift.
    """

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
            if not open_:  # no tensor is left: all get less
                return by_weight(jobs, card, peaks)
            _, number, peak = max(open_)
            peaks[number] = peak
            next_[number] = next(coming[number], None)
        return Shares({
            number: (1 + int(peak // BLOCK_BYTES)) * BLOCK_BYTES for number, peak in peaks.items()
        })  # fmt: skip


def arbitrated(jobs: Sequence[Seen], card: Card, priorities: Mapping[int, int]) -> dict[int, int]:
    """Returns the shares of the service's arbiter. `priorities`: by job; 0 for the others."""
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
    """Returns the jobs below the highest priority, which yield."""
    most = max(priorities.values(), default=0)
    return frozenset(job for job, priority in priorities.items() if priority < most)


def by_weight(jobs: Sequence[Seen], card: Card, weights: Mapping[int, float]) -> Shares:
    """Returns shares in whole blocks by weight, at least one block each."""
    whole = sum(weights.values())
    blocks = card.memory_bytes // BLOCK_BYTES - len(jobs)
    return Shares({
        one.number: (1 + int(blocks * weights[one.number] / whole)) * BLOCK_BYTES for one in jobs
    })  # fmt: skip


def in_order(order: Sequence[Seen], card: Card) -> dict[int, int]:
    """Returns shares: each job gets as much as it takes, in this order."""
    left = card.memory_bytes
    found = {}
    for one in order:
        found[one.number] = min(one.wanted_bytes, left) // BLOCK_BYTES * BLOCK_BYTES
        left -= found[one.number]
    return found


def best_slices(mix: Mix) -> tuple[float, list[float]]:
    """Returns the best quantum in hindsight, and the jobs' progress with it."""
    found = {quantum: mix.progress(Slices(quantum)) for quantum in QUANTA_S}
    best = max(found, key=lambda quantum: mix.mean(found[quantum]))
    return best, found[best]


def best_partition(mix: Mix, least: Sequence[float] = ()) -> tuple[list[float], list[float]]:
    """Returns the best weights that a search finds in hindsight, and the jobs' progress with them.

    The search starts from equal shares, from shares by size and from each job's whole. It changes
    one share at a time, EVALUATIONS in all. `least`: progress by job that must be kept if possible;
    then there are twice as many evaluations.
    """
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
