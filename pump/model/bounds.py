"""Bounds of the worker's tables and queues, with their units, in one place."""

from __future__ import annotations

BLOCK_BYTES = 2 << 20
"""Unit of migration in bytes: the driver's VA block [published: uvm_va_block_types.h]."""

MAX_BLOCKS = 1 << 18
"""Most blocks that a worker tracks (512 GiB); memory beyond them arrives by faults [guessed]."""

RESERVE_PERCENT = 3
"""Percentage of a GPU kept for memory that is allocated without pump (see PUMP_RESERVE_PERCENT)
[measured: 0023]."""


def without_reserve(memory_bytes: int, percent: float = RESERVE_PERCENT) -> int:
    """Returns the bytes that a job may keep resident when `memory_bytes` are free."""
    return memory_bytes - int(memory_bytes // 100 * percent)


SLICE_BLOCKS_LEAST = 4
SLICE_BLOCKS_MOST = 16
SLICE_US = 700
"""Limits of a command's size in blocks (8 to 32 MiB). Within them, a command takes about SLICE_US
microseconds alongside another one. That is long enough to use the link fully, and short enough that
a free, which waits for a running slice, waits less than a millisecond [measured: 0039]."""

IN_FLIGHT_BLOCKS = 32
"""Most blocks in flight in each direction (64 MiB) [guessed]."""

IN_FLIGHT_SHARE = 8
"""At most 1/IN_FLIGHT_SHARE of the budget is in flight: a block in flight serves no operation
[guessed]."""

DOUBTS_PER_FAULT = 1
"""Blocks marked as possibly evicted for each block that arrived by fault. The driver may have
evicted the blocks that migrated longest ago to make space for it [derived]."""

SPARE_PERCENT = 3
"""Percentage of the budget that is kept free ahead of need if not everything fits
[measured: 0072]."""
