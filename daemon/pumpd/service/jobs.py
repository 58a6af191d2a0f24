"""What the service knows of a job: its reports, its grants, how it grows. No I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from pump.wire import service as wire
from pumpd.service.owners import Identity

SENT_MOST = 16
"""Grants kept apart until they are acknowledged; older ones are kept as one."""
GROWTH_S = 1.0
"""Reports closer together do not show whether a job grows: it reports at once when it is granted
more, and fetches blocks afterwards."""


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
        most = self.granted.get(gpu, 0)
        for _, grant in self.sent:
            most = max(most, grant.get(gpu, 0))
        return most

    def grant(self) -> None:
        """Its leases go into a new grant."""
        self.grant_number += 1
        self.sent.append((self.grant_number, dict(self.granted)))
        if len(self.sent) > SENT_MOST:
            (_, old), (number, new) = self.sent[:2]
            both = {gpu: max(old.get(gpu, 0), new.get(gpu, 0)) for gpu in self.gpus}
            self.sent[:2] = [(number, both)]

    def leave(self, gpu: str) -> None:
        """It uses a GPU no more."""
        self.granted.pop(gpu, None)
        self.waits -= {gpu}
        self.yields -= {gpu}
