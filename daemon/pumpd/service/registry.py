"""The service's jobs, their reports on GPUs, and their leases. No I/O.

DESIGN
  Figures come from jobs, which may be false. A job that reports more than it uses gets no more
  than its user's share by the arbiter's rules. What a job reports to hold beyond its grants
  counts until its user's account is spent (patience.py). A GPU's memory is NVML's figure: a job
  that reports another gets no lease on it. Without NVML jobs that report different sizes of a GPU
  share it as if it were several GPUs: a false size shares nothing with honest jobs, and takes
  from them as much as a program without pump. gpus.py says how much can be shared. A GPU without
  jobs is dropped.

  A user is the owner of user ids (owners.py). However many ids and jobs, its jobs on a GPU have
  one user's weight together.

  Where jobs want much more than a GPU has, they take turns (pump/policy/turns.py): the launches of
  those that wait are held, and memory goes to those whose turn it is. Beside a job of a higher
  priority that uses a GPU the others yield: a launch of theirs that waits for its memory leaves
  the GPU to it (docs/decisions/0073-gates.md).

  For settle_s after the service has begun no lease grows: jobs that ran before register again
  one by one, and hold what they held. Nor are there turns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec.structs import replace

from pump.model.bounds import RESERVE_PERCENT
from pump.policy.arbiter import Claim, arbitrate, less_spill
from pump.policy.leases import GRAIN_SHARE, Lease, step
from pump.policy.turns import Ready, Turns
from pump.wire import service as wire
from pumpd.service.gpus import EARLIER, Gpu
from pumpd.service.owners import Identity
from pumpd.service.patience import Patience

NVML_SLACK = 0.1
"""NVML counts memory that CUDA keeps for itself: totals may differ by that share."""
SENT_MOST = 16
"""Grants kept apart until they are acknowledged; older ones are kept as one."""
GPUS_MOST = 64
"""GPUs that one user's jobs may report first; a machine has fewer, with its MIG slices."""
GROWTH_S = 1.0
"""Reports closer together do not show whether a job grows: it reports at once when it is granted
more, and fetches blocks afterwards."""
ROUNDS = 2
"""A new job's first grant is what it has; the second round lets it grow at once."""


class Growth(NamedTuple):
    """A job's resident bytes on a GPU grew by `bytes_` over a stretch of GROWTH_S or more; the
    next stretch began at `since`, with `resident_bytes`."""

    since: float
    resident_bytes: int
    bytes_: int

    def followed(self, resident_bytes: int, now: float) -> Growth:
        """The growth after another report. Within a stretch it can only increase."""
        grown = max(0, resident_bytes - self.resident_bytes)
        if now - self.since < GROWTH_S:
            return self._replace(bytes_=max(self.bytes_, grown))
        return Growth(now, resident_bytes, grown)


@dataclass
class Job:
    """One job's pumpd. Times are time.monotonic()."""

    number: int
    identity: Identity
    join: wire.Join
    priority: int
    """As it asked, bounded by the administrator's limit."""
    joined: float
    heard: float
    report: wire.Report = field(default_factory=lambda: wire.Report(0, 0, 0, 0))
    gpus: dict[str, wire.GpuReport] = field(default_factory=dict)
    """Of its last report, the GPUs on which it can have a lease; by the registry's name of each
    (Registry._name), as in all tables here."""
    granted: dict[str, int] = field(default_factory=dict)
    waits: frozenset[str] = frozenset()
    """GPUs on which it is the turn of others."""
    yields: frozenset[str] = frozenset()
    """GPUs that a job of a higher priority uses."""
    grant_number: int = 0
    growth: dict[str, Growth] = field(default_factory=dict)
    """By GPU."""
    sent: list[tuple[int, dict[str, int]]] = field(default_factory=list)
    """Grants that it has not acknowledged, by number."""

    def may_hold_bytes(self, gpu: str) -> int:
        """The most of its grants that it has not acknowledged, and its newest one."""
        waiting = (grant[gpu] for _, grant in self.sent if gpu in grant)
        return max(self.granted.get(gpu, 0), *waiting, 0)


