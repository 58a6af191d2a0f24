"""window: bring in what the issued operations need, in the order they need it (PUMP).

After PUMP (ASP-DAC 2022): the blocks of a launched kernel are known before it runs, so
they travel in the time between launch and execution. Its weak point is what has to
leave; the rule here is Belady's, bounded by what has been issued: never evict what is
needed sooner than what comes in.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from pump.model.bounds import WATERMARK
from pump.model.view import Blocks, Decision, View, first_by

FAR_AWAY = np.int64(1) << 61
"""Above every operation number, below NOT_NEEDED."""


class Window:
    """Prefetch in order of need; evict early what is needed last."""

    prefetches: ClassVar[bool] = True

    def decide(self, view: View) -> Decision:
        """Return a leading part of what is missing, and what makes room for the rest."""
        fits = max(0, view.free)
        to_gpu = view.missing[: min(fits, view.to_gpu_credit)]
        to_host, short = self._make_room(view)
        return Decision(to_gpu=to_gpu, to_host=to_host, short_of_room=short)

    def _make_room(self, view: View) -> tuple[Blocks, bool]:
        """Choose blocks that leave for the newcomers that find no room yet.

        Newcomer i (soonest first) is paired with victim i (needed last first); pairing
        stops where the victim is needed no later than its newcomer.
        """
        room = view.free + view.leaving
        newcomers = view.missing_need[max(0, room) :]
        if view.missing_all:
            # Behind the last known newcomer only what nothing needs may make way.
            spare = int(view.budget * WATERMARK) - max(0, room - len(view.missing))
            newcomers = np.append(newcomers, np.full(max(0, spare), FAR_AWAY))
        overshoot = max(0, -room)
        credit = view.to_host_credit - overshoot
        homeless = max(0, len(view.missing) - max(0, room))
        wanted = min(overshoot + len(newcomers), view.to_host_credit, len(view.candidates))
        order = first_by(_eviction_order(view), max(0, wanted))
        worth = view.next_use[order[overshoot:]] > newcomers[: max(0, wanted - overshoot)]
        served = len(worth) if worth.all() else int(np.argmin(worth))
        to_host = view.candidates[order[: overshoot + served]]
        return to_host, served < min(homeless, credit)


def _eviction_order(view: View) -> NDArray[np.int64]:
    """Return a key that is smallest for the block to evict first.

    Needed last goes first; of the blocks that nothing needs, the longest unused.
    """
    unneeded = view.next_use > FAR_AWAY
    return np.where(unneeded, view.last_use - FAR_AWAY, -view.next_use)
