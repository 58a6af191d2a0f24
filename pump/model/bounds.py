"""Bounds of the worker's tables and queues, with their units, in one place."""

from __future__ import annotations

BLOCK_BYTES = 2 << 20
"""Unit of migration (bytes); the driver's VA block."""

MAX_BLOCKS = 1 << 18
"""Blocks a worker keeps track of (512 GiB); memory beyond that is left to faults."""

RESERVE_PERCENT = 3
"""Of a GPU, for what is allocated without pump (PUMP_RESERVE_PERCENT, which says why)."""


def without_reserve(memory_bytes: int, percent: float = RESERVE_PERCENT) -> int:
    """What a job may keep of so much memory that is free."""
    return memory_bytes - int(memory_bytes // 100 * percent)


SLICE_BLOCKS_LEAST = 4
SLICE_BLOCKS_MOST = 16
SLICE_US = 700
"""Blocks in one command at most: 8 to 32 MiB, so that one takes about that many
microseconds beside another. Long enough to fill a link, short enough that a free, which
waits for a running slice, waits less than a millisecond."""

IN_FLIGHT_BLOCKS = 32
"""Blocks on their way in each direction at most (64 MiB)."""

IN_FLIGHT_URGENT_BLOCKS = 64
"""To the GPU, as far as the operations that run now lack so much (128 MiB). No use is more
urgent, and those operations fault for what the driver has not been asked for, at half the rate."""

IN_FLIGHT_SHARE = 8
"""In flight never more than the budget over this: on the way, a block serves no operation."""

DOUBTS_PER_FAULT = 1
"""Blocks put in doubt for each block that came by fault: the driver may have made room
for it by evicting what migrated longest ago."""

WATERMARK = 0.03
"""Share of the budget that is kept free ahead of need."""

REFRESH_BLOCKS = 4
"""Resident blocks prefetched again at once, so that they are not the driver's next
victims: 8 us of an executor's time each, no bytes."""
