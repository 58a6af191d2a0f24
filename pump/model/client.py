"""What is believed about one client: ranges, blocks, window, transfers under way.

The model itself is in C (`daemon/core/model/model.h`); this is its shape for Python. Fed with
batches, progress and outcomes; answers with views. It calls no driver, reads no clock
and decides nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pump.model import bounds, story
from pump.model.view import View
from pump.wire.abi import INT64S, ffi, lib
from pump.wire.mapping import Batch, Ranges

FREE: int = lib.PUMP_BLOCK_FREE
ABSENT: int = lib.PUMP_BLOCK_ABSENT
HOST: int = lib.PUMP_BLOCK_HOST
ARRIVING: int = lib.PUMP_BLOCK_ARRIVING
RESIDENT: int = lib.PUMP_BLOCK_RESIDENT
LEAVING: int = lib.PUMP_BLOCK_LEAVING
MAYBE_EVICTED: int = lib.PUMP_BLOCK_MAYBE_EVICTED
DISCARDING: int = lib.PUMP_BLOCK_DISCARDING

TO_GPU: int = lib.PUMP_TO_GPU
TO_HOST: int = lib.PUMP_TO_HOST


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """What the shim wrote about a device; sizes in blocks."""

    budget: int
    capacity: int
    """Blocks that fit on the device; above that the driver evicts by itself."""
    emulated: bool
    active: bool


class ClientModel:
    """The model of one client."""

    def __init__(self, capacity: int = bounds.MAX_BLOCKS) -> None:
        """Raises MemoryError when its tables (20 MB and more) do not fit."""
        limits = ffi.new("struct pump_model_bounds *")
        limits.capacity = capacity
        limits.slice_least = bounds.SLICE_BLOCKS_LEAST
        limits.slice_most = bounds.SLICE_BLOCKS_MOST
        limits.slice_us = bounds.SLICE_US
        limits.in_flight = bounds.IN_FLIGHT_BLOCKS
        limits.in_flight_share = bounds.IN_FLIGHT_SHARE
        limits.doubts_per_fault = bounds.DOUBTS_PER_FAULT
        limits.spare_percent = bounds.SPARE_PERCENT
        model = lib.pump_model_new(limits)
        if model == ffi.NULL:
            raise MemoryError("the model's tables do not fit into memory")
        self.raw: Any = ffi.gc(model, lib.pump_model_delete)
        self.devices: dict[int, DeviceFacts] = {}
        self._facts = ffi.new("struct pump_model_device *")
        self._totals = ffi.new("struct pump_model_totals *")
        self._tally = ffi.new("struct pump_model_tally *")
        self._kept = ffi.new("struct pump_learner_story *")
        self._lost = ffi.new("struct pump_lost *")
        self._view = ffi.new("struct pump_view *")
        # Two reads instead of one for each figure: a view is made for each decision.
        self._sizes = _part(self._view, "budget", "missing_count", np.int64)
        self._shape = _part(self._view, "missing_count", "missing", np.uint32)
        needed = "missing", "missing_need", "missing_room", "arrivals_need"
        there = "eviction_candidates", "candidates_next_use", "oldest", "oldest_next_use"
        self._columns = [self._column(name) for name in needed + there]
        # Views of the lengths that they had last: mostly they have the same lengths again.
        self._lengths: tuple[int, ...] = ()
        self._leading: list[NDArray[np.int64]] = []

    def _column(self, name: str) -> NDArray[np.int64]:
        return np.frombuffer(ffi.buffer(getattr(self._view, name)), np.int64)

    def __repr__(self) -> str:
        totals = self.totals()
        where = {
            device: f"{self.counts(device)[RESIDENT]}/{facts.budget}"
            for device, facts in self.devices.items()
        }
        return (
            f"<ClientModel seq={totals.observed_seq} window={totals.window_depth} "
            f"ranges={totals.ranges} resident={where} under_way={totals.under_way}>"
        )

    # ---- what the shim reports -------------------------------------------------------

    def set_device(self, device: int, facts: DeviceFacts) -> None:
        """Take over the shim's record of a device."""
        if self.devices.get(device) == facts:
            return
        self.devices[device] = facts
        self._facts.budget, self._facts.capacity = facts.budget, facts.capacity
        lib.pump_model_device(self.raw, device, self._facts)

    def resync(self, ranges: Ranges, newest_seq: int) -> None:
        """Make the ranges those of the table: at the start, and after events were lost.

        Ranges that are known stay as they are. `newest_seq`: newest operation issued;
        operations up to it that have not been read never will be.
        """
        lib.pump_model_resync(self.raw, ranges.count, ranges.slots, ranges.records, newest_seq)

    def forget_window(self) -> None:
        """Empty the window: what follows it in the ring was passed over."""
        lib.pump_model_forget_window(self.raw)

    def ingest(self, batch: Batch) -> None:
        """Apply the rows of a batch in order; fills in the lengths behind its pointers."""
        lib.pump_model_ingest(self.raw, batch.raw)

    def progress(self, executed_seq: Any, stride: int) -> None:
        """Retire what has executed; see `pump_model_progress`."""
        lib.pump_model_progress(self.raw, executed_seq, stride)

    def learn(self, wanted: bool, *, keep: bool = False) -> None:
        """Learn what the client repeats and predict it, or forget it. keep: the beginning is
        kept for another run of the program.

        Raises MemoryError when there is no memory for it.
        """
        learning = lib.PUMP_LEARN_AND_KEEP if keep else lib.PUMP_LEARN
        if lib.pump_model_learn(self.raw, learning if wanted else lib.PUMP_LEARN_NOTHING) != 0:
            raise MemoryError("the learner's history does not fit into memory")

    def time(self) -> None:
        """Follow how long operations take, and what is lost. Raises MemoryError."""
        if lib.pump_model_time(self.raw) != 0:
            raise MemoryError("the tables of times do not fit into memory")

    def stopped(self, began_ns: int, ended_ns: int) -> None:
        """The client's process was stopped from then to then: that time is not lost to memory."""
        lib.pump_model_stopped(self.raw, began_ns, ended_ns)

    def delayed(self, at_ns: int, sum_ns: int, share: float) -> None:
        """The client's threads that issue have waited `sum_ns` for a processor, up to then.

        share: of that, at least so much because of the job itself.
        """
        lib.pump_model_delayed(self.raw, at_ns, sum_ns, share)

    def lost(self, neighbours: int = 0) -> Any:
        """Return the time lost so far: a `struct pump_lost`, overwritten by the next call.

        neighbours: other processes that may compute on the GPUs, at the most.
        """
        lib.pump_model_lost(self.raw, neighbours, self._lost)
        return self._lost

    def kept_operations(self) -> int:
        """Return how many operations are kept for another run."""
        lib.pump_model_kept(self.raw, self._kept)
        return int(self._kept.operations)

    def kept(self) -> story.Story:
        """Return a copy of what is kept for another run."""
        lib.pump_model_kept(self.raw, self._kept)
        return story.copied(self._kept)

    def recall(self, earlier: story.Story) -> None:
        """Take an earlier run for the past of this one, whose operations so far have to be
        kept. Raises MemoryError."""
        if lib.pump_model_recall(self.raw, earlier.raw()) != 0:
            raise MemoryError("an earlier run does not fit into memory")

    def schedule(self, wanted: bool) -> None:
        """Make schedules, or none: then a Deciding policy chooses the transfers."""
        lib.pump_model_schedule(self.raw, wanted)

    def duplicate(self, wanted: bool) -> None:
        """Duplicate, or do not, what was only read, so that it leaves without a copy."""
        lib.pump_model_duplicate(self.raw, wanted)

    def finish(self, outcomes: Any, count: int) -> None:
        """Take the ends of commands (`struct pump_outcome *`)."""
        lib.pump_model_finish(self.raw, outcomes, count)

    # ---- what a policy sees and answers ----------------------------------------------

    def view(self, device: int) -> View:
        """Return the view of a device that `set_device` made known; its arrays belong to
        the model and are overwritten by the next call."""
        lib.pump_model_view(self.raw, device, self._view)
        budget, resident, arriving, leaving, to_gpu, to_host, faults = self._sizes.tolist()
        shape = self._shape.tolist()
        missing, arrivals, missing_more, candidates, maybe_evicted, oldest, expected = shape[:7]
        lengths = (missing, missing, missing, arrivals, candidates, candidates, oldest, oldest)
        if lengths != self._lengths:
            self._lengths = lengths
            columns = zip(self._columns, lengths, strict=True)
            self._leading = [column[:length] for column, length in columns]
        first, need, room, arrivals_need, last, next_use, old, old_next_use = self._leading
        return View(
            budget,
            self.devices[device].emulated,
            resident,
            arriving,
            leaving,
            to_gpu,
            to_host,
            faults,
            first,
            need,
            room,
            arrivals_need,
            missing_more,
            expected,
            last,
            next_use,
            maybe_evicted,
            old,
            old_next_use,
        )

    # ---- for reports and tests --------------------------------------------------------

    def totals(self) -> Any:
        """Return `struct pump_model_totals`, overwritten by the next call."""
        lib.pump_model_totals(self.raw, self._totals)
        return self._totals

    def tally(self, device: int) -> Any:
        """Return `struct pump_model_tally` of a device, overwritten by the next call."""
        lib.pump_model_tally(self.raw, device, self._tally)
        return self._tally

    def counts(self, device: int) -> NDArray[np.int64]:
        """Return how many blocks of `device` are in each state, shape [PUMP_BLOCK_STATES]."""
        counts = np.zeros(lib.PUMP_BLOCK_STATES, np.int64)
        lib.pump_model_counts(self.raw, device, ffi.from_buffer(INT64S, counts))
        return counts

    def occupied(self, device: int) -> int:
        """Return how many blocks take room on `device`."""
        return int(
            self.counts(device)[[ARRIVING, RESIDENT, LEAVING, MAYBE_EVICTED, DISCARDING]].sum()
        )

    def block(self, block: int) -> Any:
        """Return `struct pump_block_info`. Raises IndexError for a number out of bounds."""
        info = ffi.new("struct pump_block_info *")
        if lib.pump_model_block(self.raw, block, info) != 0:
            raise IndexError(block)
        return info

    def away(self, blocks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return those of the blocks that are neither there nor on their way."""
        found = np.array(blocks, np.int64)
        kept = lib.pump_model_away(self.raw, ffi.from_buffer(INT64S, found), len(found))
        return found[:kept]

    def blocks_of(self, slot: int) -> range | None:
        """Return the numbers of the blocks of the range in `slot`, or None."""
        found = ffi.new("struct pump_range_blocks *")
        if lib.pump_model_range(self.raw, slot, found) != 0:
            return None
        return range(found.first_block, found.first_block + found.blocks)


def _part(view: Any, first: str, end: str, dtype: type[np.generic]) -> NDArray[Any]:
    """The figures of `struct pump_view` from `first` up to `end`."""
    begin, stop = (ffi.offsetof("struct pump_view", name) for name in (first, end))
    count = (stop - begin) // np.dtype(dtype).itemsize
    return np.frombuffer(ffi.buffer(view), dtype, count, begin)