class Registry:
    """Jobs and leases. Every change that can change leases sets `stale`; `rearrange` decides anew.

    gpus: total bytes by UUID, by NVML; None or empty without NVML.
    """

    def __init__(self, gpus: dict[str, int] | None = None) -> None:
        self.jobs: dict[int, Job] = {}
        self.stale = False
        self.settling = False
        """Jobs with leases may not have registered again yet: no lease grows."""
        self.patience = Patience()
        self.joined = self.left = self.expired = self.grants = 0
        self.weights: Mapping[int, float] = {}
        """Of users, by number; 1 for others."""
        self.reserve = f"{RESERVE_PERCENT}%"
        self.turns = True
        """Whether jobs may have to take turns."""
        self._sure = dict(gpus or {})
        self._gpus: dict[str, Gpu] = {}
        self._turns: dict[str, Turns] = {}

    def __repr__(self) -> str:
        return f"<registry of {len(self.jobs)} jobs on {len(self._gpus)} GPUs>"

    def add(self, identity: Identity, join: wire.Join, priority_most: int, now: float) -> Job:
        """A job has joined."""
        self.joined += 1
        priority = min(join.priority, priority_most)
        job = Job(self.joined, identity, join, priority, now, now)
        self.jobs[job.number] = job
        return job

    def remove(self, job: Job, *, expired: bool = False) -> None:
        """A job has ended; what it held is free."""
        if self.jobs.pop(job.number, None) is None:
            return
        self.left += 1
        for turns in self._turns.values():
            turns.forget(job.number)
        self.expired += expired
        self.stale = True
        self._forget_unused(set(job.gpus))

    def _forget_unused(self, gpus: set[str]) -> None:
        used = {gpu for other in self.jobs.values() for gpu in other.gpus}
        for gpu in gpus - used:
            self._gpus.pop(gpu, None)
            self._turns.pop(gpu, None)

    def take_report(self, job: Job, report: wire.Report, now: float) -> None:
        """Take a job's report. Of a GPU with two entries the last one counts."""
        job.heard = now
        before = job.gpus
        self.stale |= self._what_matters(job, report) != self._what_matters(job, job.report)
        job.report = report
        job.gpus = {self._name(entry): entry for entry in report.gpus if self._admit(job, entry)}
        job.sent = [(number, grant) for number, grant in job.sent if number > report.grant]
        growth, job.growth = job.growth, {}
        for gpu, entry in job.gpus.items():
            owner = job.identity.owner
            self._gpus[gpu].reported(owner, self._resident(gpu, now)[owner])
            if gpu in before:
                job.growth[gpu] = growth[gpu].followed(entry.resident_bytes, now)
            else:
                job.growth[gpu] = Growth(now, entry.resident_bytes, entry.wanted_bytes)
                self._found(job, gpu, entry)
        gone = set(before) - set(job.gpus)
        for gpu in gone:
            job.granted.pop(gpu, None)
        if gone:
            self._forget_unused(gone)

    def _name(self, entry: wire.GpuReport) -> str:
        """The name of a GPU: its UUID; without NVML, its UUID and the reported size."""
        return entry.gpu if self._sure else f"{entry.gpu} of {entry.total_bytes}"

    def _admit(self, job: Job, entry: wire.GpuReport) -> bool:
        name = self._name(entry)
        total = self._sure.get(entry.gpu, 0) if self._sure else entry.total_bytes
        if not total * (1 - NVML_SLACK) <= entry.total_bytes <= total:
            return False
        if name not in self._gpus:
            owner = job.identity.owner
            if sum(gpu.first == owner for gpu in self._gpus.values()) >= GPUS_MOST:
                return False
            self._gpus[name] = Gpu(total, owner)
        return True

    def _what_matters(self, job: Job, report: wire.Report) -> object:
        """The parts of a report that leases depend on; resident bytes count beyond the lease."""
        gpus = [
            replace(entry, resident_bytes=max(entry.resident_bytes, job.granted.get(name, 0)))
            for name, entry in ((self._name(one), one) for one in report.gpus)
        ]
        return gpus, report.grant

    def _on(self, gpu: str) -> list[Job]:
        return [job for job in self.jobs.values() if gpu in job.gpus]

    def _found(self, job: Job, name: str, entry: wire.GpuReport) -> None:
        """Takes over what a job found free at its start, plus what the other jobs had of their
        leases then. Jobs that grow may have had more than they have reported: where that makes
        the known figure possible, it stays."""
        least = most = entry.usable_bytes
        for other in self._on(name):
            if other is not job:
                says, lease = other.gpus[name], other.may_hold_bytes(name)
                has = min(says.resident_bytes, lease)
                least += has
                most += has + min(
                    2 * other.growth[name].bytes_, max(0, min(lease, says.wanted_bytes) - has)
                )
        gpu = self._gpus[name]
        user = EARLIER if self.settling else job.identity.owner
        gpu.found(user, min(most, max(least, gpu.usable_bytes)))

    # ---- leases ----

    def lease(self, job: Job, gpu: str, now: float) -> Lease:
        """A job's lease on a GPU. What it reports beyond that counts until its user's account is
        spent (patience.py)."""
        entry, granted = job.gpus[gpu], job.granted.get(gpu)
        if self.patience.is_over(job.identity.owner, gpu, now):
            return Lease(granted, 0, 0, 0)
        total = self._gpus[gpu].total_bytes
        adopted, resident = min(entry.adopted_bytes, total), min(entry.resident_bytes, total)
        return Lease(granted, job.may_hold_bytes(gpu), adopted, resident)

    def _resident(self, gpu: str, now: float) -> Counter[int]:
        """Resident bytes by user on a GPU, bounded by what their leases let them hold."""
        found = Counter[int]()
        for job in self._on(gpu):
            held = self.lease(job, gpu, now).held_bytes
            found[job.identity.owner] += min(job.gpus[gpu].resident_bytes, held)
        return found

    def measured(self, used_bytes: Mapping[str, int], now: float) -> None:
        """Take NVML's used bytes by GPU."""
        for name, gpu in self._gpus.items():
            if name in used_bytes:
                self.stale |= gpu.measured(used_bytes[name], self._resident(name, now))

    def on_time(self, now: float) -> None:
        """Note that leases may change by time alone; the service calls it every CHECK_S."""
        self.stale |= bool(len(self.patience))
        self.stale |= any(turns.crowded for turns in self._turns.values())

    def memory_bytes(self) -> dict[str, int]:
        """Return the bytes that jobs may share, by the name of the GPU."""
        return {name: gpu.shared_bytes(self.reserve) for name, gpu in self._gpus.items()}

    def rearrange(self, now: float) -> list[Job]:
        """Decide leases anew; return the jobs with a new grant."""
        self.stale = False
        if self.settling:
            for name, known in self._gpus.items():
                held = sum(job.gpus[name].adopted_bytes for job in self._on(name))
                known.found(EARLIER, held)
        memory = self.memory_bytes()
        claims = self._claims()
        waits = self._take_turns(memory, claims, now)
        fair = arbitrate(less_spill(memory, claims), claims)
        fewer = [self._charged(claim, fair, now) for claim in claims]
        targets = fair if fewer == claims else arbitrate(less_spill(memory, fewer), fewer)
        changed: dict[int, dict[str, int]] = {}
        jobs: dict[str, dict[int, Job]] = {gpu: {} for gpu in memory}
        for claim in claims:
            jobs[claim.gpu][claim.job] = self.jobs[claim.job]
        for gpu, whole in memory.items():
            mine = jobs[gpu]
            wanted = {number: targets[number, gpu] for number in mine}
            for _ in range(ROUNDS):
                leases = {number: self.lease(job, gpu, now) for number, job in mine.items()}
                for number, granted in step(whole, wanted, leases, not self.settling).items():
                    mine[number].granted[gpu] = granted
                    changed.setdefault(number, {})[gpu] = granted
        waited_for = {key for gpu in memory for key in self._waited_for(gpu, jobs[gpu], fair)}
        self.patience.look(set() if self.settling else waited_for, now)
        first = self._first()
        for job in self.jobs.values():
            yields = {gpu for gpu in job.gpus if job.priority < first.get(gpu, job.priority)}
            on = waits.get(job.number, frozenset()), frozenset(yields)
            if on != (job.waits, job.yields):
                job.waits, job.yields = on
                changed.setdefault(job.number, {})
        told = [self.jobs[number] for number in sorted(changed)]
        for job in told:
            job.grant_number += 1
            job.sent.append((job.grant_number, dict(job.granted)))
            if len(job.sent) > SENT_MOST:
                (_, old), (number, new) = job.sent[:2]
                both = {gpu: max(old.get(gpu, 0), new.get(gpu, 0)) for gpu in job.gpus}
                job.sent[:2] = [(number, both)]
            self.grants += 1
        return told

    def _claims(self) -> list[Claim]:
        return [
            Claim(
                job.number,
                gpu,
                job.priority,
                entry.wanted_bytes,
                entry.use / wire.USE_MOST,
                self.weights.get(job.identity.owner, 1.0),
                entry.least_bytes,
                job.identity.owner,
            )
            for job in self.jobs.values()
            for gpu, entry in job.gpus.items()
        ]

    def _take_turns(
        self, memory: Mapping[str, int], claims: list[Claim], now: float
    ) -> dict[int, frozenset[str]]:
        """Gives `claims` the levels that turns give them; by job, the GPUs on which it waits."""
        waits: dict[int, frozenset[str]] = {}
        for gpu, whole in memory.items():
            mine = [claim for claim in claims if claim.gpu == gpu]
            ready = self._ready(gpu, mine)
            turns = self._turns.setdefault(gpu, Turns())
            running = turns.look(now, whole, ready)
            for one in ready:
                if one.job not in running:
                    waits[one.job] = waits.get(one.job, frozenset()) | {gpu}
            for place, claim in enumerate(claims):
                if claim.gpu == gpu:
                    level = turns.level(claim.priority, claim.job in running)
                    claims[place] = claim._replace(priority=level)
        return waits

    def _first(self) -> dict[str, int]:
        """By GPU, the greatest priority of the jobs that use it."""
        found: dict[str, int] = {}
        for job in self.jobs.values():
            for gpu, entry in job.gpus.items():
                if entry.used:
                    found[gpu] = max(found.get(gpu, job.priority), job.priority)
        return found

    def _ready(self, gpu: str, claims: Sequence[Claim]) -> list[Ready]:
        """The jobs that have something to run on a GPU; none where they take no turns."""
        if not self.turns or self.settling:
            return []
        found = []
        for claim in claims:
            job = self.jobs[claim.job]
            owner, report = job.identity.owner, job.gpus[gpu]
            if report.used:
                found.append(
                    Ready(
                        claim.job,
                        claim.wanted_bytes,
                        report.resident_bytes,
                        owner,
                        self.weights.get(owner, 1.0),
                        claim.priority,
                        report.ready,
                    )
                )
        return found

    def _charged(self, claim: Claim, targets: Mapping[tuple[int, str], int], now: float) -> Claim:
        """Unaccounted memory first reduces the claims of jobs that may be hiding it: a job that
        reports not to use its share gets twice what it reports to use."""
        job, gpu = self.jobs[claim.job], self._gpus[claim.gpu]
        lost = gpu.unaccounted_bytes or 0
        if not lost or not self.patience.is_over(job.identity.owner, claim.gpu, now):
            return claim
        says = 2 * job.gpus[claim.gpu].resident_bytes + gpu.total_bytes // GRAIN_SHARE
        most = max(says, targets[claim.job, claim.gpu] - lost)
        return claim._replace(wanted_bytes=min(claim.wanted_bytes, most))

    def _waited_for(
        self, name: str, jobs: Mapping[int, Job], fair: Mapping[tuple[int, str], int]
    ) -> Iterator[tuple[int, str]]:
        """The users that other jobs wait for on a GPU: their jobs are above their leases, or may be
        hiding unaccounted memory."""
        gpu = self._gpus[name]
        grain = gpu.total_bytes // GRAIN_SHARE
        lost = (gpu.unaccounted_bytes or 0) > grain
        short = {n for n, job in jobs.items() if job.granted.get(name, 0) + grain < fair[n, name]}
        lacking = {
            job.identity.owner
            for n, job in jobs.items()
            if fair[n, name] < job.gpus[name].wanted_bytes
        }
        for job in jobs.values():
            entry = job.gpus[name]
            held = max(entry.adopted_bytes, entry.resident_bytes, job.may_hold_bytes(name))
            above = held > job.granted.get(name, 0) and short - {job.number}
            unused = min(fair[job.number, name], entry.wanted_bytes) - entry.resident_bytes
            hides = lost and unused > grain and lacking - {job.identity.owner}
            if above or hides:
                yield job.identity.owner, name

    def grant_of(self, job: Job, beat_ms: int) -> wire.Grant:
        """Return the grant to send to a job."""
        granted = sorted(job.granted.items())
        gpus = tuple(
            wire.GpuGrant(job.gpus[name].gpu, bytes_, name in job.waits, name in job.yields)
            for name, bytes_ in granted
        )
        return wire.Grant(job.grant_number, beat_ms, gpus)

    def held_bytes(self, now: float) -> int:
        """Return the bytes on all GPUs that jobs hold and no other job can be granted."""
        return sum(
            self.lease(job, gpu, now).held_bytes for job in self.jobs.values() for gpu in job.gpus
        )

    def state_of(self, job: Job, now: float) -> wire.JobState:
        """Return a job's state for AskJobs."""
        gpus = tuple(
            wire.GpuLease(
                entry.gpu,
                job.granted.get(name, 0),
                entry.adopted_bytes,
                entry.resident_bytes,
                entry.wanted_bytes,
                entry.use,
                name in job.waits,
            )
            for name, entry in sorted(job.gpus.items())
        )
        return wire.JobState(
            number=job.number,
            user=job.identity.user,
            pid=job.identity.pid,
            job_pid=job.join.job_pid,
            name=job.join.name,
            priority=job.priority,
            socket=job.join.socket,
            clients=job.report.clients,
            age_ms=int((now - job.joined) * 1e3),
            heard_ms=int((now - job.heard) * 1e3),
            converted_bytes=job.report.converted_bytes,
            gpus=gpus,
        )
