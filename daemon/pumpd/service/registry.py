"""What the service knows: jobs, what they say of their GPUs, and their leases. No I/O.

DESIGN
  Figures come from jobs, which may lie. A job that claims more than it uses gets no more
  than its user's share by the arbiter's rules; what a job says that it holds beyond its grants
  is believed while there is patience with its user (patience.py); what a GPU has in all is
  what NVML says: a job that says otherwise gets no lease on it. Without NVML jobs that differ
  about a GPU's size share it as if it were several GPUs: a false size divides nothing with
  honest jobs, and takes as much from them as a program without pump. What can be shared of it,
  gpus.py says. A GPU that no job uses any more is forgotten.

  A user is a person: `owner`, to whom subordinate ids count. However many ids and jobs, its
  jobs on a GPU have one user's weight together.

  For a while after the service has begun no lease grows: jobs that were there before
  come back one by one, and hold what they held.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec.structs import replace

from pump.model.bounds import RESERVE_PERCENT
from pump.policy.arbiter import Claim, arbitrate, less_spill
from pump.policy.leases import GRAIN_SHARE, Lease, step
from pump.wire import service as wire
from pumpd.service.gpus import EARLIER, Gpu
from pumpd.service.owners import Identity
from pumpd.service.patience import Patience

NVML_SLACK = 0.1
"""NVML counts memory that CUDA keeps for itself: totals may differ by that share."""
SENT_MOST = 16
"""Grants kept apart until they are acted upon; older ones are kept as one."""
GPUS_MOST = 64
"""That one user's jobs name first; a machine has fewer, and MIG slices are no more."""
GROWTH_S = 1.0
"""Reports that are closer together do not tell whether a job grows: it reports at once when it
is granted more, and what it fetches then comes later."""
ROUNDS = 2
"""A newcomer's first grant is what it has; the second round lets it grow at once."""


class Growth(NamedTuple):
    """What a job has on a GPU grew by `bytes_` over a stretch of GROWTH_S or more; the next
    stretch began at `since`, with `resident_bytes` there."""

    since: float
    resident_bytes: int
    bytes_: int

    def followed(self, resident_bytes: int, now: float) -> Growth:
        """The growth after another report. Within a stretch it can only be seen to be more."""
        grown = max(0, resident_bytes - self.resident_bytes)
        if now - self.since < GROWTH_S:
            return self._replace(bytes_=max(self.bytes_, grown))
        return Growth(now, resident_bytes, grown)


@dataclass
class Job:
    """One job's pumpd. Times are time.monotonic()."""

    number: int
    who: Identity
    join: wire.Join
    priority: int
    """What it asked for, as far as its user may have it."""
    joined: float
    heard: float
    report: wire.Report = field(default_factory=lambda: wire.Report(0, 0, 0, 0))
    gpus: dict[str, wire.GpuReport] = field(default_factory=dict)
    """Of its last report, those on which it can have a lease; by the registry's name of each
    (Registry._name), as in all tables here."""
    granted: dict[str, int] = field(default_factory=dict)
    grant_number: int = 0
    growth: dict[str, Growth] = field(default_factory=dict)
    """By GPU."""
    sent: list[tuple[int, dict[str, int]]] = field(default_factory=list)
    """Grants that it has not acted upon yet, by number."""

    def may_hold_bytes(self, gpu: str) -> int:
        """The most that it has been granted and may still act upon."""
        waiting = (grant[gpu] for _, grant in self.sent if gpu in grant)
        return max(self.granted.get(gpu, 0), *waiting, 0)


