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

  A frame changes the sums of its own user (shared.py) and says which GPUs are stale. Those are
  decided one by one, the users' in turn who made them so, and no more than ENTRIES_MOST leases in
  one go: the service answers questions in between.

  For settle_s after the service has begun no lease grows: jobs that ran before register again
  one by one, and hold what they held. Nor are there turns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from pump.wire import service as wire
from pumpd.service.jobs import Job
from pumpd.service.owners import Identity
from pumpd.service.shared import Rules, Shared

NVML_SLACK = 0.1
"""NVML counts memory that CUDA keeps for itself: totals may differ by that share."""
GPUS_MOST = 64
"""GPUs that one user's jobs may report first; a machine has fewer, with its MIG slices."""
ENTRIES_MOST = 128
"""Leases decided in one go, and one GPU's at least: some milliseconds."""


class Registry(Rules):
    """Jobs and leases. Every change that can change leases makes a GPU stale; `rearrange` decides
    anew.

    gpus: total bytes by UUID, by NVML; None or empty without NVML.
    """

    def __init__(self, gpus: dict[str, int] | None = None) -> None:
        super().__init__()
        self.jobs: dict[int, Job] = {}
        self.joined = self.left = self.expired = self.grants = 0
        self._by_owner: dict[int, dict[int, Job]] = {}
        self._sure = dict(gpus or {})
        self._gpus: dict[str, Shared] = {}
        self._named = Counter[int]()
        """By user, the GPUs that its jobs have reported first."""
        self._stale: dict[int, dict[str, None]] = {}
        """GPUs to be decided, by the user that made them stale; the next user first."""
        self._due = set[str]()
        """The same GPUs."""

    def __repr__(self) -> str:
        return f"<registry of {len(self.jobs)} jobs on {len(self._gpus)} GPUs>"

    @property
    def stale(self) -> bool:
        """Whether leases are to be decided anew; True: those of all GPUs."""
        return bool(self._due)

    @stale.setter
    def stale(self, value: bool) -> None:
        """Make all GPUs stale, or none."""
        self._stale.clear()
        self._due.clear()
        if value:
            for name, gpu in self._gpus.items():
                self._mark(name, gpu.memory.first)

    def _mark(self, gpu: str, user: int) -> None:
        if gpu in self._gpus:
            self._due.add(gpu)
            self._stale.setdefault(user, {})[gpu] = None

    def add(self, identity: Identity, join: wire.Join, priority_most: int, now: float) -> Job:
        """A job has joined."""
        self.joined += 1
        priority = min(join.priority, priority_most)
        job = Job(self.joined, identity, join, priority, now, now)
        self.jobs[job.number] = job
        self._by_owner.setdefault(identity.owner, {})[job.number] = job
        return job

    def jobs_of(self, owner: int) -> Sequence[Job]:
        """Return a user's jobs, the oldest first."""
        return [job for _, job in sorted(self._by_owner.get(owner, {}).items())]

    def own(self, job: Job, identity: Identity) -> None:
        """The owner of a job's user may have changed."""
        self._disown(job)
        job.identity = identity
        self._by_owner.setdefault(identity.owner, {})[job.number] = job
        for gpu in job.gpus:
            self._gpus[gpu].count(job)
            self._mark(gpu, identity.owner)

    def _disown(self, job: Job) -> None:
        mine = self._by_owner[job.identity.owner]
        del mine[job.number]
        if not mine:
            del self._by_owner[job.identity.owner]

    def remove(self, job: Job, *, expired: bool = False) -> None:
        """A job has ended; what it held is free."""
        if self.jobs.pop(job.number, None) is None:
            return
        self._disown(job)
        self.left += 1
        self.expired += expired
        for gpu in job.gpus:
            self._drop(job, gpu)

    def _drop(self, job: Job, gpu: str) -> None:
        shared = self._gpus[gpu]
        shared.drop(job)
        if shared.jobs:
            self._mark(gpu, job.identity.owner)
            return
        del self._gpus[gpu]
        self._due.discard(gpu)
        self._named[shared.memory.first] -= 1
        if not self._named[shared.memory.first]:
            del self._named[shared.memory.first]

    def take_report(self, job: Job, report: wire.Report, now: float) -> None:
        """Take a job's report. Of a GPU with two entries the last one counts."""
        job.heard = now
        before, acted = job.gpus, job.report.grant
        job.report = report
        job.gpus = {self._name(entry): entry for entry in report.gpus if self._admit(job, entry)}
        job.sent = [(number, grant) for number, grant in job.sent if number > report.grant]
        for gpu in before.keys() - job.gpus.keys():
            job.leave(gpu)
            job.growth.pop(gpu, None)
            self._drop(job, gpu)
        for gpu, entry in job.gpus.items():
            self._gpus[gpu].take(job, self, now)
            if acted != report.grant or self._matters(job, gpu, entry) != self._matters(
                job, gpu, before.get(gpu)
            ):
                self._mark(gpu, job.identity.owner)

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
            if self._named[owner] >= GPUS_MOST:
                return False
            self._named[owner] += 1
            self._gpus[name] = Shared(name, total, owner)
        return True

    def _matters(self, job: Job, gpu: str, entry: wire.GpuReport | None) -> object:
        """The parts of a report that leases depend on; resident bytes count beyond the lease."""
        if entry is None:
            return None
        return replace(entry, resident_bytes=max(entry.resident_bytes, job.granted.get(gpu, 0)))

    def measured(self, used_bytes: Mapping[str, int], now: float) -> None:
        """Take NVML's used bytes by GPU."""
        for name, gpu in self._gpus.items():
            if name in used_bytes and gpu.measured(used_bytes[name], self, now):
                self._mark(name, gpu.memory.first)

    def on_time(self, now: float) -> None:
        """Note that leases may change by time alone; the service calls it every CHECK_S."""
        for name, gpu in self._gpus.items():
            if gpu.may_change(self.patience):
                self._mark(name, gpu.memory.first)
        for name in self.patience.gpus - self._gpus.keys():
            self.patience.look(name, set(), now)

    def memory_bytes(self) -> dict[str, int]:
        """Return the bytes that jobs may share, by the name of the GPU."""
        return {name: gpu.memory.shared_bytes(self.reserve) for name, gpu in self._gpus.items()}

    def held_bytes(self) -> int:
        """Return the bytes on all GPUs that jobs hold and no other job can be granted, by the last
        decisions."""
        return sum(gpu.held_bytes for gpu in self._gpus.values())

    def rearrange(self, now: float) -> list[Job]:
        """Decide leases of stale GPUs anew, of as many as time allows; return the jobs with a new
        grant."""
        told: dict[int, Job] = {}
        entries = 0
        while entries < ENTRIES_MOST and (gpu := self._next()) is not None:
            entries += len(gpu.jobs)
            told |= {job.number: job for job in gpu.decide(self, now)}
        for _, job in sorted(told.items()):
            job.grant()
        self.grants += len(told)
        return [job for _, job in sorted(told.items())]

    def _next(self) -> Shared | None:
        """The next stale GPU, of the user whose turn it is."""
        while self._stale:
            user, mine = next(iter(self._stale.items()))
            gpu = next(iter(mine))
            del self._stale[user], mine[gpu]
            if mine:
                self._stale[user] = mine
            if gpu in self._due:
                self._due.discard(gpu)
                return self._gpus[gpu]
        return None

    def grant_of(self, job: Job, beat_ms: int) -> wire.Grant:
        """Return the grant to send to a job."""
        granted = sorted(job.granted.items())
        gpus = tuple(
            wire.GpuGrant(job.gpus[name].gpu, bytes_, name in job.waits, name in job.yields)
            for name, bytes_ in granted
        )
        return wire.Grant(job.grant_number, beat_ms, gpus)

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
