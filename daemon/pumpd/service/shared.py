"""One GPU as its jobs share it: their sums, their leases, their turns. No I/O.

A report changes only the sums of its job's user, and processing it visits at most one entry per
user. So the cost of a user's frame does not grow with the number of other users' jobs. Leases are
decided for the GPU as a whole (`decide`), whenever the registry has time.
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
from pumpd.service.shrink_budget import ShrinkBudget

ROUNDS = 2
"""The first grant of a new job is the memory that it has; the second round lets the job grow
immediately."""


@dataclass
class Rules:
    """The rules for all GPUs. `weights`: weights of users by ID; others have 1. `reserve`: part of
    each GPU that is never granted. `turns`: whether jobs may have to take turns. `settling`: some
    jobs with leases may not have registered again yet, so no lease grows."""

    weights: Mapping[int, float] = field(default_factory=dict)
    reserve: str = f"{RESERVE_PERCENT}%"
    turns: bool = True
    settling: bool = False
    shrink_budget: ShrinkBudget = field(default_factory=ShrinkBudget)

    def weight(self, job: Job) -> float:
        """Returns the weight of a job's user."""
        return self.weights.get(job.identity.owner, 1.0)


@dataclass
class Sums:
    """Sums in bytes over a user's jobs on a GPU, or over one of these. `resident`: reported bytes,
    at most the GPU's. `within`: resident bytes within the newest grants. `has`: resident bytes
    within all grants that may be in force. `may`: further bytes that growing jobs may have."""

    jobs: int = 0
    resident: int = 0
    within: int = 0
    has: int = 0
    may: int = 0

    def add(self, other: Sums, sign: int = 1) -> None:
        """Adds other sums; `sign` -1 subtracts them."""
        self.jobs += sign * other.jobs
        self.resident += sign * other.resident
        self.within += sign * other.within
        self.has += sign * other.has
        self.may += sign * other.may


