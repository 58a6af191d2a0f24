"""The administrator's settings of the service. No I/O: serve.py reads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pump.config.schema import Service
from pumpd.service.owners import Owners
from pumpd.service.quota import Quotas


@dataclass(frozen=True)
class ServiceSettings:
    """Settings of the service.

    `beat_s`: longest time between a job's frames. `settle_s`: time after the service's start in
    which no lease grows. `weights`: weights of users by ID; other users have 1. `observers`: users
    that see all jobs; root and the service's own user do so too if table.root_sees_all. `owners`:
    owners of user IDs. `table`: the table [service].
    """

    quotas: Quotas = field(default_factory=Quotas)
    beat_s: float = 2.0
    settle_s: float = 5.0
    weights: Mapping[int, float] = field(default_factory=dict)
    observers: frozenset[int] = frozenset()
    owners: Owners = field(default_factory=Owners)
    table: Service = field(default_factory=Service)
