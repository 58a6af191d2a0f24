"""Leases: turns the arbiter's budgets into grants that are possible at once. Pure functions.

While leases change, a GPU must not have to hold more than its memory. So a smaller lease is granted
at once, and a larger one only from memory that no job holds. A job holds the maximum of three
amounts: its grants that may be unacknowledged, the budgets that it has adopted, and its memory on
the GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from pump.model.bounds import BLOCK_BYTES
from pump.policy.arbiter import LEAST_BLOCKS

GRAIN_SHARE: Final = 64
"""A change by less than 1/GRAIN_SHARE of the GPU is not sent, unless other jobs need the sum of
such changes [guessed]."""


class Lease(NamedTuple):
    """One job's lease on one GPU; bytes.

    `granted_bytes`: the newest grant, None before the first. `unacknowledged_bytes`: the largest
    grant that the job has not acknowledged. `adopted_bytes`: the budgets of its clients.
    `resident_bytes`: its clients' memory there, arriving and leaving blocks included.
    """

    granted_bytes: int | None
    unacknowledged_bytes: int
    adopted_bytes: int
    resident_bytes: int

    @property
    def held_bytes(self) -> int:
        """Returns the bytes that cannot be granted to another job."""
        granted = self.granted_bytes or 0
        return max(granted, self.unacknowledged_bytes, self.adopted_bytes, self.resident_bytes)


def step(
    memory_bytes: int,
    targets: Mapping[int, int],
    leases: Mapping[int, Lease],
    growing: bool = True,
) -> dict[int, int]:
    """Returns the memory to grant to each job, in bytes; only for jobs whose grant changes.

    `memory_bytes`, `targets`: of one GPU, the arbiter's input and output. `growing`: False until
    each job has reported its memory; until then no job gets more than it has adopted.
    """
    room = memory_bytes - sum(lease.held_bytes for lease in leases.values())
    grain = memory_bytes // GRAIN_SHARE if room >= 0 else 0
    above = grain
    lacking = _below_target(grain, targets, leases)
    if sum(targets[job] - leases[job].held_bytes for job in lacking) > room:
        above //= len(leases)  # so that all jobs together exceed their targets by at most one grain
    least = LEAST_BLOCKS * BLOCK_BYTES
    grants: dict[int, int] = {}
    for job, lease in leases.items():
        if lease.granted_bytes is None:
            # Before its first grant, a job keeps the memory that others leave it. It grows later.
            own = max(0, room + lease.held_bytes)
            grants[job] = min(targets[job], lease.adopted_bytes, max(least, own))
            grants[job] = max(grants[job], min(least, targets[job]))
        elif targets[job] + above < lease.granted_bytes:
            grants[job] = targets[job]
    if growing and room >= 0:  # memory that a job already holds can be granted at room 0
        _grow(room, grain, targets, leases, grants)
    return {job: bytes_ for job, bytes_ in grants.items() if bytes_ != leases[job].granted_bytes}


def _below_target(grain: int, targets: Mapping[int, int], leases: Mapping[int, Lease]) -> list[int]:
    return [job for job, one in leases.items() if (one.granted_bytes or 0) + grain < targets[job]]


def _grow(
    room: int,
    grain: int,
    targets: Mapping[int, int],
    leases: Mapping[int, Lease],
    grants: dict[int, int],
) -> None:
    """Grants `room` to jobs below their targets, the smallest share of its target first."""
    lacking = [job for job in _below_target(grain, targets, leases) if job not in grants]
    lacking.sort(key=lambda job: (leases[job].held_bytes / max(1, targets[job]), job))
    for job in lacking:
        lease = leases[job]
        held = lease.held_bytes
        reached = min(targets[job], (held + room) // BLOCK_BYTES * BLOCK_BYTES)
        if reached > (lease.granted_bytes or 0):
            grants[job] = reached
            room -= max(0, reached - held)
