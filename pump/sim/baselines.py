"""Policies to compare with: what others do, as far as it can be said in pump's terms.

Each is a policy object like those of pumpd (pump/policy). Those that know the future are
told of operations before they are issued (simulation.Foresight): they see them in the view,
as pump sees the operations of its window.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from pump.model.view import NO_BLOCKS, NOT_NEEDED, Decision, View
from pump.policy.window import Window


class Unbounded:
    """Prefetches whatever the window misses, soonest first, and leaves room to the driver.

    Run-ahead without a rule of eviction: the driver throws out what migrated longest ago.
    """

    name: ClassVar[str] = "unbounded"
    prefetches: ClassVar[bool] = True

    def decide(self, view: View) -> Decision:
        """Return all that may be sent."""
        return Decision(to_gpu=view.missing[: view.to_gpu_credit])


class Correlation:
    """Prefetches along a learned sequence of kernels; evicts what is not on it.

    After DeepUM (ASPLOS 2023): a chain of next kernels and their blocks, learned in earlier
    iterations, is prefetched while kernels run; what migrated longest ago and is not
    predicted is evicted beforehand. Unlike DeepUM, which learns from faults and lives in the
    driver, this one never predicts wrongly once it has learned, and pays pump's way to the
    GPU.
    """

    name: ClassVar[str] = "correlation"
    prefetches: ClassVar[bool] = True
    CHAIN: ClassVar[int] = 32
    """Kernels ahead of the one that runs."""
    SPARE: ClassVar[float] = 0.03
    """Share of the memory that is kept free ahead of need."""

    def decide(self, view: View) -> Decision:
        """Return the chain's blocks, and as many unpredicted ones as room is short of."""
        free = max(0, view.free)
        fitting = int(np.searchsorted(view.missing_room, free, side="right"))
        to_gpu = view.missing[: min(fitting, view.to_gpu_credit)]
        wanted = len(view.arrivals_need) + int(view.budget * self.SPARE)
        wanted -= view.free + view.leaving
        if wanted <= 0:
            return Decision(to_gpu)
        unpredicted = view.oldest[view.oldest_next_use == NOT_NEEDED]
        to_host = unpredicted[: min(wanted, view.to_host_credit)]
        if view.leavers_doubted:
            to_gpu = to_gpu[~np.isin(to_gpu, to_host)] if len(to_host) else to_gpu
        short = len(unpredicted) < wanted
        return Decision(to_gpu, to_host if len(to_host) else NO_BLOCKS, short)


class Perfect(Window):
    """The window's rule with two iterations in view: Belady's choice of what has to leave."""

    name: ClassVar[str] = "perfect"
