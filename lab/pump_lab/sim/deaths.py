"""The freed memory that is worth a discard: whole blocks that stay free long enough. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pump.model.bounds import BLOCK_BYTES

LEAST_KERNELS_FREE: Final = 4
SHARE_FREE: Final = 16
"""Memory is discarded only if it stays free for at least 1/SHARE_FREE of an iteration's kernels. A
shorter discard costs more than it saves (docs/decisions/0042-discards.md)."""

Span = tuple[int, int, int]
"""range, offset_bytes, length_bytes."""


def worth_kernels(count: int) -> int:
    """Returns for how many kernels memory must stay free to be worth a discard. `count`: kernels of
    an iteration."""
    return max(LEAST_KERNELS_FREE, count // SHARE_FREE)


def lasting(
    used: Sequence[Iterable[Span]],
    freed: Mapping[int, Iterable[Span]],
    first_blocks: Sequence[int],
    blocks: int,
    kernels: int,
) -> dict[int, list[Span]]:
    """Returns the whole blocks of `freed` that no kernel uses for more than `kernels` kernels.

    The iteration repeats. `used`: The spans of each kernel. `freed`: The spans freed after a
    kernel, by kernel. `first_blocks`: The first block of each range. `blocks`: The number of all
    blocks.
    """
    count = len(used)
    next_use: NDArray[np.int64] = np.full(blocks, 3 * count, np.int64)
    found: dict[int, list[Span]] = {}
    for number in range(2 * count - 1, -1, -1):
        for index, offset, length in freed.get(number, ()):
            begin = first_blocks[index] - (-offset // BLOCK_BYTES)
            end = first_blocks[index] + (offset + length) // BLOCK_BYTES
            stays = next_use[begin:end] - number > kernels
            for first, stop in _runs(stays):
                offset_bytes = (begin + first - first_blocks[index]) * BLOCK_BYTES
                span = index, offset_bytes, (stop - first) * BLOCK_BYTES
                found.setdefault(number, []).append(span)
        for index, offset, length in used[number % count]:
            begin = first_blocks[index] + offset // BLOCK_BYTES
            next_use[begin : first_blocks[index] - (-(offset + length) // BLOCK_BYTES)] = number
    return found


def _runs(flags: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Returns [first, stop) of each run of set flags."""
    edges = np.flatnonzero(np.diff(flags.astype(np.int8), prepend=0, append=0)).tolist()
    return list(zip(edges[::2], edges[1::2], strict=True))
