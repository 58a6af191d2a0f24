"""planned: the window, with operations in it that are expected but were not issued yet.

Once it is known what the program repeats (`daemon/core/predict/learner.h`), the view reaches from
what runs now through the whole iteration and around its end: missing blocks in order of need,
resident blocks by their next use, and how much room there will be. After AutoSwap (next uses from
the iteration), G10 (residency over the whole iteration decides what leaves, and when) and
TURNIP (no fixed timeline: whatever is ready goes). While nothing is expected, as after a
deviation, it is the window.

Room decides, not time. A block leaves only if, without that, room will be short at some
operation ahead, what comes back by itself counted, and if no better one could leave until
then; then it leaves at once, so that the way out is busy before room is short. A block
comes as soon as there is room that nothing needed sooner lacks, however far ahead that is. So
no duration is estimated, and none can be wrong (docs/decisions/0016-planned.md).
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from pump.model.bounds import SLICE_BLOCKS_LEAST
from pump.model.view import NO_BLOCKS, View
from pump.policy.window import FAR_AWAY, Room, Window
from pump.wire.abi import INT64S, ffi, lib


class Planned(Window):
    """Belady's choice of what leaves, as far as the future is known, once it is sure."""

    name: ClassVar[str] = "planned"
    predicts: ClassVar[bool] = True

    def _make_room(self, view: View, arrivals: int, spare: int) -> Room:
        """Choose blocks that leave for room that will be short.

        For room that is short soon the rule is the window's: a victim is needed later than
        its newcomer. For what is short further on only those leave that no other block can replace
        (`View.surplus`). Those remain the same, whatever sets out.
        """
        if view.expected == 0:
            return super()._make_room(view, arrivals, spare)
        short = len(view.shortfalls_need)
        if view.exchange:
            return Room(
                view.eviction_candidates[: min(_outlast(view, view.arrivals_need), view.exchange)]
            )
        if short == 0 and view.surplus == 0:
            return self._keep_spare(view, arrivals, spare)
        if view.to_host_credit <= 0:
            return Room()
        overshoot = max(0, -(view.free + view.leaving))
        found = max(_outlast(view, view.shortfalls_need) if short else 0, view.surplus)
        count = min(max(found, min(overshoot, len(view.eviction_candidates))), view.to_host_credit)
        if count < SLICE_BLOCKS_LEAST and view.leaving:
            count = 0
        later = NO_BLOCKS if overshoot else view.eviction_candidates[count : view.surplus]
        return Room(view.eviction_candidates[:count], later, found < short)

    def _keep_spare(self, view: View, arrivals: int, spare: int) -> Room:
        """Choose blocks that nothing needs, for what is not predicted."""
        if len(view.eviction_candidates) == 0 or view.candidates_next_use[0] <= FAR_AWAY:
            return Room(ease=view.headroom)
        wanted = spare + arrivals - view.free - view.leaving
        ease = min(-wanted, view.headroom)
        wanted = min(wanted, view.to_host_credit)
        if wanted <= 0 or (wanted < SLICE_BLOCKS_LEAST and view.leaving):
            return Room(ease=ease)
        idle = int(np.count_nonzero(view.candidates_next_use[:wanted] > FAR_AWAY))
        return Room(view.eviction_candidates[:idle], ease=ease)


def _outlast(view: View, needs: NDArray[np.int64]) -> int:
    """Return how many of the eviction candidates are needed later than these, one for each."""
    wanted, uses = (ffi.from_buffer(INT64S, column) for column in (needs, view.candidates_next_use))
    return int(lib.pump_view_outlast(wanted, len(needs), uses, len(view.candidates_next_use)))
