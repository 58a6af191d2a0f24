"""From block numbers to commands: consecutive blocks of one range travel together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pump.model.blocks import BlockTable
from pump.model.bounds import BLOCK_BYTES, SLICE_BLOCKS


@dataclass(frozen=True, slots=True)
class Slice:
    """Consecutive blocks of one range, and the bytes of the range that they cover."""

    blocks: NDArray[np.int64]
    index: int
    """Of its first block in the array that was cut."""
    slot: int
    generation: int
    offset_bytes: int
    length_bytes: int


def cut(table: BlockTable, blocks: NDArray[np.int64]) -> list[Slice]:
    """Cut `blocks` (shape [n], any order, kept) into slices of at most SLICE_BLOCKS.

    Blocks that no range owns any more are left out.
    """
    if len(blocks) == 0:
        return []
    slots = table.slot[blocks]
    joins = (np.diff(blocks) == 1) & (slots[1:] == slots[:-1])
    borders = np.flatnonzero(~joins) + 1
    slices: list[Slice] = []
    begin = 0
    for end in [*borders.tolist(), len(blocks)]:
        if slots[begin] >= 0:
            for i in range(begin, end, SLICE_BLOCKS):
                slices.append(_slice(table, blocks, i, min(i + SLICE_BLOCKS, end)))
        begin = end
    return slices


def _slice(table: BlockTable, blocks: NDArray[np.int64], begin: int, end: int) -> Slice:
    slot = int(table.slot[blocks[begin]])
    tracked = table.ranges[slot]
    first = int(blocks[begin]) - tracked.first_block
    offset = first * BLOCK_BYTES - tracked.lead_bytes
    limit = offset + (end - begin) * BLOCK_BYTES
    offset = max(0, offset)
    return Slice(
        blocks=blocks[begin:end],
        index=begin,
        slot=slot,
        generation=tracked.record.generation,
        offset_bytes=offset,
        length_bytes=min(limit, tracked.record.length_bytes) - offset,
    )
