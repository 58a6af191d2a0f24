"""A floor that knows the order of things: what parts of an iteration must cost at least. Pure.

DESIGN
  pump/sim/floor.py lets all bytes of an iteration cross the link at any time. But a part of it,
  operations a to b, has a beginning and an end, and the memory holds C blocks at each:

    leave  of the blocks used in the part, L hold contents at its end that are needed behind it.
           Each was in memory when it was used, at most C are at the end, and a block has room
           until it is gone. So L - C have left within the part. Unified Memory knows no clean
           block, so each was copied, and one that the driver would find clean would have to
           have come before (below).
    come   of the blocks used in the part, N are first read there, with contents older than it.
           At most C were in memory, or on their way with room taken, at its beginning. So
           N - C have come within the part.

  The part takes as long as its kernels, and as long as the link for these bytes, both ways
  together. Parts follow each other without overlapping, so their times add up; the best
  partition gives the bound. None of this says who decides, or what is known: it holds for the
  true future. Discards are respected, as contents that nobody needs. A forward pass that fills
  the memory several times over has nothing to fetch, and the backward pass little to write
  back: there the two directions of a link cannot be busy at once.

  A bound, not the best: memory that the running operation's own blocks take is not counted off.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pump.model.bounds import BLOCK_BYTES
from pump.sim.floor import Rates, Touch, link_seconds

PARTS = 96
"""Places between which an iteration may be cut."""

Counts = NDArray[np.int64]


def least_seconds(
    operations: Sequence[Touch], compute_ns: Sequence[int], memory_bytes: int, rates: Rates
) -> float:
    """Seconds of one iteration out of many, for any policy.

    compute_ns: of each operation.
    """
    come, leave = crossings(operations)
    parts = len(come)
    capacity = memory_bytes // BLOCK_BYTES
    edges = _edges(len(operations), parts)
    passed = np.concatenate(([0], np.cumsum(np.asarray(compute_ns, np.float64))))[edges] / 1e9
    best = np.zeros(parts + 1)
    for end in range(1, parts + 1):
        for begin in range(end):
            there = max(0, int(come[begin, end - 1]) - capacity) * BLOCK_BYTES
            back = max(0, int(leave[begin, end - 1]) - capacity) * BLOCK_BYTES
            least = max(passed[end] - passed[begin], link_seconds(there, back, rates))
            best[end] = max(best[end], best[begin] + least)
    return float(best[parts])


def crossings(operations: Sequence[Touch], parts: int = PARTS) -> tuple[Counts, Counts]:
    """Blocks whose older contents the parts [begin, end] need, and blocks used in them whose
    contents are needed behind them; shape [parts, parts], the iteration going round."""
    parts = max(1, min(parts, len(operations)))
    edges = _edges(len(operations), parts)
    pieces = [_uses(operations[edges[i] : edges[i + 1]]) for i in range(parts)]
    blocks = 1 + max((int(used.max()) for used, _ in pieces if len(used)), default=0)
    come: Counts = np.zeros((parts, parts), np.int64)
    leave: Counts = np.zeros((parts, parts), np.int64)
    # Backwards, twice round: by block the part of its next use, and whether that reads.
    where, reads = np.full(blocks, -1), np.zeros(blocks, bool)
    needed_behind: list[NDArray[np.bool_]] = [reads] * parts
    for turn in (1, 0):
        for part in range(parts - 1, -1, -1):
            used, read = pieces[part]
            needed_behind[part] = reads.copy()
            where[used[::-1]], reads[used[::-1]] = turn * parts + part, read[::-1]
            if turn == 0:
                here = (where >= part) & (where < parts) & reads
                come[part] = np.cumsum(np.bincount(where[here], minlength=parts))
    last = np.full(blocks, -1)
    for part in range(parts):
        last[pieces[part][0]] = part
        alive = last[(last >= 0) & needed_behind[part]]
        leave[:, part] = np.cumsum(np.bincount(alive, minlength=parts)[::-1])[::-1]
    return come, leave


def _edges(operations: int, parts: int) -> list[int]:
    return [operations * i // parts for i in range(parts + 1)]


def _uses(operations: Sequence[Touch]) -> tuple[Counts, NDArray[np.bool_]]:
    """Blocks in order, and whether each use reads what was there."""
    used: list[int] = []
    read: list[bool] = []
    for touch in operations:
        needed = (*touch.reads, *touch.updates)
        used += (*needed, *touch.overwrites)
        read += [True] * len(needed) + [False] * len(touch.overwrites)
    return np.array(used, np.int64), np.array(read, bool)
