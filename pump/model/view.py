"""What a policy sees of the model, and what it answers.

All quantities count 2 MiB blocks; all orders are operation numbers (`seq`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pump.wire.abi import lib

Blocks = NDArray[np.int64]
NO_BLOCKS: Blocks = np.zeros(0, np.int64)
NO_BLOCKS.setflags(write=False)
NOT_NEEDED: int = lib.PUMP_NOT_NEEDED
"""`next_use` of a block that the window does not need."""


class View(NamedTuple):
    """One device of one client at one moment. Policies read it and keep nothing of it:
    its arrays are overwritten by the next one."""

    budget: int
    """Blocks that may take room on the device."""
    emulated: bool
    """The budget lies below what the card has, so its driver does not evict for us."""
    resident: int
    """Believed there, those in doubt included."""
    arriving: int
    leaving: int
    """Those whose discard is under way included."""
    to_gpu_credit: int
    """Blocks that may be sent to the GPU now (in-flight bound less what is in flight)."""
    to_host_credit: int
    faults: int
    """Blocks that came by fault since the last view of this device."""
    missing: Blocks
    """Blocks that the window needs and that are neither surely there nor on their way,
    soonest first, a bounded number of them."""
    missing_need: NDArray[np.int64]
    """Operation that needs each of `missing`."""
    missing_room: NDArray[np.int64]
    """Blocks of room that `missing` takes up to and including each. One in doubt takes
    none: it was resident, the driver may have evicted it since, its room is counted;
    prefetching it costs little if it is there."""
    arrivals_need: NDArray[np.int64]
    """`missing_need` of those that take room, which may be fewer."""
    missing_more: int
    """Blocks that are missing beyond `missing`; from PUMP_VIEW_MISSING on only that many are
    known."""
    expected: int
    """Operations in the view that were not issued yet."""
    eviction_candidates: Blocks
    """Resident blocks that would leave first, a bounded number of them: those that nothing
    needs, in the order of `model_next_idle` (model_blocks.h), then needed last first."""
    candidates_next_use: NDArray[np.int64]
    """Per candidate: earliest operation of the window that needs it, or NOT_NEEDED."""
    candidates_maybe_evicted: int
    """How many of `eviction_candidates` are in doubt: those may be missing as well."""
    oldest: Blocks
    """Resident blocks that the driver would evict first: migrated longest ago first."""
    oldest_next_use: NDArray[np.int64]

    @property
    def occupied(self) -> int:
        """Blocks that take room: resident, on their way in, or not yet gone."""
        return self.resident + self.arriving + self.leaving

    @property
    def free(self) -> int:
        """Blocks of room, negative after an overshoot."""
        return self.budget - self.resident - self.arriving - self.leaving


class Decision(NamedTuple):
    """What shall move now, in order of urgency."""

    to_gpu: Blocks = NO_BLOCKS
    """Blocks of `View.missing`."""
    to_host: Blocks = NO_BLOCKS


NOTHING = Decision()
"""The decision to move nothing."""
