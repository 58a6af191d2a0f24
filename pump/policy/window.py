"""window: bring in what the issued operations need, in the order they need it (PUMP).

After PUMP (ASP-DAC 2022): the blocks of a launched kernel are known before it runs, so
they travel in the time between launch and execution. Its weak point is what has to
leave; the rule here is Belady's, bounded by what has been issued: never evict what is
needed sooner than what comes in.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from pump.model.bounds import WATERMARK
from pump.model.view import Blocks, Decision, View

FAR_AWAY = np.int64(1) << 61
"""Above every operation number, below NOT_NEEDED."""


class Window:
    """Prefetch in order of need; evict early what is needed last."""

    prefetches: ClassVar[bool] = True

    def decide(self, view: View) -> Decision:
        """Return a leading part of what is missing, and what makes room for the rest."""
        room_taken = np.cumsum(view.missing_takes_room)
        fitting = int(np.searchsorted(room_taken, max(0, view.free), side="right"))
        to_gpu = view.missing[: min(fitting, view.to_gpu_credit)]
        to_host, short = self._make_room(view)
        if not view.missing_takes_room.all():
            # One in doubt may be needed and yet make way for something needed sooner.
            leaving = np.isin(to_gpu, to_host)
            to_gpu = to_gpu[: int(np.argmax(leaving)) if leaving.any() else len(to_gpu)]
        return Decision(to_gpu=to_gpu, to_host=to_host, short_of_room=short)

    def _make_room(self, view: View) -> tuple[Blocks, bool]:
        """Choose blocks that leave for the newcomers that find no room yet.

        Newcomer i (soonest first) is paired with victim i (needed last first); pairing
        stops where the victim is needed no later than its newcomer.
        """
        room = view.free + view.leaving
        arrivals = view.missing_need[view.missing_takes_room]
        newcomers = arrivals[max(0, room) :]
        homeless = len(newcomers)
        if view.missing_all:
            # Behind the last known newcomer only what nothing needs may make way.
            spare = int(view.budget * WATERMARK) - max(0, room - len(arrivals))
            newcomers = np.append(newcomers, np.full(max(0, spare), FAR_AWAY))
        overshoot = max(0, -room)
        credit = view.to_host_credit - overshoot
        wanted = max(0, min(overshoot + len(newcomers), view.to_host_credit))
        uses = view.leavers_next_use[overshoot:wanted]
        worth = uses > newcomers[: len(uses)]
        served = len(worth) if worth.all() else int(np.argmin(worth))
        return view.leavers[: min(overshoot, wanted) + served], served < min(homeless, credit)
