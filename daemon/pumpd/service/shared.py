"""One GPU as its jobs share it: their sums, their leases, their turns. No I/O.

A report changes the sums of its job's user alone, and nothing here is looked through for it but one
entry for each user: so what one user's frame costs does not grow with the jobs of others. Leases
are decided for the GPU as a whole (`decide`), whenever the registry finds time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from pump.model.bounds import RESERVE_PERCENT
from pump.policy.arbiter import Claim, arbitrate, less_spill
from pump.policy.leases import GRAIN_SHARE, Lease, step
from pump.policy.turns import Ready, Turns
from pump.wire import service as wire
from pumpd.service.gpus import EARLIER, Gpu
from pumpd.service.jobs import Growth, Job
from pumpd.service.patience import Patience

ROUNDS = 2
"""A new job's first grant is what it has; the second round lets it grow at once."""


@dataclass
class Rules:
    """What holds on all GPUs. weights: of users, by number; 1 for others. reserve: of each GPU, is
    never granted. turns: whether jobs may have to take turns. settling: jobs with leases may not
    have registered again yet: no lease grows."""

    weights: Mapping[int, float] = field(default_factory=dict)
    reserve: str = f"{RESERVE_PERCENT}%"
    turns: bool = True
    settling: bool = False
    patience: Patience = field(default_factory=Patience)

    def weight(self, job: Job) -> float:
        """Return the weight of a job's user."""
        return self.weights.get(job.identity.owner, 1.0)


@dataclass
class Sums:
    """Of a user's jobs on a GPU, or one of them; bytes. resident: as reported, the card's at most.
    within: of these, within the newest grants. has: within all grants that may be in force. may:
    what they may have had beyond, as they grow."""

    jobs: int = 0
    resident: int = 0
    within: int = 0
    has: int = 0
    may: int = 0

    def add(self, other: Sums, sign: int = 1) -> None:
        """Count another one, or count it no more."""
        self.jobs += sign * other.jobs
        self.resident += sign * other.resident
        self.within += sign * other.within
        self.has += sign * other.has
        self.may += sign * other.may


