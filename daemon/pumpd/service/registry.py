"""The service's jobs, their reports on GPUs, and their leases. No I/O.

DESIGN
  The jobs' reports may be false. A job that reports more memory than it uses gets at most its
  user's share by the arbiter's rules. Memory that a job reports beyond its grants counts as held
  until its user's account is spent (shrink_budget.py). The size of a GPU is taken from NVML: a job
  that reports another size gets no lease on the GPU. Without NVML, jobs that report different sizes
  of a GPU share it as if it were several GPUs. A job with a false size then shares nothing with
  honest jobs, and takes as much from them as a program without pump. The shared amount is estimated
  in gpus.py. A GPU without jobs is dropped.

  A user is the owner of user IDs (owners.py). A user's jobs on a GPU have one user's weight
  together, regardless of the number of IDs and jobs.

  If jobs want much more memory than a GPU has, they take turns (pump/policy/turns.py): launches of
  waiting jobs are held, and memory goes to the jobs whose turn it is. While a job of a higher
  priority uses a GPU, the others yield: if one of their launches waits for its memory, it leaves
  the GPU to that job (docs/decisions/0073-gates.md).

  A frame changes the sums of its own user (shared.py) and makes GPUs stale. Stale GPUs are decided
  one by one, and the users that made them stale take turns. A pause follows after ENTRIES_MOST
  leases, so that the service can answer questions in between.

  For settle_s after the start of the service no lease grows and there are no turns. Jobs that are
  already running register again one by one, and keep the memory that they hold.
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
"""Tolerated difference of totals, as a share: NVML counts memory that CUDA keeps for itself."""
GPUS_MOST = 64
"""Most GPUs that one user's jobs may report first; a machine has fewer, including MIG slices."""
ENTRIES_MOST = 128
"""After deciding this many leases, the service pauses to answer: some milliseconds of work."""


class Registry(Rules):
    """Jobs and leases. Every event that can change leases makes a GPU stale; `rearrange` decides
    its leases again.

    `gpus`: total bytes by UUID, from NVML; None or empty without NVML.
    """

    def __init__(self, gpus: dict[str, int] | None = None) -> None:
        super().__init__()
        self.jobs: dict[int, Job] = {}
        self.joined = self.left = self.expired = self.grants = 0
        self._by_owner: dict[int, dict[int, Job]] = {}
        self._sure = dict(gpus or {})
        self._gpus: dict[str, Shared] = {}
        self._named = Counter[int]()
        """Number of GPUs that a user's jobs have reported first, by user."""
        self._stale: dict[int, dict[str, None]] = {}
        """Stale GPUs, by the user that made them stale; the next user is first."""
        self._due = set[str]()
        """All stale GPUs."""

    def __repr__(self) -> str:
        return f"<registry of {len(self.jobs)} jobs on {len(self._gpus)} GPUs>"

    @property
    def stale(self) -> bool:
        """Returns whether a GPU is stale: its leases must be decided again."""
        return bool(self._due)

    @stale.setter
    def stale(self, value: bool) -> None:
        """Makes all GPUs stale, or none."""
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
        """Adds a job that has joined."""
        self.joined += 1
        priority = min(join.priority, priority_most)
        job = Job(self.joined, identity, join, priority, now, now)
        self.jobs[job.number] = job
        self._by_owner.setdefault(identity.owner, {})[job.number] = job
        return job

    def jobs_of(self, owner: int) -> Sequence[Job]:
        """Returns a user's jobs, the oldest first."""
        return [job for _, job in sorted(self._by_owner.get(owner, {}).items())]

    def own(self, job: Job, identity: Identity) -> None:
        """Updates the identity of a job, because the owner of its user may have changed."""
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
        """Removes a job that has ended, and frees its memory."""
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
        """Takes a job's report. If a GPU has two entries, the last one counts."""
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
        """Returns the name of a GPU: its UUID; without NVML, its UUID and the reported size."""
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
        """Returns the parts of a report that leases depend on: resident bytes up to the lease do
        not matter."""
        if entry is None:
            return None
        return replace(entry, resident_bytes=max(entry.resident_bytes, job.granted.get(gpu, 0)))

    def measured(self, used_bytes: Mapping[str, int], now: float) -> None:
        """Takes NVML's used bytes by GPU."""
        for name, gpu in self._gpus.items():
            if name in used_bytes and gpu.measured(used_bytes[name], self, now):
                self._mark(name, gpu.memory.first)

    def on_time(self, now: float) -> None:
        """Marks GPUs whose leases may change by time; the service calls it every CHECK_S."""
        for name, gpu in self._gpus.items():
            if gpu.may_change(self.shrink_budget):
                self._mark(name, gpu.memory.first)
        for name in self.shrink_budget.gpus - self._gpus.keys():
            self.shrink_budget.update(name, set(), now)

    def memory_bytes(self) -> dict[str, int]:
        """Returns the bytes that jobs may share, by the name of the GPU."""
        return {name: gpu.memory.shared_bytes(self.reserve) for name, gpu in self._gpus.items()}

    def held_bytes(self) -> int:
        """Returns the bytes on all GPUs that jobs hold, and that cannot be granted to others, by
        the last decisions."""
        return sum(gpu.held_bytes for gpu in self._gpus.values())

    def rearrange(self, now: float) -> list[Job]:
        """Decides the leases of stale GPUs until ENTRIES_MOST leases are decided; returns the jobs
        with a new grant."""
        changed: dict[int, Job] = {}
        entries = 0
        while entries < ENTRIES_MOST and (gpu := self._next()) is not None:
            entries += len(gpu.jobs)
            changed |= {job.number: job for job in gpu.decide(self, now)}
        for _, job in sorted(changed.items()):
            job.grant()
        self.grants += len(changed)
        return [job for _, job in sorted(changed.items())]

    def _next(self) -> Shared | None:
        """Returns the next stale GPU of the user whose turn it is."""
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
        """Returns the grant to send to a job."""
        granted = sorted(job.granted.items())
        gpus = tuple(
            wire.GpuGrant(job.gpus[name].gpu, bytes_, name in job.waits, name in job.yields)
            for name, bytes_ in granted
        )
        return wire.Grant(job.grant_number, beat_ms, gpus)

    def state_of(self, job: Job, now: float) -> wire.JobState:
        """Returns a job's state for AskJobs."""
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
