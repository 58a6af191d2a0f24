"""The model of one client: ranges, blocks, window, transfers in flight.

The model itself is in C (`daemon/core/model/model.h`); this is its Python interface. Batches
and progress go in. The model calls no driver, reads no clock and decides nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pump.model import bounds, event_log
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
    """The shim's record of a device; sizes in blocks."""

    budget: int
    capacity: int
    """Blocks that fit on the device; beyond them the driver evicts by itself."""
    emulated: bool
    active: bool


class ClientModel:
    """The model of one client."""

    def __init__(self, capacity: int = bounds.MAX_BLOCKS) -> None:
        """Raises MemoryError if its tables (20 MB and more) do not fit."""
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
        self._kept = ffi.new("struct pump_learner_log *")
        self._lost = ffi.new("struct pump_lost *")

    def __repr__(self) -> str:
        totals = self.totals()
        where = {
            device: f"{self.counts(device)[RESIDENT]}/{facts.budget}"
            for device, facts in self.devices.items()
        }
        return (
            f"<ClientModel seq={totals.observed_seq} window={totals.window_depth} "
            f"ranges={totals.ranges} resident={where} in_flight={totals.in_flight}>"
        )

    # ---- reports of the shim ---------------------------------------------------------

    def set_device(self, device: int, facts: DeviceFacts) -> None:
        """Takes over the shim's record of a device."""
        if self.devices.get(device) == facts:
            return
        self.devices[device] = facts
        self._facts.budget, self._facts.capacity = facts.budget, facts.capacity
        self._facts.emulated = facts.emulated
        lib.pump_model_device(self.raw, device, self._facts)

    def resync(self, ranges: Ranges, newest_seq: int) -> None:
        """Replaces the ranges with the table's: at the start, and after events were lost.

        Known ranges keep their state. `newest_seq`: newest operation issued; the events of unread
        operations up to it are lost.
        """
        lib.pump_model_resync(self.raw, ranges.count, ranges.slots, ranges.records, newest_seq)

    def forget_window(self) -> None:
        """Empties the window, because the following records in the ring were skipped."""
        lib.pump_model_forget_window(self.raw)

    def ingest(self, batch: Batch) -> None:
        """Applies the rows of a batch in order; fills in how many bytes each pointer reaches."""
        lib.pump_model_ingest(self.raw, batch.raw)

    def progress(self, executed_seq: Any, stride: int) -> None:
        """Retires executed operations; see `pump_model_progress`."""
        lib.pump_model_progress(self.raw, executed_seq, stride)

    def learn(self, wanted: bool, *, keep: bool = False) -> None:
        """Learns and predicts what the client repeats, or forgets it. keep: also keeps the
        beginning for another run of the program.

        Raises MemoryError if there is not enough memory for the history.
        """
        learning = lib.PUMP_LEARN_AND_KEEP if keep else lib.PUMP_LEARN
        if lib.pump_model_learn(self.raw, learning if wanted else lib.PUMP_LEARN_NOTHING) != 0:
            raise MemoryError("the learner's history does not fit into memory")

    def start_timing(self) -> None:
        """Starts to follow execution times and the time lost. Raises MemoryError."""
        if lib.pump_model_time(self.raw) != 0:
            raise MemoryError("the tables of times do not fit into memory")

    def stopped(self, began_ns: int, ended_ns: int) -> None:
        """Excludes a time in which the client's process was stopped from the time lost."""
        lib.pump_model_stopped(self.raw, began_ns, ended_ns)

    def delayed(self, at_ns: int, sum_ns: int, share: float) -> None:
        """Records that the client's issuing threads had waited `sum_ns` for CPU cores by `at_ns`.

        share: the least part of these waits that the job itself caused.
        """
        lib.pump_model_delayed(self.raw, at_ns, sum_ns, share)

    def lost(self, neighbours: int = 0) -> Any:
        """Returns the time lost until now: a `struct pump_lost`, overwritten by the next call.

        neighbours: the most other processes that may compute on the GPUs.
        """
        lib.pump_model_lost(self.raw, neighbours, self._lost)
        return self._lost

    def kept_operations(self) -> int:
        """Returns how many operations are kept for another run."""
        lib.pump_model_kept(self.raw, self._kept)
        return int(self._kept.operations)

    def kept(self) -> event_log.EventLog:
        """Returns a copy of the events that are kept for another run."""
        lib.pump_model_kept(self.raw, self._kept)
        return event_log.copied(self._kept)

    def recall(self, earlier: event_log.EventLog) -> None:
        """Puts an earlier run before this run's history, whose operations until now must be kept.
        Raises MemoryError."""
        if lib.pump_model_recall(self.raw, earlier.raw()) != 0:
            raise MemoryError("an earlier run does not fit into memory")

    def schedule(self, arrivals: bool) -> None:
        """Chooses whether schedules have arrivals; otherwise they keep an emulated budget only."""
        lib.pump_model_schedule(self.raw, arrivals)

    def duplicate(self, wanted: bool) -> None:
        """Turns duplication on or off: blocks that were only read then leave without a copy."""
        lib.pump_model_duplicate(self.raw, wanted)

    def read_in_place(self, placement: str) -> None:
        """Chooses where kernels read memory that does not fit: "migrate": never in place on the
        host; "auto": if a trial was faster; "remote": whatever they lack much of."""
        modes = {
            "migrate": lib.PUMP_IN_PLACE_OFF,
            "auto": lib.PUMP_IN_PLACE_AUTO,
            "remote": lib.PUMP_IN_PLACE_ALWAYS,
        }
        lib.pump_model_read_in_place(self.raw, modes[placement])

    # ---- for reports and tests --------------------------------------------------------

    def totals(self) -> Any:
        """Returns `struct pump_model_totals`, overwritten by the next call."""
        lib.pump_model_totals(self.raw, self._totals)
        return self._totals

    def tally(self, device: int) -> Any:
        """Returns a device's hits and misses, `struct pump_model_tally`, until the next call."""
        lib.pump_model_tally(self.raw, device, self._tally)
        return self._tally

    def counts(self, device: int) -> NDArray[np.int64]:
        """Returns how many blocks of `device` are in each state, shape [PUMP_BLOCK_STATES]."""
        counts = np.zeros(lib.PUMP_BLOCK_STATES, np.int64)
        lib.pump_model_counts(self.raw, device, ffi.from_buffer(INT64S, counts))
        return counts

    def occupied(self, device: int) -> int:
        """Returns how many blocks occupy memory of `device`."""
        return int(
            self.counts(device)[[ARRIVING, RESIDENT, LEAVING, MAYBE_EVICTED, DISCARDING]].sum()
        )

    def block(self, block: int) -> Any:
        """Returns `struct pump_block_info`. Raises IndexError for a number out of bounds."""
        info = ffi.new("struct pump_block_info *")
        if lib.pump_model_block(self.raw, block, info) != 0:
            raise IndexError(block)
        return info

    def blocks_of(self, slot: int) -> range | None:
        """Returns the block numbers of the range in `slot`, or None."""
        found = ffi.new("struct pump_range_blocks *")
        if lib.pump_model_range(self.raw, slot, found) != 0:
            return None
        return range(found.first_block, found.first_block + found.blocks)
