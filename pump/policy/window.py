"""window: bring in what the issued operations need, in the order they need it (PUMP).

After PUMP (ASP-DAC 2022): the blocks of a launched kernel are known before it runs, so
they travel in the time between launch and execution. Its weak point is what has to
leave; the rule here is Belady's, bounded by what has been issued: never evict what is
needed sooner than what comes in. A block that has to be away before it is needed, whichever others
may leave, leaves at once, so that the way out is busy before room is short.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import islice
from typing import ClassVar, NamedTuple

import numpy as np

from pump.model.bounds import REFRESH_BLOCKS, SLICE_BLOCKS_LEAST, WATERMARK
from pump.model.view import NO_BLOCKS, NOT_NEEDED, Blocks, Decision, View

FAR_AWAY = NOT_NEEDED >> 1
"""Above every operation number, below NOT_NEEDED."""


class Room(NamedTuple):
    """The blocks that make room."""

    to_host: Blocks = NO_BLOCKS
    """They leave now,"""
    later: Blocks = NO_BLOCKS
    """then these, in this order, whatever sets out meanwhile."""
    short: bool = False
    """A newcomer was left without a victim."""
    ease: int = -1
    """So many may set out before others have to leave; below 0: unknown."""


class Window:
    """Prefetch in order of need; evict early what is needed last."""

    name: ClassVar[str] = "window"
    prefetches: ClassVar[bool] = True
    predicts: ClassVar[bool] = False

    def decide(self, view: View) -> Decision:
        """Return a leading part of what is missing, and what makes room for the rest."""
        free = view.free
        missing = len(view.missing)
        # What all fits needs no room kept free, and would only come back after it has left.
        spare = min(int(view.budget * WATERMARK), max(0, view.live - view.budget))
        if missing == 0 and free >= spare and view.expected == view.surplus == 0:
            return Decision(allowance=free)
        arrivals = len(view.arrivals_need)
        fitting = missing if arrivals <= free else max(0, free)
        if arrivals < missing and fitting < missing:
            fitting = bisect_right(view.missing_room, fitting)
        count = min(fitting, view.to_gpu_credit)
        if count < min(missing, SLICE_BLOCKS_LEAST) and view.arriving + view.leaving:
            count = 0  # what is on its way soon lets a whole slice go
        to_gpu = view.missing[:count]
        to_host, later, short, ease = self._make_room(view, arrivals, spare)
        if view.candidates_maybe_evicted and len(to_host):
            # One in doubt may be needed and yet make way for something needed sooner.
            leaving = set(to_host.tolist())
            both = (i for i, block in enumerate(to_gpu.tolist()) if block in leaving)
            to_gpu = to_gpu[: next(both, len(to_gpu))]
        # What is left when all is on its way needs no victim, so no decision is due.
        sent_all = len(to_gpu) == missing and not view.missing_more
        allowance = max(0, free - arrivals) if sent_all else 0
        if view.faults and not view.emulated:
            again = self._refresh(view, to_gpu, to_host)
            return Decision(np.concatenate((to_gpu, again)), to_host, short, allowance)
        # Less than a slice waits for what is on its way, in both directions.
        waits = missing == arrivals and missing - len(to_gpu) >= SLICE_BLOCKS_LEAST
        if not waits:
            return Decision(to_gpu, to_host, short, allowance)
        free -= len(to_gpu)
        if len(later):
            # Arrivals take the room of blocks that leave, and do not change which leave.
            allowance = max(0, free + view.leaving + len(to_host) + len(later))
            return Decision(to_gpu, to_host, short, allowance, SLICE_BLOCKS_LEAST, True, later)
        if view.to_host_credit - len(to_host) < SLICE_BLOCKS_LEAST and view.leaving + len(to_host):
            ease = view.free  # no block may leave before others have left
        ease -= len(to_gpu)
        allowance = max(0, min(free, ease))
        return Decision(to_gpu, to_host, short, allowance, SLICE_BLOCKS_LEAST, ease >= 0)

    def _make_room(self, view: View, arrivals: int, spare: int) -> Room:
        """Choose blocks that leave for the newcomers that find no room yet.

        Newcomer i (soonest first) is paired with victim i (needed last first); pairing
        stops where the victim is needed no later than its newcomer. Those that have to leave
        anyway do not wait for a newcomer that is near (`View.surplus`). As newcomers set out
        and victims leave, the other pairs remain, and the rest of the surplus.
        """
        room = view.free + view.leaving
        overshoot = max(0, -room)
        homeless = arrivals - max(0, room) if arrivals > room else 0
        # Behind the last known newcomer only what nothing needs may make way.
        extra = max(0, spare - max(0, room - arrivals)) if not view.missing_more else 0
        if overshoot + homeless + extra + view.surplus == 0:
            # Once all that is missing is in sight, what nothing needs makes way.
            more = view.missing_more
            ease = min(room - arrivals, more - 1) if more else view.free
            return Room(ease=min(ease, view.headroom))
        uses = view.candidates_next_use[overshoot : overshoot + homeless + extra]
        served = min(len(uses), homeless)
        if served:
            first = max(0, room)
            worth = uses[:served] > view.arrivals_need[first : first + served]
            stop = int(worth.argmin())
            served = served if worth[stop] else stop
        idle = 0
        if served == homeless and len(uses) > homeless:
            idle = int(np.count_nonzero(uses[homeless:] > FAR_AWAY))
        credit = view.to_host_credit
        count = min(max(overshoot + served + idle, view.surplus), max(0, credit))
        if count < SLICE_BLOCKS_LEAST and view.leaving:
            count = 0
        later = NO_BLOCKS
        if not overshoot and not view.faults:
            # Those needed behind all that is in sight: gone, they change no other block's
            # turn. With several streams one that has left may be missing before others are.
            sure = view.surplus
            if served > max(count, sure) and view.streams < 2:
                sure = max(sure, int(np.count_nonzero(uses[:served] > view.arrivals_need[-1])))
            later = view.eviction_candidates[count:sure]
        # The surplus tells of those needed last alone: once they are gone, others may have to go.
        leaves = homeless or overshoot or view.surplus
        ease = -1 if leaves else min(view.free, view.headroom)
        return Room(
            view.eviction_candidates[:count],
            later,
            served < min(homeless, credit - overshoot),
            ease,
        )

    def _refresh(self, view: View, to_gpu: Blocks, to_host: Blocks) -> Blocks:
        """Choose resident blocks whose prefetch makes them the driver's youngest.

        Faults come that were not predicted. When the next one needs room before our own
        evictions have made any, the driver takes what migrated longest ago, even if the
        window needs it next.
        """
        count = min(REFRESH_BLOCKS, view.faults, view.to_gpu_credit - len(to_gpu))
        if count <= 0 or len(view.eviction_candidates) == 0:
            return NO_BLOCKS
        moving = {*view.missing.tolist(), *to_host.tolist()}
        last_use = min(FAR_AWAY, int(view.candidates_next_use[0]))
        sure = (
            block
            for block, use in zip(view.oldest.tolist(), view.oldest_next_use.tolist(), strict=True)
            if block not in moving and use < last_use
        )
        return np.fromiter(islice(sure, count), np.int64)