class Shared:
    """One GPU, and the jobs that have reported to use it. `first`: user of the first such job."""

    def __init__(self, name: str, total_bytes: int, first: int) -> None:
        self.name = name
        self.memory = Gpu(total_bytes, first)
        self.jobs: dict[int, Job] = {}
        self.turns = Turns()
        self.held_bytes = 0
        """Bytes that jobs hold, and that cannot be granted to others, by the last decision."""
        self._users: dict[int, Sums] = {}
        self._parts: dict[int, tuple[int, Sums]] = {}
        """The user of each job, and the job's part of that user's sums."""
        self._may_hold: dict[int, int] = {}
        """The largest grant of each job that may be in force."""

    # ---- reports ----

    def take(self, job: Job, rules: Rules, now: float) -> None:
        """Takes a job's report, which is already in the job's tables."""
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
        """Removes a job that has stopped using the GPU."""
        del self.jobs[job.number]
        self.turns.forget(job.number)
        self._uncount(job)
        del self._may_hold[job.number]

    def count(self, job: Job) -> None:
        """Updates the sums by a job's last report, its grants and its user."""
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
        """Returns the resident bytes of a user's jobs; only bytes within the newest grants if the
        user's account is spent."""
        sums = self._users[user]
        over = rules.shrink_budget.is_over(user, self.name, now)
        return sums.within if over else sums.resident

    def _found(self, job: Job, entry: wire.GpuReport, rules: Rules) -> None:
        """Records the memory that a job found free at its start, plus the memory that other jobs
        had within their leases. Growing jobs may have had more than they reported: if this can
        explain the known value, the value stays."""
        least = entry.usable_bytes + sum(one.has for one in self._users.values())
        most = least + sum(one.may for one in self._users.values())
        user = EARLIER if rules.settling else job.identity.owner
        self.memory.found(user, min(most, max(least, self.memory.usable_bytes)))

    def measured(self, used_bytes: int, rules: Rules, now: float) -> bool:
        """Takes NVML's used bytes; returns whether the bytes that jobs can share have changed."""
        held = {user: self._resident(user, rules, now) for user in self._users}
        return self.memory.measured(used_bytes, held)

    def may_change(self, shrink_budget: ShrinkBudget) -> bool:
        """Returns whether leases may change by time, without a report."""
        return self.turns.pending or self.name in shrink_budget.gpus

    # ---- leases ----

    def decide(self, rules: Rules, now: float) -> list[Job]:
        """Decides leases and turns; returns the jobs with a change."""
        if rules.settling:
            held = sum(job.gpus[self.name].adopted_bytes for job in self.jobs.values())
            self.memory.found(EARLIER, held)
        whole = self.memory.shared_bytes(rules.reserve)
        over = {user for user in self._users if rules.shrink_budget.is_over(user, self.name, now)}
        claims = [self._claim(job, rules) for job in self.jobs.values()]
        claims, waits = self._in_turns(whole, claims, rules, now)
        fair = _arbitrated(whole, claims)
        fewer = [self._charged(claim, fair, over) for claim in claims]
        targets = fair if fewer == claims else _arbitrated(whole, fewer)
        changed = self._grant(whole, targets, over, rules)
        waited_for = set() if rules.settling else set(self._waited_for(fair))
        rules.shrink_budget.update(self.name, waited_for, now)
        first = max((job.priority for job in self.jobs.values() if self._uses(job)), default=None)
        for job in self.jobs.values():
            yields = first is not None and job.priority < first
            flags = job.number in waits, yields
            if flags != (self.name in job.waits, self.name in job.yields):
                job.waits = _set_member(job.waits, self.name, flags[0])
                job.yields = _set_member(job.yields, self.name, flags[1])
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
        """Returns the claims with priorities set by turns, and the jobs that wait."""
        ready = [] if rules.settling or not rules.turns else list(self._ready(rules))
        running = self.turns.update(now, whole, ready)
        levels = (self.turns.level(claim.priority, claim.job in running) for claim in claims)
        leveled = [claim._replace(priority=one) for claim, one in zip(claims, levels, strict=True)]
        return leveled, {one.job for one in ready} - running

    def _ready(self, rules: Rules) -> Iterator[Ready]:
        """Yields the jobs that have something to run."""
        for job in self.jobs.values():
            if self._uses(job):
                entry = job.gpus[self.name]
                wanted, held = entry.wanted_bytes, entry.resident_bytes
                user, weight = job.identity.owner, rules.weight(job)
                yield Ready(job.number, wanted, held, user, weight, job.priority, entry.ready)

    def _uses(self, job: Job) -> bool:
        """Returns whether a job reports that it uses the GPU. With protocol version 1, jobs report
        only `use`."""
        entry = job.gpus[self.name]
        return entry.used and (entry.ready or entry.use > 0)

    def _grant(
        self, whole: int, targets: Mapping[int, int], over: set[int], rules: Rules
    ) -> dict[int, Job]:
        """Grants as much as possible now; returns the jobs with changed leases."""
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
        """Returns a job's lease. Memory that the job reports beyond its grant counts until its
        user's account is spent (shrink_budget.py)."""
        entry, granted = job.gpus[self.name], job.granted.get(self.name)
        if job.identity.owner in over:
            return Lease(granted, 0, 0, 0)
        total = self.memory.total_bytes
        adopted, resident = min(entry.adopted_bytes, total), min(entry.resident_bytes, total)
        return Lease(granted, self._may_hold[job.number], adopted, resident)

    def _charged(self, claim: Claim, targets: Mapping[int, int], over: set[int]) -> Claim:
        """Returns the claim, reduced by unaccounted memory if the user's account is spent, because
        the job may be hiding memory. The job may always claim twice its reported use."""
        lost = self.memory.unaccounted_bytes or 0
        if not lost or claim.user not in over:
            return claim
        resident = self.jobs[claim.job].gpus[self.name].resident_bytes
        says = 2 * resident + self.memory.total_bytes // GRAIN_SHARE
        most = max(says, targets[claim.job] - lost)
        return claim._replace(wanted_bytes=min(claim.wanted_bytes, most))

    def _waited_for(self, fair: Mapping[int, int]) -> Iterator[int]:
        """Yields the users that other jobs wait for: users with jobs that are above their leases,
        or may be hiding unaccounted memory."""
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
    """Returns the budgets of claims on one GPU, by job."""
    if not claims:
        return {}
    memory = {claims[0].gpu: whole}
    return {job: has for (job, _), has in arbitrate(less_spill(memory, claims), claims).items()}


def _set_member(names: frozenset[str], name: str, holds: bool) -> frozenset[str]:
    return names | {name} if holds else names - {name}
