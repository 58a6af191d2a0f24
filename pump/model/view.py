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
    to_gpu_credit: int
    """Blocks that may be sent to the GPU now (in-flight bound less what is in flight)."""
    to_host_credit: int
    faults: int
    """Blocks that came by fault since the last view of this device."""
    live: int
    """All blocks that there are, wherever they are."""
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
    missing_all: bool
    """`missing` is everything the window misses, not only the start of it."""
    shortfalls_need: NDArray[np.int64]
    """Room that will be short soon, block by block: the operation that lacks it. Soon: before
    as much room is taken, given back or not, as blocks may be in flight. Room that comes by
    itself counts; what is on its way out is gone. None, and no surplus, while nothing is
    expected."""
    surplus: int
    """Leavers that have to be away at some time before they are needed, whoever else may
    leave until then; among those that are needed as late as the first."""
    expected: int
    """Operations in the view that were not issued yet."""
    leavers: Blocks
    """Resident blocks that would leave first, needed last first (of those that nothing
    needs, the longest unused first), a bounded number of them."""
    leavers_next_use: NDArray[np.int64]
    """Per leaver: earliest operation of the window that needs it, or NOT_NEEDED."""
    leavers_doubted: int
    """How many of `leavers` are in doubt: those may be missing as well."""
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
    """Blocks of `View.missing`, or resident ones whose age shall be refreshed."""
    to_host: Blocks = NO_BLOCKS
    short_of_room: bool = False
    """Something needed was left out because nothing may leave for it."""
    allowance: int = 0
    """Blocks of free room that operations issued from now on may take without asking:
    what they miss is sent for before the next decision."""
    hold: int = 0
    """Blocks. While something is leaving, nothing has come by fault, and fewer blocks than
    that may leave, and fewer may come (for want of room or of credit), the policy would
    move nothing: it need not be asked. 0: it wants to be asked each time."""


NOTHING = Decision()
"""The decision to move nothing."""