class Registry:
    """Jobs and leases. Every change that matters sets `stale`; `rearrange` deals with it.

    gpus: total bytes by UUID where they are known for sure.
    """

    def __init__(self, gpus: dict[str, int] | None = None) -> None:
        self.jobs: dict[int, Job] = {}
        self.stale = False
        self.young = False
        """Jobs that held leases may not have come back yet: no lease grows."""
        self.patience = Patience()
        self.joined = self.left = self.expired = self.grants = 0
        self.weights: Mapping[int, float] = {}
        """Of users, by number; 1 for others."""
        self.reserve = f"{RESERVE_PERCENT}%"
        self._sure = dict(gpus or {})
        self._gpus: dict[str, Gpu] = {}

    def __repr__(self) -> str:
        return f"<registry of {len(self.jobs)} jobs on {len(self._gpus)} GPUs>"

    def add(self, who: Identity, join: wire.Join, priority_most: int, now: float) -> Job:
        """A job has joined."""
        self.joined += 1
        priority = min(join.priority, priority_most)
        job = Job(self.joined, who, join, priority, now, now)
        self.jobs[job.number] = job
        return job

    def remove(self, job: Job, *, expired: bool = False) -> None:
        """A job is gone; what it held is free."""
        if self.jobs.pop(job.number, None) is None:
            return
        self.left += 1
        self.expired += expired
        self.stale = True
        self._forget_unused(set(job.gpus))

    def _forget_unused(self, gpus: set[str]) -> None:
        used = {gpu for other in self.jobs.values() for gpu in other.gpus}
        for gpu in gpus - used:
            self._gpus.pop(gpu, None)

    def hear(self, job: Job, report: wire.Report, now: float) -> None:
        """A job has said how it stands. Of a GPU that it names twice the last entry counts."""
        job.heard = now
        before = job.gpus
        self.stale |= self._what_matters(job, report) != self._what_matters(job, job.report)
        job.report = report
        job.gpus = {self._name(entry): entry for entry in report.gpus if self._admit(job, entry)}
        job.sent = [(number, grant) for number, grant in job.sent if number > report.grant]
        growth, job.growth = job.growth, {}
        for gpu, entry in job.gpus.items():
            owner = job.who.owner
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
        """A GPU is known by its UUID; without NVML, by that and its size."""
        return entry.gpu if self._sure else f"{entry.gpu} of {entry.total_bytes}"

    def _admit(self, job: Job, entry: wire.GpuReport) -> bool:
        name = self._name(entry)
        total = self._sure.get(entry.gpu, 0) if self._sure else entry.total_bytes
        if not total * (1 - NVML_SLACK) <= entry.total_bytes <= total:
            return False
        if name not in self._gpus:
            owner = job.who.owner
            if sum(gpu.first == owner for gpu in self._gpus.values()) >= GPUS_MOST:
                return False
            self._gpus[name] = Gpu(total, owner)
        return True

    def _what_matters(self, job: Job, report: wire.Report) -> object:
        """What the arrangement depends on: what is resident within the lease does not count."""
        gpus = [
            replace(entry, resident_bytes=max(entry.resident_bytes, job.granted.get(name, 0)))
            for name, entry in ((self._name(one), one) for one in report.gpus)
        ]
        return gpus, report.grant

    def _on(self, gpu: str) -> list[Job]:
        return [job for job in self.jobs.values() if gpu in job.gpus]

    def _found(self, job: Job, name: str, entry: wire.GpuReport) -> None:
        """What a job found free, and what the others had of their leases then, could be shared.
        Those that grow may have had more then than they have reported; where that leaves
        possible what is believed already, it is."""
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
        voice = EARLIER if self.young else job.who.owner
        gpu.found(voice, min(most, max(least, gpu.usable_bytes)))

    # ---- what is believed ----

    def lease(self, job: Job, gpu: str, now: float) -> Lease:
        """A job's lease on a GPU. What it holds beyond that is believed while there is patience
        with its user."""
        entry, granted = job.gpus[gpu], job.granted.get(gpu)
        if self.patience.is_over(job.who.owner, gpu, now):
            return Lease(granted, 0, 0, 0)
        total = self._gpus[gpu].total_bytes
        adopted, resident = min(entry.adopted_bytes, total), min(entry.resident_bytes, total)
        return Lease(granted, job.may_hold_bytes(gpu), adopted, resident)

    def _resident(self, gpu: str, now: float) -> Counter[int]:
        """What users have on a GPU, as far as they are believed."""
        found = Counter[int]()
        for job in self._on(gpu):
            held = self.lease(job, gpu, now).held_bytes
            found[job.who.owner] += min(job.gpus[gpu].resident_bytes, held)
        return found

    def measured(self, used_bytes: Mapping[str, int], now: float) -> None:
        """NVML has said what is used of GPUs, by everything together."""
        for name, gpu in self._gpus.items():
            if name in used_bytes:
                self.stale |= gpu.measured(used_bytes[name], self._resident(name, now))

    def on_time(self, now: float) -> None:
        """See what time has changed; to be called now and then."""
        self.stale |= bool(len(self.patience))

    def memory_bytes(self) -> dict[str, int]:
        """Return what jobs may share, by the name of the GPU."""
        return {name: gpu.shared_bytes(self.reserve) for name, gpu in self._gpus.items()}

    def rearrange(self, now: float) -> list[Job]:
        """Decide anew; return the jobs that have a grant to be told."""
        self.stale = False
        if self.young:
            for name, known in self._gpus.items():
                held = sum(job.gpus[name].adopted_bytes for job in self._on(name))
                known.found(EARLIER, held)
        memory = self.memory_bytes()
        claims = self._claims()
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
                for number, granted in step(whole, wanted, leases, not self.young).items():
                    mine[number].granted[gpu] = granted
                    changed.setdefault(number, {})[gpu] = granted
        waited_for = {key for gpu in memory for key in self._waited_for(gpu, jobs[gpu], fair)}
        self.patience.look(set() if self.young else waited_for, now)
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
        count = Counter(job.who.owner for job in self.jobs.values())
        shares = {owner: self.weights.get(owner, 1.0) / jobs for owner, jobs in count.items()}
        return [
            Claim(
                job.number,
                gpu,
                job.priority,
                entry.wanted_bytes,
                entry.use / wire.USE_MOST,
                shares[job.who.owner],
            )
            for job in self.jobs.values()
            for gpu, entry in job.gpus.items()
        ]

    def _charged(self, claim: Claim, targets: Mapping[tuple[int, str], int], now: float) -> Claim:
        """Memory that no job accounts for costs those first that may be hiding it: a job that
        says that it does not use its share gets twice what it says that it uses."""
        job, gpu = self.jobs[claim.job], self._gpus[claim.gpu]
        lost = gpu.unaccounted_bytes or 0
        if not lost or not self.patience.is_over(job.who.owner, claim.gpu, now):
            return claim
        says = 2 * job.gpus[claim.gpu].resident_bytes + gpu.total_bytes // GRAIN_SHARE
        most = max(says, targets[claim.job, claim.gpu] - lost)
        return claim._replace(wanted_bytes=min(claim.wanted_bytes, most))

    def _waited_for(
        self, name: str, jobs: Mapping[int, Job], fair: Mapping[tuple[int, str], int]
    ) -> Iterator[tuple[int, str]]:
        """The users for whose giving way others wait on a GPU: their jobs are above their leases,
        or may be hiding what no job accounts for."""
        gpu = self._gpus[name]
        grain = gpu.total_bytes // GRAIN_SHARE
        lost = (gpu.unaccounted_bytes or 0) > grain
        short = {n for n, job in jobs.items() if job.granted.get(name, 0) + grain < fair[n, name]}
        lacking = {
            job.who.owner for n, job in jobs.items() if fair[n, name] < job.gpus[name].wanted_bytes
        }
        for job in jobs.values():
            entry = job.gpus[name]
            held = max(entry.adopted_bytes, entry.resident_bytes, job.may_hold_bytes(name))
            above = held > job.granted.get(name, 0) and short - {job.number}
            unused = min(fair[job.number, name], entry.wanted_bytes) - entry.resident_bytes
            hides = lost and unused > grain and lacking - {job.who.owner}
            if above or hides:
                yield job.who.owner, name

    def grant_of(self, job: Job, beat_ms: int) -> wire.Grant:
        """Return what to tell a job."""
        granted = sorted(job.granted.items())
        gpus = tuple(wire.GpuGrant(job.gpus[name].gpu, bytes_) for name, bytes_ in granted)
        return wire.Grant(job.grant_number, beat_ms, gpus)

    def held_bytes(self, now: float) -> int:
        """Return what no other job can be granted, on all GPUs."""
        return sum(
            self.lease(job, gpu, now).held_bytes for job in self.jobs.values() for gpu in job.gpus
        )

    def state_of(self, job: Job, now: float) -> wire.JobState:
        """Return what is shown of a job."""
        gpus = tuple(
            wire.GpuLease(
                entry.gpu,
                job.granted.get(name, 0),
                entry.adopted_bytes,
                entry.resident_bytes,
                entry.wanted_bytes,
                entry.use,
            )
            for name, entry in sorted(job.gpus.items())
        )
        return wire.JobState(
            number=job.number,
            user=job.who.user,
            pid=job.who.pid,
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
