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
    missing_more: int
    """Blocks that are missing beyond `missing`; from PUMP_VIEW_MISSING on only that many are
    known."""
    shortfalls_need: NDArray[np.int64]
    """Room that will be short soon, block by block: the operation that lacks it. Soon: before
    as much room is taken, given back or not, as blocks may be in flight. Room that comes by
    itself counts; what is on its way out is gone."""
    surplus: int
    """Eviction candidates that have to be away at some time before they are needed, whichever
    others may leave until then; among those that are needed as late as the first."""
    headroom: int
    """How many of `missing` may set out before there is a shortfall or a surplus; 0: there is
    one, or it is unknown."""
    exchange: int
    """Blocks that may leave for as many missing ones although room will come by itself: an
    operation waited lately for what was held back. At most `to_host_credit`, and 0 while
    anything is under way."""
    expected: int
    """Operations in the view that were not issued yet."""
    streams: int
    """Streams with operations that have not executed. With more than one, `missing` is in the
    order of their distance from the head of their stream, not of their numbers."""
    eviction_candidates: Blocks
    """Resident blocks that would leave first, needed last first (of those that nothing
    needs, the longest unused first), a bounded number of them."""
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
    """Blocks of `View.missing`, or resident ones whose age shall be refreshed."""
    to_host: Blocks = NO_BLOCKS
    short_of_room: bool = False
    """Something needed was left out because nothing may leave for it."""
    allowance: int = 0
    """Blocks of free room that may be taken without asking, in order of need: by what
    operations miss that are issued from now on; and, if the decision is `settled`, by what
    is missing now, as transfers to the GPU end."""
    hold: int = 0
    """Blocks. While something is leaving, nothing has come by fault, and fewer blocks than
    that may leave, and fewer may come (for want of room or of credit), the policy would
    move nothing: it need not be asked. 0: it wants to be asked each time."""
    settled: bool = False
    """Which blocks leave stays the same as long as nothing happens but arrivals, and what the
    allowance sends for. Then the policy need not be asked either, `hold` blocks or more at
    once go, and the rest of the decision stands."""
    later: Blocks = NO_BLOCKS
    """Of a settled decision: which blocks leave next, in this order, `hold` blocks or more at once,
    as those before them have gone. It stands while they go, too."""

    def for_once(self) -> Decision:
        """The same, but the policy is asked again at the next tick."""
        allowance = 0 if self.hold else self.allowance
        return self._replace(allowance=allowance, hold=0, settled=False, later=NO_BLOCKS)


NOTHING = Decision()
"""The decision to move nothing."""
