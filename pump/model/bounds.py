"""Bounds of the worker's tables and queues, with their units, in one place."""

from __future__ import annotations

BLOCK_BYTES = 2 << 20
"""Unit of migration (bytes); the driver's VA block."""

MAX_BLOCKS = 1 << 18
"""Blocks that a worker tracks (512 GiB); memory beyond that comes by faults."""

RESERVE_PERCENT = 3
"""Of a GPU, for memory that is allocated without pump (reason: PUMP_RESERVE_PERCENT)."""


def without_reserve(memory_bytes: int, percent: float = RESERVE_PERCENT) -> int:
    """Bytes that a job may keep resident when `memory_bytes` are free."""
    return memory_bytes - int(memory_bytes // 100 * percent)


def with_reserve(budget_bytes: int, percent: float = RESERVE_PERCENT) -> int:
    """The memory of which `without_reserve` leaves this budget, to a block."""
    memory_bytes = int(budget_bytes / (100 - percent) * 100) // BLOCK_BYTES * BLOCK_BYTES
    while without_reserve(memory_bytes, percent) < budget_bytes:
        memory_bytes += BLOCK_BYTES
    return memory_bytes


SLICE_BLOCKS_LEAST = 4
SLICE_BLOCKS_MOST = 16
SLICE_US = 700
"""Blocks in one command at most: 8 to 32 MiB, so that a command takes about SLICE_US
microseconds beside another one. Long enough to use the link fully, short enough that a free,
which waits for a running slice, waits less than a millisecond."""

IN_FLIGHT_BLOCKS = 32
"""Blocks in flight in each direction at most (64 MiB)."""

IN_FLIGHT_SHARE = 8
"""In flight never more than the budget over this: a block in flight serves no operation."""

DOUBTS_PER_FAULT = 1
"""Blocks marked as maybe evicted for each block that came by fault: the driver may have made
room for it by evicting what migrated longest ago."""

SPARE_PERCENT = 3
"""Of the budget: kept free ahead of need where not everything fits."""
