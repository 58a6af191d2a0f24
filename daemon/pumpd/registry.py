"""What the service knows: jobs, what they say of their GPUs, and their leases. No I/O.

DESIGN
  Figures come from jobs, which may lie. A job that claims more than it uses gets no more
  than its share by the arbiter's rules; what a GPU has in all is what NVML says, or, where
  there is no NVML, what the job that came first on it says: who says otherwise gets no lease
  on it. A GPU that nobody uses any more is forgotten.

  What all jobs together may keep on a GPU is the most that any of them could have taken when
  it began (memory of programs without pump is not in it), or has been given since.

  For a while after the service has begun nobody's lease grows: jobs that were there before
  come back one by one, and hold what they held.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pump.model.bounds import BLOCK_BYTES, RESERVE_PERCENT, without_reserve
from pump.policy.arbiter import Claim, arbitrate, less_spill
from pump.policy.leases import Lease, step
from pump.wire import service as wire

PATIENCE_S = 10.0
"""A job that still has not given way after that is no longer waited for: it hangs, or lies."""
NVML_SLACK = 0.1
"""NVML counts memory that CUDA keeps for itself: totals may differ by that share."""
SENT_MOST = 16
"""Grants kept apart until they are acted upon; older ones are kept as one."""
ROUNDS = 2
"""A newcomer's first grant is what it has; the second round lets it grow at once."""


class RefusedError(Exception):
    """One line: why a job is not served any more."""


@dataclass
class Job:
    """One job's pumpd. Times are time.monotonic()."""

    number: int
    user: int
    pid: int
    join: wire.Join
    priority: int
    """What it asked for, as far as its user may have it."""
    joined: float
    heard: float
    report: wire.Report = field(default_factory=lambda: wire.Report(0, 0, 0, 0))
    gpus: dict[str, wire.GpuReport] = field(default_factory=dict)
    """Of its last report, those on which it can have a lease."""
    granted: dict[str, int] = field(default_factory=dict)
    grant_number: int = 0
    sent: list[tuple[int, dict[str, int]]] = field(default_factory=list)
    """Grants that it has not acted upon yet, by number."""

    above: dict[str, float] = field(default_factory=dict)
    """By GPU, since when it has held more than it was granted."""

    def lease(self, gpu: str, now: float) -> Lease:
        """Its lease on a GPU. Nobody keeps others waiting for ever by not giving way."""
        report, granted = self.gpus[gpu], self.granted.get(gpu)
        waiting = [grant[gpu] for _, grant in self.sent if gpu in grant]
        lease = Lease(granted, max(waiting, default=0), report.adopted_bytes, report.resident_bytes)
        if granted is None or lease.held_bytes <= granted:
            self.above.pop(gpu, None)
        elif now - self.above.setdefault(gpu, now) > PATIENCE_S:
            return Lease(granted, granted, granted, granted)
        return lease


@dataclass
class Gpu:
    """total_bytes: the card's. usable_bytes: what jobs may share."""

    total_bytes: int
    usable_bytes: int = 0

    def raise_to(self, bytes_: int) -> None:
        """Jobs can share that much, but for what shims leave free for the card itself."""
        self.usable_bytes = min(without_reserve(self.total_bytes), max(self.usable_bytes, bytes_))

    def shared_bytes(self, reserve: str) -> int:
        """What can be given out, in whole blocks, when so much shall never be."""
        if reserve.endswith("%"):
            kept = self.total_bytes * int(reserve[:-1]) // 100
        else:
            kept = int(
                float(reserve[:-1]) * self.total_bytes if reserve[-1] == "x" else int(reserve)
            )
        most = max(0, self.total_bytes - kept)
        return min(self.usable_bytes, most) // BLOCK_BYTES * BLOCK_BYTES


