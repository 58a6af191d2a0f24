"""Policies for comparison: other systems' methods, as far as pump's terms can express them.

Each is a policy object like pumpd's (pump/policy). Policies that know the future get operations
before these are issued (simulation.Foresight). They see them in the view, as pump sees the
operations of its window.
"""

from __future__ import annotations

from collections import deque
from typing import ClassVar

import numpy as np

from pump.model.bounds import BLOCK_BYTES
from pump.model.client import ClientModel
from pump.policy.scheduled import Window
from pump_lab.sim.deciding import NO_BLOCKS, NOT_NEEDED, Blocks, Decision, View, away
from pump_lab.sim.program import Program


class Unbounded:
    """Queues the blocks of each operation for prefetch when it is issued; evicts nothing.

    Run-ahead without a rule: first come, first served, whatever has to be evicted. Blocks that are
    resident when their turn comes are not moved. The driver evicts the block that migrated longest
    ago. That may be a prefetched block whose operation has not run, and this policy does not
    prefetch such a block again.
    """

    name: ClassVar[str] = "unbounded"
    prefetches: ClassVar[bool] = True
    predicts: ClassVar[bool] = False

    def __init__(self, program: Program) -> None:
        self._steps = program.steps[["seq", "first_use", "uses"]].tolist()
        self._uses = program.uses.tolist()
        self._slots = program.ranges["slot"].tolist()
        self._told = 0
        self._waiting: deque[Blocks] = deque()
        self._model: ClientModel | None = None

    def at(self, issued: int, _run: int, model: ClientModel) -> None:
        """Queues the newly issued steps. All steps before `issued` are in the model."""
        self._model = model
        for seq, begin, count in self._steps[self._told : issued]:
            for offset, length, index, *_ in self._uses[begin : begin + count] if seq else ():
                blocks = model.blocks_of(self._slots[index])
                if blocks is not None:
                    part = blocks[offset // BLOCK_BYTES : -(-(offset + length) // BLOCK_BYTES)]
                    self._waiting.append(np.arange(part.start, part.stop))
        self._told = max(self._told, issued)

    def decide(self, view: View) -> Decision:
        """Returns the blocks that wait longest and are away, as far as they may be sent."""
        assert self._model is not None
        found: list[Blocks] = []
        most = view.to_gpu_credit
        while most > 0 and self._waiting:
            gone = away(self._model, self._waiting.popleft())
            if len(gone) > most:
                self._waiting.appendleft(gone[most:])
            found.append(gone[:most])
            most -= len(found[-1])
        return Decision(to_gpu=np.concatenate(found) if found else NO_BLOCKS)


def take(waiting: deque[Blocks], most: int) -> Blocks:
    """Takes the first `most` blocks off the queue."""
    found = []
    while waiting and most > 0:
        blocks = waiting[0][:most]
        rest = waiting[0][len(blocks) :]
        if len(rest):
            waiting[0] = rest
        else:
            waiting.popleft()
        found.append(blocks)
        most -= len(blocks)
    return np.concatenate(found) if found else NO_BLOCKS


class Soonest:
    """Prefetches all blocks that the window misses, soonest first; only the driver evicts.

    Between run-ahead without a rule and the window: a block that was evicted too early is found
    missing and prefetched again.
    """

    name: ClassVar[str] = "soonest"
    prefetches: ClassVar[bool] = True
    predicts: ClassVar[bool] = False

    def decide(self, view: View) -> Decision:
        """Returns all blocks that may be sent."""
        return Decision(to_gpu=view.missing[: view.to_gpu_credit])


class Correlation:
    """Prefetches along a learned sequence of kernels; evicts blocks that are not on it.

    After DeepUM (ASPLOS 2023): a chain of next kernels and their blocks, learned in earlier
    iterations, is prefetched while kernels run. Blocks that migrated longest ago and are not
    predicted are evicted in advance. DeepUM learns from faults and is part of the driver. This
    policy never predicts wrongly once it has learned, and uses pump's path to the GPU.
    """

    name: ClassVar[str] = "correlation"
    prefetches: ClassVar[bool] = True
    predicts: ClassVar[bool] = False
    CHAIN: ClassVar[int] = 32
    """Number of kernels ahead of the running one."""
    SPARE: ClassVar[float] = 0.03
    """Share of the memory that is kept free in advance."""

    def decide(self, view: View) -> Decision:
        """Returns the chain's blocks, and as many unpredicted ones as free memory is short of."""
        free = max(0, view.free)
        fitting = int(np.searchsorted(view.missing_room, free, side="right"))
        to_gpu = view.missing[: min(fitting, view.to_gpu_credit)]
        wanted = len(view.arrivals_need) + int(view.budget * self.SPARE)
        wanted -= view.free + view.leaving
        if wanted <= 0:
            return Decision(to_gpu)
        unpredicted = view.oldest[view.oldest_next_use == NOT_NEEDED]
        to_host = unpredicted[: min(wanted, view.to_host_credit)]
        if view.candidates_maybe_evicted:
            to_gpu = to_gpu[~np.isin(to_gpu, to_host)] if len(to_host) else to_gpu
        return Decision(to_gpu, to_host)


class Perfect(Window):
    """The window's rule with two iterations in view: Belady's choice of evictions."""

    name: ClassVar[str] = "perfect"
