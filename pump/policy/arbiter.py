"""The arbiter: how the jobs on a GPU share its memory. A pure function.

Each job gets a floor. What is left goes to priorities, the highest first, each up to what its
jobs want. Jobs of one priority share by use, weighted max-min fairly: no job gets more than it
wants while another wants more. What no job wants is shared as well: a job that grows then has
it already. So all memory is granted; `less_spill` says how much that is.

Not done: sharing by the benefit of a byte and by staggered peaks (TENSILE, arXiv:2105.13336).
Another rule has to keep what test_policy_arbiter.py checks.
"""

from __future__ import annotations

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
    priority. least_bytes: what it needs for one operation.
    """

    job: int
    gpu: str
    priority: int
    wanted_bytes: int
    use: float
    weight: float = 1.0
    least_bytes: int = 0


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
    what migrated longest ago, which may be another job's memory.
    """
    budgets = arbitrate(memory_bytes, claims)
    left = {}
    for gpu, mine in _by_gpu(memory_bytes, claims).items():
        whole_bytes = memory_bytes[gpu]
        short = sum(budgets[claim.job, gpu] < claim.wanted_bytes for claim in mine)
        spill = min(short * SPILL_BYTES, whole_bytes // FLOORS_SHARE) if len(mine) > 1 else 0
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
    whole = sum(claim.weight for claim in claims)
    floors = [
        max(
            int((memory // FLOORS_SHARE) * claim.weight / whole),
            min(
                int((memory // LEAST_SHARE) * claim.weight / whole),
                -(-claim.least_bytes // BLOCK_BYTES),
            ),
        )
        for claim in claims
    ]
    if sum(floors) + least * len(claims) > memory:
        floors = [0] * len(claims)
    floors = [max(least, floor) for floor in floors]
    budgets = [min(want, floor) for want, floor in zip(wants, floors, strict=True)]
    weights = [
        c.weight * (IDLE_WEIGHT + (1 - IDLE_WEIGHT) * min(1.0, max(0.0, c.use))) for c in claims
    ]
    for priority in sorted({claim.priority for claim in claims}, reverse=True):
        level = [i for i, claim in enumerate(claims) if claim.priority == priority]
        _pour(memory - sum(budgets), budgets, level, wants, weights)
    all_claims = list(range(len(claims)))
    _pour(memory - sum(budgets), budgets, all_claims, [memory] * len(claims), weights)
    return budgets


def _pour(
    room: int,
    levels: list[int],
    which: Sequence[int],
    caps: Sequence[int],
    weights: Sequence[float],
) -> None:
    """Raise `levels` of `which` by up to `room` in all, none above its cap, by weight."""
    open_ones = [i for i in which if levels[i] < caps[i]]
    while room > 0 and open_ones:
        whole = sum(weights[i] for i in open_ones)
        given = 0
        for i in open_ones:
            part = min(caps[i] - levels[i], int(room * weights[i] / whole))
            levels[i] += part
            given += part
        if given == 0:  # less than a block for each: the first ones get one each
            for i in open_ones[:room]:
                levels[i] += 1
                given += 1
        room -= given
        open_ones = [i for i in open_ones if levels[i] < caps[i]]
