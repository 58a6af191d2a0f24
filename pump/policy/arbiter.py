"""The arbiter: how the jobs on a GPU share its memory. A pure function.

Each job gets a floor. What is left goes to priorities, the highest first, each up to what its
jobs want. Within a priority users share, weighted max-min fairly: none gets more than its jobs want
while another's want more. A user's jobs share what it has in the same way, by use. So one user's
jobs take from each other, however many they are and whatever they say, but for the blocks that each
job has at least. What no job wants is shared as well: a job that grows then has it already. So all
memory is granted; `less_spill` says how much that is.

Not done: sharing by the benefit of a byte and by staggered peaks (TENSILE, arXiv:2105.13336).
Another rule has to keep what test_policy_arbiter.py checks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from pump.model.bounds import BLOCK_BYTES

LEAST_BLOCKS: Final = 4
"""Smallest budget that a shim adopts (PUMP_BUDGET_BLOCKS_LEAST)."""
FLOORS_SHARE: Final = 16
"""One part in so many of a GPU is kept for floors, by weight, for all priorities."""
LEAST_SHARE: Final = 8
"""The same where jobs need as much for one operation: one that finds too little room for its memory
waits for it on the GPU, and so do the others."""
SPILL_BYTES: Final = 64 << 20
"""By which a job may exceed its budget: most that a shim has in flight in one direction."""
IDLE_WEIGHT: Final = 0.125
"""Weight of a job that uses nothing, against 1 of one that always does."""


class Claim(NamedTuple):
    """What one job asks of one GPU.

    wanted_bytes: its live memory there, or its user's bound if that is less. use: recent share
    of the time in which it used the GPU, 0 to 1. weight: of its user, above 0, within one
    priority. least_bytes: what it needs for one operation. user: whose it is; None: of a user
    that has no other.
    """

    job: int
    gpu: str
    priority: int
    wanted_bytes: int
    use: float
    weight: float = 1.0
    least_bytes: int = 0
    user: int | None = None

    @property
    def owner(self) -> tuple[bool, int]:
        """What is the same for the jobs of one user alone."""
        return (False, self.job) if self.user is None else (True, self.user)

    @property
    def activity(self) -> float:
        """Its weight among its user's jobs, 1 at most, and its user's by the most active one."""
        return IDLE_WEIGHT + (1 - IDLE_WEIGHT) * min(1.0, max(0.0, self.use))


def arbitrate(
    memory_bytes: Mapping[str, int], claims: Sequence[Claim]
) -> dict[tuple[int, str], int]:
    """Return the budget in bytes of each (job, GPU) that is claimed; whole blocks.

    memory_bytes: by GPU, what all jobs together may keep there. Claims on other GPUs get
    nothing and are left out. One claim for each job and GPU.
    """
    budgets: dict[tuple[int, str], int] = {}
    for gpu, mine in _by_gpu(memory_bytes, sorted(claims)).items():
        whole_bytes = memory_bytes[gpu]
        for claim, blocks in zip(mine, _share(whole_bytes // BLOCK_BYTES, mine), strict=True):
            budgets[claim.job, gpu] = blocks * BLOCK_BYTES
    return budgets


def less_spill(memory_bytes: Mapping[str, int], claims: Sequence[Claim]) -> dict[str, int]:
    """Return the bytes to share, by GPU, less room for jobs that exceed their budgets.

    A job that has less than it wants exceeds its budget from time to time, by what its faults
    bring in before its own evictions have made room. Without room for that the driver evicts
    what migrated longest ago, which may be another job's memory. One user's jobs have the room of
    one.
    """
    budgets = arbitrate(memory_bytes, claims)
    left = {}
    for gpu, mine in _by_gpu(memory_bytes, claims).items():
        whole_bytes = memory_bytes[gpu]
        short = {one.owner for one in mine if budgets[one.job, gpu] < one.wanted_bytes}
        spill = min(len(short) * SPILL_BYTES, whole_bytes // FLOORS_SHARE) if len(mine) > 1 else 0
        left[gpu] = (whole_bytes - spill) // BLOCK_BYTES * BLOCK_BYTES
    return left


def _by_gpu(gpus: Iterable[str], claims: Iterable[Claim]) -> dict[str, list[Claim]]:
    found: dict[str, list[Claim]] = {gpu: [] for gpu in gpus}
    for claim in claims:
        if claim.gpu in found:
            found[claim.gpu].append(claim)
    return found


def _share(memory: int, claims: Sequence[Claim]) -> list[int]:
    """All in blocks. The sum is `memory`, if any job claims it."""
    if not claims:
        return []
    least = min(LEAST_BLOCKS, memory // len(claims))
    wants = [max(least, min(memory, -(-claim.wanted_bytes // BLOCK_BYTES))) for claim in claims]
    budgets = [min(pair) for pair in zip(wants, _floors(memory, least, claims), strict=True)]
    owned = [(claim, claim.activity) for claim in claims]
    for priority in sorted({claim.priority for claim in claims}, reverse=True):
        level = [i for i, claim in enumerate(claims) if claim.priority == priority]
        _raise(memory, budgets, level, wants, owned)
    everyone = range(len(claims))
    _raise(memory, budgets, everyone, [memory] * len(claims), owned)
    return budgets


def _floors(memory: int, least: int, claims: Sequence[Claim]) -> list[int]:
    """Each user's floor, by weight, in equal parts for its jobs."""
    owners = [claim.owner for claim in claims]
    weights = {owner: claim.weight for owner, claim in zip(owners, claims, strict=True)}
    jobs = Counter(owners)
    whole = sum(weights.values())
    parts = {owner: weight / whole / jobs[owner] for owner, weight in weights.items()}
    usual = {owner: int((memory // FLOORS_SHARE) * part) for owner, part in parts.items()}
    most = {owner: int((memory // LEAST_SHARE) * part) for owner, part in parts.items()}
    floors = [
        max(usual[owner], min(most[owner], -(-claim.least_bytes // BLOCK_BYTES)))
        if claim.least_bytes
        else usual[owner]
        for owner, claim in zip(owners, claims, strict=True)
    ]
    if sum(floors) + least * len(claims) > memory:
        return [least] * len(claims)
    return [max(least, floor) for floor in floors]


def _raise(
    memory: int,
    levels: list[int],
    which: Sequence[int],
    caps: Sequence[int],
    owned: Sequence[tuple[Claim, float]],
) -> None:
    """Raise `levels` of `which` by what is left of `memory`, none above its cap: users by weight,
    and each user's jobs by activity. owned: claims, with their activity."""
    left = memory - sum(levels)
    if left <= 0:
        return
    mine: dict[tuple[bool, int], list[int]] = {}
    for i in which:
        mine.setdefault(owned[i][0].owner, []).append(i)
    jobs = list(mine.values())
    weights = [max(owned[i][1] for i in ones) * owned[ones[0]][0].weight for ones in jobs]
    least = [sum(levels[i] for i in ones) for ones in jobs]
    most = [sum(caps[i] for i in ones) for ones in jobs]
    users = filled(left + sum(least), least, most, weights)
    for ones, has in zip(jobs, users, strict=True):
        each = [owned[i][1] for i in ones]
        got = filled(has, [levels[i] for i in ones], [caps[i] for i in ones], each)
        for i, level in zip(ones, got, strict=True):
            levels[i] = level


def filled(
    room: int, least: Sequence[int], most: Sequence[int], weights: Sequence[float]
) -> list[int]:
    """Return `room` as shares by weight, each between its least and its most: what one lacks to
    its least, or cannot take beyond its most, is the others'."""
    room = min(room, sum(most))
    have = sum(least)
    if have >= room or len(least) == 1:
        return list(least) if have >= room else [room]
    bends = [(low / weight, weight) for low, weight in zip(least, weights, strict=True)]
    bends += [(high / weight, -weight) for high, weight in zip(most, weights, strict=True)]
    height = slope = 0.0
    total = float(have)
    for bend, change in sorted(bends):
        if slope > 0 and total + slope * (bend - height) >= room:
            break
        total += slope * (bend - height)
        height, slope = bend, slope + change
    height += (room - total) / slope if slope > 0 else 0.0
    shares = [
        min(high, max(low, int(height * weight)))
        for low, high, weight in zip(least, most, weights, strict=True)
    ]
    left = room - sum(shares)
    while left > 0:  # less than a block for each: the first ones get one each
        for i, high in enumerate(most):
            if left > 0 and shares[i] < high:
                shares[i] += 1
                left -= 1
    return shares
