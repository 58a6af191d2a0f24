"""Simulates several jobs on one GPU: what each gets of its memory, engine and link. Pure.

DESIGN
  A way of sharing (ways.py) polls the jobs twice a second, as `pumpd serve` does. It decides how
  much memory each job may have, and its weight on the engine. Memory is given by leases. The
  service's own pure code (pump/policy/leases.py) lowers grants at once, and raises them only from
  memory that no job holds. Between polls, rates are constant (rates.py), or change as memory moves.

  1. A job with less memory than its lease runs with that little, and arrivals stay.
  2. A job with more than its lease gives memory back, as fast as its share of the link allows.
  3. Memory that was never used arrives without a copy, in a job's first iteration at each size.

  Jobs arrive and leave at given times. They run without end, or pause after some work for a given
  or a random time (the same seed gives the same times). They grow at given times: bytes and kernel
  times.

  Not modelled: effects within an iteration (the memory rule, peaks against each other, kernels that
  wait for another job's long kernel), and other costs of a job's first iteration. Also not
  modelled: the time that workers learn, memory outside of leases, CPU time, two GPUs.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from study.jobs.curves import Curve
from study.jobs.rates import STILL, Flow, Link, Load, flows

from pump.model.bounds import BLOCK_BYTES
from pump.policy.leases import Lease, step

TICK_S: Final = 0.5
"""Interval of decisions on leases."""
USE_S: Final = 10.0
"""Time constant of a job's use, as jobs report it (daemon/pumpd/lease/job_usage.py)."""
USE_STEPS: Final = 8
MOVED_MOST: Final = 0.08
"""Most change of a job's memory at constant rates, as a share of its footprint."""
THERE: Final = 0.004
"""Share of the footprint: a job's memory that is closer to its lease has arrived."""
ROUNDS: Final = 2
"""Rounds of grants at one time, as in the service's registry."""


@dataclass(frozen=True)
class Job:
    """A job's behaviour. `size`: footprint / the GPU's memory. `compute`: its kernel time for a
    byte / the curve's. `work`: iterations between pauses. `drawn`: work and pauses are means of
    random lengths. `grows`: times when the job becomes a multiple of its first size."""

    curve: Curve
    size: float
    compute: float = 1.0
    priority: int = 0
    weight: float = 1.0
    arrives_s: float = 0.0
    leaves_s: float = math.inf
    work: float = math.inf
    pause_s: float = 0.0
    drawn: bool = False
    grows: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True)
class Card:
    """The GPU: bytes that jobs share, and its link."""

    memory_bytes: int
    link: Link


class Seen(NamedTuple):
    """A way of sharing's view of a job: the job's reports and its curve.

    `use`: recent share of the time in which it ran. `runs`: it has something to run now.
    `held_bytes`: its memory.
    """

    number: int
    job: Job
    wanted_bytes: int
    use: float
    runs: bool
    held_bytes: float


@dataclass(frozen=True)
class Shares:
    """`targets`: bytes by job, together at most the memory. `engine`: weights, 1 for other jobs; 0:
    the job waits for its turn. `yielding`: jobs that leave the engine to others while they wait for
    memory."""

    targets: Mapping[int, int]
    engine: Mapping[int, float] = field(default_factory=dict)
    yielding: frozenset[int] = frozenset()


class Way(Protocol):
    """A way of sharing. It may keep state between polls."""

    name: str

    def look(self, now: float, jobs: Sequence[Seen], card: Card) -> Shares:
        """Returns the shares of the jobs from `now`."""


@dataclass
class Account:
    """A job's totals. `work_s`: seconds of its kernels that ran."""

    iterations: float = 0.0
    work_s: float = 0.0


