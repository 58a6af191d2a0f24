"""The service's state of a job: its reports, its grants and its growth. No I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from pump.wire import service as wire
from pumpd.service.owners import Identity

SENT_MOST = 16
"""Most unacknowledged grants that are kept separately; older ones are merged into one."""
GROWTH_S = 1.0
"""Least time between reports that show a job's growth. A job with a larger grant reports
immediately, and fetches blocks afterwards."""


class Growth(NamedTuple):
    """Growth of a job's resident bytes on a GPU: `bytes_` in a period of GROWTH_S or more. The
    next period began at `since`, with `resident_bytes`."""

    since: float
    resident_bytes: int
    bytes_: int

    def followed(self, resident_bytes: int, now: float) -> Growth:
        """Returns the growth after another report. Within a period it can only increase."""
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
    """The requested priority, bounded by the administrator's limit."""
    joined: float
    heard: float
    report: wire.Report = field(default_factory=lambda: wire.Report(0, 0, 0, 0))
    gpus: dict[str, wire.GpuReport] = field(default_factory=dict)
    """GPUs of the last report on which the job can have a lease. The key is the registry's name of
    the GPU (Registry._name), as in all tables here."""
    granted: dict[str, int] = field(default_factory=dict)
    waits: frozenset[str] = frozenset()
    """GPUs on which the job waits for its turn."""
    yields: frozenset[str] = frozenset()
    """GPUs that a job of a higher priority uses."""
    grant_number: int = 0
    growth: dict[str, Growth] = field(default_factory=dict)
    """Growth by GPU."""
    sent: list[tuple[int, dict[str, int]]] = field(default_factory=list)
    """Unacknowledged grants, with their numbers."""

    def may_hold_bytes(self, gpu: str) -> int:
        """Returns the maximum of the newest grant and all unacknowledged grants."""
        most = self.granted.get(gpu, 0)
        for _, grant in self.sent:
            most = max(most, grant.get(gpu, 0))
        return most

    def grant(self) -> None:
        """Copies the leases into a new grant."""
        self.grant_number += 1
        self.sent.append((self.grant_number, dict(self.granted)))
        if len(self.sent) > SENT_MOST:
            (_, old), (number, new) = self.sent[:2]
            both = {gpu: max(old.get(gpu, 0), new.get(gpu, 0)) for gpu in self.gpus}
            self.sent[:2] = [(number, both)]

    def leave(self, gpu: str) -> None:
        """Drops the lease and the turn on a GPU that the job has stopped using."""
        self.granted.pop(gpu, None)
        self.waits -= {gpu}
        self.yields -= {gpu}
