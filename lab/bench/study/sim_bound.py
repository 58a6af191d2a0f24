"""Belady's bytes if evictions are chosen by next touch: how a study may have counted.

Unlike pump_lab.floor, this does not know that contents will be overwritten before they are read:
they are evicted like others. They need not return, though.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pump_lab.floor import Touch

ITERATIONS = 3


def by_next_touch(iteration: Sequence[Touch], blocks: int) -> tuple[int, int]:
    """Returns the blocks to the GPU and to the host in the third of three iterations, with memory
    for `blocks`. Contents that are overwritten before they are read do not count on their way in.
    """
    sequence = list(iteration) * ITERATIONS
    next_touches = _next_touches(sequence)
    resident: dict[int, int] = {}
    queue: list[tuple[int, int]] = []
    seen: set[int] = set()
    came = left = 0
    before = 0, 0
    for now, touch in enumerate(sequence):
        if now == len(sequence) - len(iteration):
            before = came, left
        used = (*touch.reads, *touch.updates, *touch.overwrites)
        came += sum(b in seen and b not in resident for b in (*touch.reads, *touch.updates))
        seen.update(used)
        for block, later in zip(used, next_touches[now], strict=True):
            resident[block] = later
            heapq.heappush(queue, (-later, block))
        own, kept = frozenset(used), []
        while len(resident) > blocks and queue:
            furthest, block = heapq.heappop(queue)
            if resident.get(block) != -furthest:
                continue
            if block in own and len(used) <= blocks:
                kept.append((furthest, block))
                continue
            del resident[block]
            left += 1
        for entry in kept:
            heapq.heappush(queue, entry)
    return came - before[0], left - before[1]


def _next_touches(sequence: Sequence[Touch]) -> list[list[int]]:
    upcoming: dict[int, int] = {}
    found: list[list[int]] = [[] for _ in sequence]
    for now in range(len(sequence) - 1, -1, -1):
        touch = sequence[now]
        used = (*touch.reads, *touch.updates, *touch.overwrites)
        found[now] = [upcoming.get(block, len(sequence)) for block in used]
        upcoming.update(dict.fromkeys(used, now))
    return found
