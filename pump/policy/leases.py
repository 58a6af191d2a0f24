"""Leases: from the budgets that shall be to those that can be granted now. Pure functions.

The order is what matters: a GPU never has to hold more than it has because of a lease that
moves. So a smaller lease is granted at once, and a larger one only out of room that no job
holds any more. A job holds the most of what it was granted and may not have acknowledged
yet, what it says that it has adopted, and what it still has on the GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from pump.model.bounds import BLOCK_BYTES
from pump.policy.arbiter import LEAST_BLOCKS

GRAIN_SHARE: Final = 64
"""A change by less than one part in so many of the GPU is not worth a message, unless others lack
what such changes add up to."""


class Lease(NamedTuple):
    """One job on one GPU; bytes.

    granted_bytes: the newest grant, None before the first. unacknowledged_bytes: the
    largest of the grants that it has not yet acted upon. adopted_bytes: the budgets that
    its clients keep to. resident_bytes: what they have there, on its way included.
    """

    granted_bytes: int | None
    unacknowledged_bytes: int
    adopted_bytes: int
    resident_bytes: int

    @property
    def held_bytes(self) -> int:
        """What no other job can be granted."""
        granted = self.granted_bytes or 0
        return max(granted, self.unacknowledged_bytes, self.adopted_bytes, self.resident_bytes)


def step(
    memory_bytes: int,
    targets: Mapping[int, int],
    leases: Mapping[int, Lease],
    growing: bool = True,
) -> dict[int, int]:
    """Return the grants to send now, by job, in bytes: only those that change.

    memory_bytes, targets: of one GPU, as given to and by the arbiter. growing: False while
    it is not known yet what each job holds: then no job gets more than it has adopted.
    """
    room = memory_bytes - sum(lease.held_bytes for lease in leases.values())
    grain = memory_bytes // GRAIN_SHARE if room >= 0 else 0
    above = grain
    if sum(targets[job] - leases[job].held_bytes for job in _hungry(grain, targets, leases)) > room:
        above //= len(leases)  # many jobs that each keep a little more starve one together
    least = LEAST_BLOCKS * BLOCK_BYTES
    grants: dict[int, int] = {}
    for job, lease in leases.items():
        if lease.granted_bytes is None:
            # It keeps what it has, as far as others leave it: growing comes in its turn.
            own = max(0, room + lease.held_bytes)
            grants[job] = min(targets[job], lease.adopted_bytes, max(least, own))
            grants[job] = max(grants[job], min(least, targets[job]))
        elif targets[job] + above < lease.granted_bytes:
            grants[job] = targets[job]
    if growing and room >= 0:  # up to what it holds still, a job can have anew
        _grow(room, grain, targets, leases, grants)
    return {job: bytes_ for job, bytes_ in grants.items() if bytes_ != leases[job].granted_bytes}


def _hungry(grain: int, targets: Mapping[int, int], leases: Mapping[int, Lease]) -> list[int]:
    return [job for job, one in leases.items() if (one.granted_bytes or 0) + grain < targets[job]]


def _grow(
    room: int,
    grain: int,
    targets: Mapping[int, int],
    leases: Mapping[int, Lease],
    grants: dict[int, int],
) -> None:
    """Give `room` to those below their targets, the poorest by share first."""
    hungry = [job for job in _hungry(grain, targets, leases) if job not in grants]
    hungry.sort(key=lambda job: (leases[job].held_bytes / max(1, targets[job]), job))
    for job in hungry:
        lease = leases[job]
        held = lease.held_bytes
        reached = min(targets[job], (held + room) // BLOCK_BYTES * BLOCK_BYTES)
        if reached > (lease.granted_bytes or 0):
            grants[job] = reached
            room -= max(0, reached - held)