class Registry:
    """Jobs and leases. Every change that matters sets `stale`; `rearrange` deals with it.

    gpus: total bytes by UUID where they are known for sure.
    """

    def __init__(self, gpus: dict[str, int] | None = None) -> None:
        self.jobs: dict[int, Job] = {}
        self.stale = False
        self.joined = self.left = self.expired = self.grants = 0
        self.weights: Mapping[int, float] = {}
        """Of users, by number; 1 for others."""
        self.reserve = f"{RESERVE_PERCENT}%"
        self._sure = dict(gpus or {})
        self._gpus: dict[str, Gpu] = {}

    def __repr__(self) -> str:
        return f"<registry of {len(self.jobs)} jobs on {len(self._gpus)} GPUs>"

    def add(self, user: int, pid: int, join: wire.Join, priority_most: int, now: float) -> Job:
        """A job has said who it is."""
        self.joined += 1
        priority = min(join.priority, priority_most)
        job = Job(self.joined, user, pid, join, priority, now, now)
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
        """A job has said how it stands. Raises RefusedError for what cannot be."""
        job.heard = now
        if len({entry.gpu for entry in report.gpus}) != len(report.gpus):
            raise RefusedError("a report that names a GPU twice")
        before = job.gpus
        self.stale |= _what_matters(job, report) != _what_matters(job, job.report)
        job.report = report
        job.gpus = {entry.gpu: entry for entry in report.gpus if self._admit(entry)}
        job.sent = [(number, grant) for number, grant in job.sent if number > report.grant]
        gone = set(before) - set(job.gpus)
        for gpu in gone:
            job.granted.pop(gpu, None)
            job.above.pop(gpu, None)
        if gone:
            self._forget_unused(gone)

    def _admit(self, entry: wire.GpuReport) -> bool:
        sure = self._sure.get(entry.gpu)
        if self._sure and sure is None:
            return False
        known = self._gpus.get(entry.gpu)
        total = sure or (known.total_bytes if known else entry.total_bytes)
        least = total * (1 - NVML_SLACK) if sure else total
        if not total or not least <= entry.total_bytes <= total:
            return False
        if known is None:
            known = self._gpus[entry.gpu] = Gpu(total)
        known.raise_to(entry.usable_bytes)
        return True

    def memory_bytes(self) -> dict[str, int]:
        """Return what jobs may share, by GPU."""
        return {name: gpu.shared_bytes(self.reserve) for name, gpu in self._gpus.items()}

    def rearrange(self, now: float, growing: bool) -> list[Job]:
        """Decide anew; return the jobs that have a grant to be told.

        growing: whether leases may grow yet.
        """
        self.stale = False
        memory = self.memory_bytes()
        if not growing:
            self._make_room(memory)
        count = Counter(job.user for job in self.jobs.values())
        shares = {user: self.weights.get(user, 1.0) / jobs for user, jobs in count.items()}
        claims = [
            Claim(
                job.number,
                gpu,
                job.priority,
                entry.wanted_bytes,
                entry.use / wire.USE_MOST,
                shares[job.user],
            )
            for job in self.jobs.values()
            for gpu, entry in job.gpus.items()
        ]
        targets = arbitrate(less_spill(memory, claims), claims)
        changed: dict[int, dict[str, int]] = {}
        for gpu, whole in memory.items():
            for _ in range(ROUNDS):
                mine = {job.number: job for job in self.jobs.values() if gpu in job.gpus}
                wanted = {number: targets[number, gpu] for number in mine}
                leases = {number: job.lease(gpu, now) for number, job in mine.items()}
                for number, granted in step(whole, wanted, leases, growing).items():
                    mine[number].granted[gpu] = granted
                    changed.setdefault(number, {})[gpu] = granted
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

    def _make_room(self, memory: dict[str, int]) -> None:
        """Jobs that were there before the service know what it has been told of a GPU: what
        they were granted together fits."""
        for gpu in memory:
            held = sum(job.gpus[gpu].adopted_bytes for job in self.jobs.values() if gpu in job.gpus)
            self._gpus[gpu].raise_to(held)
        memory.update(self.memory_bytes())

    def grant_of(self, job: Job, beat_ms: int) -> wire.Grant:
        """Return what to tell a job."""
        gpus = tuple(wire.GpuGrant(gpu, bytes_) for gpu, bytes_ in sorted(job.granted.items()))
        return wire.Grant(job.grant_number, beat_ms, gpus)

    def held_bytes(self, now: float) -> int:
        """Return what nobody else can be granted, on all GPUs."""
        return sum(job.lease(gpu, now).held_bytes for job in self.jobs.values() for gpu in job.gpus)

    def state_of(self, job: Job, now: float) -> wire.JobState:
        """Return what those may see who may see the job."""
        gpus = tuple(
            wire.GpuLease(
                gpu,
                job.granted.get(gpu, 0),
                entry.adopted_bytes,
                entry.resident_bytes,
                entry.wanted_bytes,
                entry.use,
            )
            for gpu, entry in sorted(job.gpus.items())
        )
        return wire.JobState(
            number=job.number,
            user=job.user,
            pid=job.pid,
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


def _what_matters(job: Job, report: wire.Report) -> object:
    """What the arrangement depends on: what is resident within the lease does not count."""
    gpus = [
        replace(entry, resident_bytes=max(entry.resident_bytes, job.granted.get(entry.gpu, 0)))
        for entry in report.gpus
    ]
    return gpus, report.grant
