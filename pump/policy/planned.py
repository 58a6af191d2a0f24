"""planned: the window, with operations in it that are expected but were not issued yet.

Once it is known what the program repeats (`shim/core/learner.h`), the view reaches from
what runs now through the whole iteration and around its end: what is missing in order of
need, who is needed last, and how much room there will be. After AutoSwap (next uses from
the iteration), G10 (residency over the whole iteration decides what leaves, and when) and
TURNIP (no fixed timeline: whatever is ready goes). While nothing is expected, as after a
deviation, it is the window.

Room decides, not time. A block leaves only if, without that, room will be short at some
operation ahead, what comes back by itself counted; then it leaves at once, so that the way
out is busy before anybody waits for it. A block comes as soon as there is room that nothing
needed sooner lacks, however far ahead that is. So no duration is estimated, and none can be
wrong (docs/decisions/0016-planned.md).
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from pump.model.bounds import SLICE_BLOCKS_LEAST
from pump.model.view import NO_BLOCKS, Blocks, View
from pump.policy.window import FAR_AWAY, Window


class Planned(Window):
    """Belady's choice of what leaves, as far as the future is known; no more than needed."""

    name: ClassVar[str] = "planned"
    foresees: ClassVar[bool] = True

    def _make_room(self, view: View, arrivals: int, spare: int) -> tuple[Blocks, bool]:
        """Choose blocks that leave for room that will be short.

        A victim has to stay away until the shortage is over. Where room is short soon
        (`View.near`), one that is needed later than the newcomer will do. Returns the
        victims, and whether some shortage was left without one.
        """
        if view.expected == 0:
            return super()._make_room(view, arrivals, spare)
        if view.shortfalls_need.size == 0:
            return self._keep_spare(view, arrivals, spare), False
        overshoot = max(0, -(view.free + view.leaving))
        needs, uses = view.shortfalls_need, view.leavers_next_use
        soon = needs <= view.near
        bounds = np.sort(np.where(soon, needs, view.shortfalls_end))
        found = _covered(bounds, uses)
        short = found < int(np.count_nonzero(soon))
        count = min(max(found, min(overshoot, len(uses))), view.to_host_credit)
        if count < SLICE_BLOCKS_LEAST and view.leaving:
            count = 0
        return view.leavers[:count], short and view.to_host_credit > 0

    def _keep_spare(self, view: View, arrivals: int, spare: int) -> Blocks:
        """Choose blocks that nothing needs, for what nobody foresees."""
        wanted = min(spare + arrivals - view.free - view.leaving, view.to_host_credit)
        if wanted <= 0 or (wanted < SLICE_BLOCKS_LEAST and view.leaving):
            return NO_BLOCKS
        idle = int(np.count_nonzero(view.leavers_next_use[:wanted] > FAR_AWAY))
        return view.leavers[:idle]


def _covered(bounds: NDArray[np.int64], uses: NDArray[np.int64]) -> int:
    """Return how many of the first `uses` (descending) lie beyond a bound (ascending) each."""
    low, high = 0, min(len(bounds), len(uses))
    if high and (uses[high - 1 :: -1] > bounds[:high]).all():
        return high
    while low < high:
        count = (low + high + 1) // 2
        if (uses[count - 1 :: -1] > bounds[:count]).all():
            low = count
        else:
            high = count - 1
    return low