class Shared:
    """One GPU, and the jobs that have reported to use it. first: user of the first of them."""

    def __init__(self, name: str, total_bytes: int, first: int) -> None:
        self.name = name
        self.memory = Gpu(total_bytes, first)
        self.jobs: dict[int, Job] = {}
        self.turns = Turns()
        self.held_bytes = 0
        """By the last decision, what jobs hold and no other job can be granted."""
        self._users: dict[int, Sums] = {}
        self._parts: dict[int, tuple[int, Sums]] = {}
        """By job, its user and its part of that user's sums."""
        self._may_hold: dict[int, int] = {}
        """By job, the most of its grants that may be in force."""

    # ---- reports ----

    def take(self, job: Job, rules: Rules, now: float) -> None:
        """Take a job's report, which is in its tables already."""
        entry = job.gpus[self.name]
        if job.number in self.jobs:
            job.growth[self.name] = job.growth[self.name].followed(entry.resident_bytes, now)
        else:
            self._found(job, entry, rules)
            job.growth[self.name] = Growth(now, entry.resident_bytes, entry.wanted_bytes)
            self.jobs[job.number] = job
        self.count(job)
        user = job.identity.owner
        self.memory.reported(user, self._resident(user, rules, now))

    def drop(self, job: Job) -> None:
        """The job uses the GPU no more."""
        del self.jobs[job.number]
        self.turns.forget(job.number)
        self._uncount(job)
        del self._may_hold[job.number]

    def count(self, job: Job) -> None:
        """Count a job by its last report, its grants and its user."""
        self._uncount(job)
        entry = job.gpus[self.name]
        lease = self._may_hold[job.number] = job.may_hold_bytes(self.name)
        has = min(entry.resident_bytes, lease)
        resident = min(entry.resident_bytes, self.memory.total_bytes)
        more = max(0, min(lease, entry.wanted_bytes) - has)
        part = Sums(
            1,
            resident,
            min(entry.resident_bytes, job.granted.get(self.name, 0)),
            has,
            min(2 * job.growth[self.name].bytes_, more),
        )
        user = job.identity.owner
        self._parts[job.number] = user, part
        self._users.setdefault(user, Sums()).add(part)

    def _uncount(self, job: Job) -> None:
        if job.number in self._parts:
            user, part = self._parts.pop(job.number)
            self._users[user].add(part, -1)
            if not self._users[user].jobs:
                del self._users[user]

    def _resident(self, user: int, rules: Rules, now: float) -> int:
        """Resident bytes of a user's jobs, bounded by what their leases let them hold."""
        sums = self._users[user]
        over = rules.patience.is_over(user, self.name, now)
        return sums.within if over else sums.resident

    def _found(self, job: Job, entry: wire.GpuReport, rules: Rules) -> None:
        """Takes over what a job found free at its start, plus what the other jobs had of their
        leases then. Jobs that grow may have had more than they have reported: where that makes
        the known figure possible, it stays."""
        least = entry.usable_bytes + sum(one.has for one in self._users.values())
        most = least + sum(one.may for one in self._users.values())
        user = EARLIER if rules.settling else job.identity.owner
        self.memory.found(user, min(most, max(least, self.memory.usable_bytes)))

    def measured(self, used_bytes: int, rules: Rules, now: float) -> bool:
        """Take NVML's used bytes; return whether the bytes that jobs can share have changed."""
        held = {user: self._resident(user, rules, now) for user in self._users}
        return self.memory.measured(used_bytes, held)

    def may_change(self, patience: Patience) -> bool:
        """Whether leases may change by time alone."""
        return self.turns.pending or self.name in patience.gpus

    # ---- leases ----

    def decide(self, rules: Rules, now: float) -> list[Job]:
        """Decide leases and turns anew; return the jobs for which something has changed."""
        if rules.settling:
            held = sum(job.gpus[self.name].adopted_bytes for job in self.jobs.values())
            self.memory.found(EARLIER, held)
        whole = self.memory.shared_bytes(rules.reserve)
        over = {user for user in self._users if rules.patience.is_over(user, self.name, now)}
        claims = [self._claim(job, rules) for job in self.jobs.values()]
        claims, waits = self._in_turns(whole, claims, rules, now)
        fair = _arbitrated(whole, claims)
        fewer = [self._charged(claim, fair, over) for claim in claims]
        targets = fair if fewer == claims else _arbitrated(whole, fewer)
        changed = self._grant(whole, targets, over, rules)
        waited_for = set() if rules.settling else set(self._waited_for(fair))
        rules.patience.look(self.name, waited_for, now)
        first = max((job.priority for job in self.jobs.values() if self._uses(job)), default=None)
        for job in self.jobs.values():
            yields = first is not None and job.priority < first
            flags = job.number in waits, yields
            if flags != (self.name in job.waits, self.name in job.yields):
                job.waits = _with(job.waits, self.name, flags[0])
                job.yields = _with(job.yields, self.name, flags[1])
                changed[job.number] = job
        return list(changed.values())

    def _claim(self, job: Job, rules: Rules) -> Claim:
        entry = job.gpus[self.name]
        return Claim(
            job.number,
            self.name,
            job.priority,
            entry.wanted_bytes,
            entry.use / wire.USE_MOST,
            rules.weight(job),
            entry.least_bytes,
            job.identity.owner,
        )

    def _in_turns(
        self, whole: int, claims: list[Claim], rules: Rules, now: float
    ) -> tuple[list[Claim], set[int]]:
        """Claims with the levels that turns give them, and the jobs that wait."""
        ready = [] if rules.settling or not rules.turns else list(self._ready(rules))
        running = self.turns.look(now, whole, ready)
        levels = (self.turns.level(claim.priority, claim.job in running) for claim in claims)
        leveled = [claim._replace(priority=one) for claim, one in zip(claims, levels, strict=True)]
        return leveled, {one.job for one in ready} - running

    def _ready(self, rules: Rules) -> Iterator[Ready]:
        """The jobs that have something to run."""
        for job in self.jobs.values():
            if self._uses(job):
                entry = job.gpus[self.name]
                wanted, held = entry.wanted_bytes, entry.resident_bytes
                user, weight = job.identity.owner, rules.weight(job)
                yield Ready(job.number, wanted, held, user, weight, job.priority, entry.ready)

    def _uses(self, job: Job) -> bool:
        """Whether a job uses the GPU, as it says. One of the release before says only how much."""
        entry = job.gpus[self.name]
        return entry.used and (entry.ready or entry.use > 0)

    def _grant(
        self, whole: int, targets: Mapping[int, int], over: set[int], rules: Rules
    ) -> dict[int, Job]:
        """Grants what can be granted now; the jobs whose leases have changed."""
        changed: dict[int, Job] = {}
        leases = {number: self._lease(job, over) for number, job in self.jobs.items()}
        for _ in range(ROUNDS):
            for number, granted in step(whole, targets, leases, not rules.settling).items():
                job = changed[number] = self.jobs[number]
                job.granted[self.name] = granted
                self._may_hold[number] = job.may_hold_bytes(self.name)
                leases[number] = self._lease(job, over)
        for job in changed.values():
            self.count(job)
        self.held_bytes = sum(lease.held_bytes for lease in leases.values())
        return changed

    def _lease(self, job: Job, over: set[int]) -> Lease:
        """A job's lease. What it reports beyond that counts until its user's account is spent
        (patience.py)."""
        entry, granted = job.gpus[self.name], job.granted.get(self.name)
        if job.identity.owner in over:
            return Lease(granted, 0, 0, 0)
        total = self.memory.total_bytes
        adopted, resident = min(entry.adopted_bytes, total), min(entry.resident_bytes, total)
        return Lease(granted, self._may_hold[job.number], adopted, resident)

    def _charged(self, claim: Claim, targets: Mapping[int, int], over: set[int]) -> Claim:
        """Unaccounted memory first reduces the claims of jobs that may be hiding it: a job that
        reports not to use its share gets twice what it reports to use."""
        lost = self.memory.unaccounted_bytes or 0
        if not lost or claim.user not in over:
            return claim
        resident = self.jobs[claim.job].gpus[self.name].resident_bytes
        says = 2 * resident + self.memory.total_bytes // GRAIN_SHARE
        most = max(says, targets[claim.job] - lost)
        return claim._replace(wanted_bytes=min(claim.wanted_bytes, most))

    def _waited_for(self, fair: Mapping[int, int]) -> Iterator[int]:
        """The users that other jobs wait for: their jobs are above their leases, or may be hiding
        unaccounted memory."""
        name = self.name
        grain = self.memory.total_bytes // GRAIN_SHARE
        lost = (self.memory.unaccounted_bytes or 0) > grain
        short = {n for n, job in self.jobs.items() if job.granted.get(name, 0) + grain < fair[n]}
        lacking = {
            job.identity.owner
            for n, job in self.jobs.items()
            if fair[n] < job.gpus[name].wanted_bytes
        }
        for number, job in self.jobs.items():
            entry = job.gpus[name]
            held = max(entry.adopted_bytes, entry.resident_bytes, self._may_hold[number])
            above = held > job.granted.get(name, 0) and len(short) > (number in short)
            unused = min(fair[number], entry.wanted_bytes) - entry.resident_bytes
            owner = job.identity.owner
            hides = lost and unused > grain and len(lacking) > (owner in lacking)
            if above or hides:
                yield owner


def _arbitrated(whole: int, claims: list[Claim]) -> dict[int, int]:
    """The budgets of claims on one GPU, by job."""
    if not claims:
        return {}
    memory = {claims[0].gpu: whole}
    return {job: has for (job, _), has in arbitrate(less_spill(memory, claims), claims).items()}


def _with(names: frozenset[str], name: str, holds: bool) -> frozenset[str]:
    return names | {name} if holds else names - {name}