class Running:
    """A job that has arrived."""

    def __init__(self, number: int, job: Job, seed: int, memory_bytes: int) -> None:
        self.number, self.job = number, job
        self.random = random.Random(1000 * seed + number)
        self.memory_bytes = memory_bytes
        self.account = Account()
        self.scale = 1.0
        self.resident = 0.0
        self.fresh = self.footprint
        """Bytes that no iteration has used yet."""
        self.fresh_left = 1.0
        """Iterations until all of these bytes have been used."""
        self.granted: int | None = None
        self.left = self.length(job.work)
        self.paused_until = -1.0
        self.use, self.looked_s = 1.0, job.arrives_s

    @property
    def footprint(self) -> float:
        blocks = max(1, round(self.job.size * self.scale * self.memory_bytes / BLOCK_BYTES))
        return float(blocks * BLOCK_BYTES)

    @property
    def seconds(self) -> float:
        """Returns the kernel time of an iteration."""
        curve = self.job.curve
        return curve.seconds * self.job.compute * self.footprint / curve.footprint_bytes

    @property
    def room(self) -> float:
        """Returns the bytes that the job may fill."""
        return min(self.footprint, float(self.granted or 0))

    def length(self, mean: float) -> float:
        return self.random.expovariate(1 / mean) if self.job.drawn and mean < math.inf else mean

    def runs(self, now: float) -> bool:
        return self.paused_until <= now

    def look(self, now: float) -> None:
        """Updates its use for the time since the last poll, in which it ran or did not run."""
        share = 1 - math.exp(-(now - self.looked_s) / USE_S)
        self.use += share * ((self.paused_until < now) - self.use)
        self.looked_s = now

    def grow(self, factor: float) -> None:
        before, self.scale = self.footprint, factor
        self.fresh = max(0.0, self.footprint - before)
        self.fresh_left = 1.0
        self.resident = min(self.resident, self.footprint)

    def seen(self, now: float) -> Seen:
        return Seen(
            self.number,
            self.job,
            int(self.footprint),
            round(self.use * USE_STEPS) / USE_STEPS,
            self.runs(now),
            self.resident,
        )


