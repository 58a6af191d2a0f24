"""Bounds of the worker's tables and queues, with their units, in one place."""

from __future__ import annotations

BLOCK_BYTES = 2 << 20
"""Unit of migration (bytes); the driver's VA block."""

MAX_BLOCKS = 1 << 18
"""Blocks a worker keeps track of (512 GiB); memory beyond that is left to faults."""

SLICE_BLOCKS = 4
"""Blocks in one command at most (8 MiB): long enough to fill a link, short enough that a
free, which waits for a running slice, waits well under a millisecond on PCIe 4."""

IN_FLIGHT_BLOCKS = 32
"""Blocks on their way in each direction at most (64 MiB)."""

IN_FLIGHT_SHARE = 8
"""In flight never more than the budget over this: on the way, a block serves nobody."""

LOOKAHEAD_BLOCKS = 128
"""Missing blocks shown to a policy in one view."""

LEAVERS_BLOCKS = 64
"""Blocks that could leave shown to a policy in one view; above IN_FLIGHT_BLOCKS."""

DOUBTS_PER_FAULT = 1
"""Blocks put in doubt for each block that came by fault: the driver may have made room
for it by evicting what migrated longest ago."""

WATERMARK = 0.03
"""Share of the budget that is kept free ahead of need."""
