"""Studied policies that choose transfers themselves: their view of the model, and their decision.

All sizes are numbers of 2 MiB blocks; `*_need` and `*_next_use` are operation numbers (`seq`).
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from pump.model.client import ClientModel
from pump.policy.base import Policy
from pump.wire.abi import INT64S
from pump_lab.abi import ffi, lib

Blocks = NDArray[np.int64]
NO_BLOCKS: Blocks = np.zeros(0, np.int64)
NO_BLOCKS.setflags(write=False)
NOT_NEEDED: int = lib.PUMP_NOT_NEEDED
"""`next_use` of a block that the window does not need."""


class View(NamedTuple):
    """The state of one client's device at one moment."""

    budget: int
    """Most blocks that may occupy memory of the device."""
    emulated: bool
    """True if the budget is below the GPU's memory: the driver does not evict to keep it."""
    resident: int
    """Resident blocks, including blocks that the driver may have evicted."""
    arriving: int
    leaving: int
    """Blocks that move to the host or are being discarded."""
    to_gpu_credit: int
    """Blocks that may be sent to the GPU now: the in-flight bound minus blocks in flight."""
    to_host_credit: int
    faults: int
    """Blocks that arrived by fault since the last view of this device."""
    missing: Blocks
    """Blocks that the window needs, except surely resident and arriving ones: a bounded number, the
    soonest first."""
    missing_need: NDArray[np.int64]
    """Operation that needs each block of `missing`."""
    missing_room: NDArray[np.int64]
    """Free blocks that `missing` takes up to and including each entry. A possibly evicted block
    takes none, because its memory already counts as occupied; its prefetch is cheap if it is still
    resident."""
    arrivals_need: NDArray[np.int64]
    """`missing_need` of the blocks that take free memory, possibly fewer than `missing`."""
    missing_more: int
    """Missing blocks beyond `missing`. A lower bound: counting stops at about PUMP_VIEW_MISSING."""
    expected: int
    """Operations in the view that the program has not issued yet."""
    eviction_candidates: Blocks
    """Resident blocks in order of eviction, a bounded number. First the blocks that nothing needs,
    as `model_next_idle` (model_blocks.h) orders them; then the others, the last needed first."""
    candidates_next_use: NDArray[np.int64]
    """For each candidate, the earliest operation of the window that needs it, or NOT_NEEDED."""
    candidates_maybe_evicted: int
    """How many of `eviction_candidates` may have been evicted; `missing` may list them, too."""
    oldest: Blocks
    """Resident blocks in the driver's eviction order: migrated longest ago first."""
    oldest_next_use: NDArray[np.int64]

    @property
    def occupied(self) -> int:
        """Returns the blocks that occupy memory: resident, arriving, or not yet gone."""
        return self.resident + self.arriving + self.leaving

    @property
    def free(self) -> int:
        """Returns the free blocks of the budget, negative after an overshoot."""
        return self.budget - self.resident - self.arriving - self.leaving


class Decision(NamedTuple):
    """The blocks to move now, the most urgent first."""

    to_gpu: Blocks = NO_BLOCKS
    """Blocks of `View.missing`."""
    to_host: Blocks = NO_BLOCKS


NOTHING = Decision()
"""The decision to move nothing."""


@runtime_checkable
class Deciding(Policy, Protocol):
    """A policy that chooses the transfers itself, by one method without I/O. The method accepts any
    consistent view."""

    def decide(self, view: View) -> Decision:
        """Returns the transfers to start now."""
        ...


def view_of(model: ClientModel, device: int) -> View:
    """Returns the view of a device that `set_device` has set."""
    raw = ffi.new("struct pump_view *")
    lib.pump_sim_view(model.raw, device, raw)
    content = ffi.buffer(raw)

    def column(name: str, count: int) -> Blocks:
        return np.frombuffer(content, np.int64, count, ffi.offsetof("struct pump_view", name))

    missing, there, old = raw.missing_count, raw.candidates_count, raw.oldest_count
    return View(
        budget=raw.budget,
        emulated=model.devices[device].emulated,
        resident=raw.resident,
        arriving=raw.arriving,
        leaving=raw.leaving,
        to_gpu_credit=raw.to_gpu_credit,
        to_host_credit=raw.to_host_credit,
        faults=raw.faults,
        missing=column("missing", missing),
        missing_need=column("missing_need", missing),
        missing_room=column("missing_room", missing),
        arrivals_need=column("arrivals_need", raw.arrivals_count),
        missing_more=raw.missing_more,
        expected=raw.expected,
        eviction_candidates=column("eviction_candidates", there),
        candidates_next_use=column("candidates_next_use", there),
        candidates_maybe_evicted=raw.candidates_maybe_evicted,
        oldest=column("oldest", old),
        oldest_next_use=column("oldest_next_use", old),
    )


def away(model: ClientModel, blocks: Blocks) -> Blocks:
    """Returns the given blocks that are on the host or not populated."""
    found = np.array(blocks, np.int64)
    kept = lib.pump_sim_away(model.raw, ffi.from_buffer(INT64S, found), len(found))
    return found[:kept]


def decide(policy: Deciding, model: ClientModel, sim: Any) -> None:
    """Asks the policy about device 0 of `struct pump_sim *`, and carries out its decision."""
    to_gpu, to_host = policy.decide(view_of(model, 0))
    if len(to_host) or len(to_gpu):
        out, into = (ffi.from_buffer(INT64S, blocks) for blocks in (to_host, to_gpu))
        lib.pump_sim_decide(sim, out, len(to_host), into, len(to_gpu))