class World:
    """Jobs on a GPU. It can run once. `first`: number of the first job."""

    def __init__(
        self, jobs: Sequence[Job], card: Card, way: Way, seed: int = 0, first: int = 0
    ) -> None:
        self.card, self.way = card, way
        memory = card.memory_bytes
        self.waiting = [Running(i, job, seed, memory) for i, job in enumerate(jobs, first)]
        self.accounts = [one.account for one in self.waiting]
        self.here: list[Running] = []
        self.shares = Shares({})
        self._known: dict[tuple[object, ...], list[Flow]] = {}
        self._before: dict[int, float] = {}
        """Iterations a second of each job, when it last ran."""

    def run(self, horizon_s: float) -> list[Account]:
        """Runs until `horizon_s`; returns the totals of each job."""
        now, tick = 0.0, 0
        while now < horizon_s:
            self._come_and_go(now)
            if now >= tick * TICK_S:
                self._decide(now)
                tick = int(now / TICK_S + 1e-6) + 1
            self._use_fresh()
            found = self._flows(now)
            span = min(self._span(now, found), tick * TICK_S - now, horizon_s - now)
            self._move(now, found, span)
            now += span
        return self.accounts

    # ---- arrivals, departures and growth ----

    def _come_and_go(self, now: float) -> None:
        self.here = [one for one in self.here if one.job.leaves_s > now]
        self.here += [one for one in self.waiting if one.job.arrives_s <= now < one.job.leaves_s]
        self.waiting = [one for one in self.waiting if one.job.arrives_s > now]
        for one in self.here:
            for at, factor in one.job.grows:
                if at <= now and factor > one.scale:
                    one.grow(factor)

    def _next_change(self, now: float) -> float:
        times = [one.job.arrives_s for one in self.waiting]
        for one in self.here:
            times += [one.job.leaves_s, one.paused_until]
            times += [at for at, _ in one.job.grows]
        return min((time for time in times if time > now), default=math.inf)

    # ---- leases ----

    def _decide(self, now: float) -> None:
        memory = self.card.memory_bytes
        for one in self.here:
            one.look(now)
        self.shares = self.way.look(now, [one.seen(now) for one in self.here], self.card)
        targets = self.shares.targets
        assert sum(targets.values()) <= memory, f"{self.way.name} gives more than there is"
        for _ in range(ROUNDS):
            held = sum(self._lease(one).held_bytes for one in self.here)
            leases = {one.number: self._lease(one, max(0, memory - held)) for one in self.here}
            grants = step(memory, targets, leases)
            for one in self.here:
                one.granted = grants.get(one.number, one.granted)

    def _lease(self, one: Running, free: int = 0) -> Lease:
        """Returns a job's lease. A newcomer has adopted the memory that it found free."""
        if one.granted is None:
            return Lease(None, 0, min(free, int(one.footprint)), 0)
        adopted = one.granted if one.resident <= one.granted else int(one.resident)
        return Lease(one.granted, one.granted, adopted, int(one.resident))

    # ---- movement of memory ----

    def _use_fresh(self) -> None:
        for one in self.here:
            free = min(one.fresh, max(0.0, one.room - one.resident))
            one.resident += free
            one.fresh -= free

    def _flows(self, now: float) -> list[Flow]:
        loads = []
        for one in self.here:
            near = THERE * one.footprint
            engine = self.shares.engine.get(one.number, 1.0) if one.runs(now) else 0.0
            loads.append(Load(
                one.job.curve,
                one.seconds,
                one.footprint,
                round(min(one.resident, one.footprint) / one.footprint, 3),
                one.job.compute,
                engine,
                one.resident < one.room - near,
                one.resident > float(one.granted or 0) + near,
                one.number in self.shares.yielding,
            ))  # fmt: skip
        key = tuple((one.number, *load[1:]) for one, load in zip(self.here, loads, strict=True))
        if key not in self._known:
            before = [self._before.get(one.number, 0.0) for one in self.here]
            self._known[key] = flows(loads, self.card.link, before) if loads else []
        found = self._known[key]
        rates = zip(self.here, found, strict=True)
        self._before |= {one.number: flow.iterations for one, flow in rates if flow.iterations}
        return found

    def _span(self, now: float, found: Sequence[Flow]) -> float:
        """Returns how long these rates stay valid."""
        span = self._next_change(now) - now
        for one, flow in zip(self.here, found, strict=True):
            if flow.iterations and one.left < math.inf:
                span = min(span, one.left / flow.iterations)
            near, part = THERE * one.footprint, MOVED_MOST * one.footprint
            if one.resident > float(one.granted or 0) + near and flow.back:
                span = min(span, min(part, one.resident - float(one.granted or 0)) / flow.back)
            elif one.resident < one.room - near and flow.come:
                span = min(span, min(part, one.room - one.resident) / flow.come)
        return max(span, 1e-4)

    def _move(self, now: float, found: Sequence[Flow], span: float) -> None:
        for one, flow in zip(self.here, found, strict=True):
            near = THERE * one.footprint
            if one.resident > float(one.granted or 0) + near:
                one.resident = max(float(one.granted or 0), one.resident - span * flow.back)
            elif one.resident < one.room - near:
                one.resident = min(one.room, one.resident + span * flow.come)
            if flow is STILL or not flow.iterations:
                continue
            done = span * flow.iterations
            one.account.work_s += done * one.seconds
            one.account.iterations += done
            one.fresh_left -= done
            if one.fresh_left <= 0:
                one.fresh = 0.0
            one.left -= done
            if one.left < 1e-6:
                one.look(now + span)
                one.paused_until = now + span + one.length(one.job.pause_s)
                one.left = one.length(one.job.work)


class Whole:
    """For a job without others: it gets what it wants."""

    name = "alone"

    def look(self, _now: float, jobs: Sequence[Seen], card: Card) -> Shares:
        """Divides all memory equally."""
        return Shares({one.number: card.memory_bytes // len(jobs) for one in jobs})


def alone(job: Job, number: int, card: Card, horizon_s: float, seed: int = 0) -> Account:
    """Returns the totals of the job without others, with the same pauses."""
    return World([job], card, Whole(), seed, number).run(horizon_s)[0]
