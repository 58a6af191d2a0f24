"""What the administrator sets of the service. No I/O: serve.py reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pumpd.service.owners import Owners
from pumpd.service.quota import Quotas


@dataclass(frozen=True)
class ServiceSettings:
    """Settings of the service.

    beat_s: longest time between a job's frames. settle_s: after its start the service lets no
    lease grow for so long. weights: of users by number, 1 for others. observers: users that see
    all jobs, beside root and the service's own if root_sees_all. owners: of user ids. reserve:
    of each GPU, is never granted; bytes ("1073741824") or a share ("3%"). turns: jobs that want
    much more than a GPU has take turns.
    """

    quotas: Quotas = field(default_factory=Quotas)
    beat_s: float = 2.0
    settle_s: float = 5.0
    weights: Mapping[int, float] = field(default_factory=dict)
    observers: frozenset[int] = frozenset()
    root_sees_all: bool = True
    owners: Owners = field(default_factory=Owners)
    reserve: str = "3%"
    turns: bool = True
    log_level: str = "warning"
