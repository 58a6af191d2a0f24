"""The arbiter: how the jobs on a GPU share its memory. A pure function.

Each job gets a floor. Priorities share the rest, the highest first, each up to its jobs' wants.
Within a priority, users share by weighted max-min fairness: no user gets more than its jobs want
while another user's jobs want more. A user's jobs share its memory in the same way, by use. So they
take memory only from each other, whatever their number and claims, except for the least blocks of
each job. Memory that no job wants is shared as well, so that a job that grows has it already. So
all memory is granted; `less_spill` returns how much that is.

Not done: sharing by the benefit of a byte and by staggered peaks (TENSILE, arXiv:2105.13336).
Another rule has to keep what test_policy_arbiter.py checks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from pump.model.bounds import BLOCK_BYTES

LEAST_BLOCKS: Final = 4
"""Smallest budget that a shim adopts, in blocks (PUMP_BUDGET_BLOCKS_LEAST) [guessed]."""
FLOORS_SHARE: Final = 16
"""Floors take 1/FLOORS_SHARE of a GPU, by weight, for all priorities [guessed]."""
LEAST_SHARE: Final = 8
"""Floors take up to 1/LEAST_SHARE if single operations need it. An operation with too little memory
waits for its blocks on the GPU, and so do the other jobs [guessed]."""
SPILL_BYTES: Final = 64 << 20
"""Most bytes above a job's budget: a shim has at most this many in flight in one direction
[derived]."""
IDLE_WEIGHT: Final = 0.125
"""Weight of a job that never uses the GPU; a job that always uses it has weight 1 [guessed]."""


class Claim(NamedTuple):
    """The claim of one job on one GPU.

    `wanted_bytes`: its live memory there, or its user's bound if that is less. `use`: recent share
    of the time in which it used the GPU, 0 to 1. `weight`: of its user, above 0, within one
    priority. `least_bytes`: memory that one operation needs. `user`: its user; None: a user without
    other jobs.
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
        """Returns a key that only the jobs of one user share."""
        return (False, self.job) if self.user is None else (True, self.user)

    @property
    def activity(self) -> float:
        """Returns the job's weight among its user's jobs, 1 at most; a user has its jobs'
        maximum."""
        return IDLE_WEIGHT + (1 - IDLE_WEIGHT) * min(1.0, max(0.0, self.use))


def arbitrate(
    memory_bytes: Mapping[str, int], claims: Sequence[Claim]
) -> dict[tuple[int, str], int]:
    """Returns the budget of each claimed (job, GPU) in bytes; whole blocks.

    `memory_bytes`: by GPU, the most that all jobs together may keep there. Claims on other GPUs are
    left out. There is one claim for each job and GPU.
    """
    budgets: dict[tuple[int, str], int] = {}
    for gpu, mine in _by_gpu(memory_bytes, sorted(claims)).items():
        whole_bytes = memory_bytes[gpu]
        for claim, blocks in zip(mine, _share(whole_bytes // BLOCK_BYTES, mine), strict=True):
            budgets[claim.job, gpu] = blocks * BLOCK_BYTES
    return budgets


def less_spill(memory_bytes: Mapping[str, int], claims: Sequence[Claim]) -> dict[str, int]:
    """Returns the bytes to share, by GPU, less a reserve for jobs that exceed their budgets.

    A job with less memory than it wants exceeds its budget from time to time: faults bring in
    blocks before its own evictions have freed memory. Without the reserve, the driver evicts the
    block that migrated longest ago, which may belong to another job. The jobs of a user share the
    reserve of one job.
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
    """Divides `memory` among the claims, in blocks. The sum is `memory`, if there is a claim."""
    if not claims:
        return []
    least = min(LEAST_BLOCKS, memory // len(claims))
    wants = [max(least, min(memory, -(-claim.wanted_bytes // BLOCK_BYTES))) for claim in claims]
    budgets = [min(pair) for pair in zip(wants, _floors(memory, least, claims), strict=True)]
    owned = [(claim, claim.activity) for claim in claims]
    for priority in sorted({claim.priority for claim in claims}, reverse=True):
        level = [i for i, claim in enumerate(claims) if claim.priority == priority]
        _share_rest(memory, budgets, level, wants, owned)
    everyone = range(len(claims))
    _share_rest(memory, budgets, everyone, [memory] * len(claims), owned)
    return budgets


def _floors(memory: int, least: int, claims: Sequence[Claim]) -> list[int]:
    """Returns each job's floor: an equal part of its user's floor, which goes by weight."""
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


def _share_rest(
    memory: int,
    levels: list[int],
    which: Sequence[int],
    caps: Sequence[int],
    owned: Sequence[tuple[Claim, float]],
) -> None:
    """Raises `levels` of `which` by the rest of `memory`, at most to their caps: users by weight,
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
    """Returns `room` divided by weight, each share between its least and its most. The other shares
    make up the differences."""
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
