"""What is believed about one client: ranges, blocks, window, transfers under way.

Fed with batches, progress and outcomes; answers with views. It calls no driver, reads
no clock and decides nothing. Beliefs, not facts: the driver tells nobody where a block
really is, so everything here follows from what was asked of it and what ran.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pump.model.blocks import (
    ABSENT,
    ARRIVING,
    DOUBTED,
    HOST,
    LEAVING,
    RESIDENT,
    BlockTable,
)
from pump.model.bounds import (
    BLOCK_BYTES,
    DOUBTS_PER_FAULT,
    IN_FLIGHT_BLOCKS,
    IN_FLIGHT_SHARE,
    LEAVERS_BLOCKS,
    LOOKAHEAD_BLOCKS,
    SLICE_BLOCKS,
)
from pump.model.slices import Slice, cut
from pump.model.view import Decision, View
from pump.wire.abi import ffi, lib
from pump.wire.mapping import Batch, Outcome, Range

TO_GPU: int = lib.PUMP_TO_GPU
TO_HOST: int = lib.PUMP_TO_HOST

_IS_OPERATION: NDArray[np.bool_] = np.zeros(16, np.bool_)
_IS_OPERATION[[lib.PUMP_EVENT_KERNEL, lib.PUMP_EVENT_COPY, lib.PUMP_EVENT_MEMSET]] = True
_IS_CHANGE: NDArray[np.bool_] = np.zeros(16, np.bool_)
_IS_CHANGE[[lib.PUMP_EVENT_ALLOC, lib.PUMP_EVENT_FREE]] = True

_REFUSED = (lib.PUMP_RESULT_STALE, lib.PUMP_RESULT_INVALID, lib.PUMP_RESULT_FAILED)

ReadRange = Callable[[int], Range | None]


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """What the shim wrote about a device; sizes in blocks."""

    budget: int
    capacity: int
    """Blocks that really fit; more than that and the driver evicts on its own."""
    emulated: bool
    active: bool


@dataclass(frozen=True, slots=True)
class Transfer:
    """A command to give, or given: one slice in one direction."""

    ticket: int
    device: int
    direction: int
    slice: Slice
    observed_seq: int
    needed_by_seq: int
    stream: int


@dataclass(slots=True)
class Tally:
    """What executed operations met; published as `pump_worker_counters`."""

    operations: int = 0
    operations_hit: int = 0
    blocks_used: int = 0
    blocks_hit: int = 0
    miss_late: int = 0
    miss_unseen: int = 0
    miss_no_room: int = 0
    resyncs: int = 0
    overshoot_blocks_peak: int = 0


@dataclass(slots=True)
class _Device:
    facts: DeviceFacts
    short_of_room: bool = False
    in_flight: list[int] = field(default_factory=lambda: [0, 0])
    held_at: list[int] = field(default_factory=lambda: [-1, -1])
    """Per direction: what had been observed when a command was refused (stale, failed).
    Until more has been read, deciding again would only repeat it."""


class ClientModel:
    """The model of one client."""

    def __init__(self, table: BlockTable | None = None) -> None:
        self.table = table or BlockTable()
        self.devices: dict[int, _Device] = {}
        self.under_way: dict[int, Transfer] = {}
        self.streams: set[int] = set()
        """Stream slots that ever carried an operation."""
        self.observed_seq = 0
        """Newest operation that was read."""
        self.tally = Tally()
        self._next_ticket = 1
        self._retired = ffi.new("struct pump_retired *")
        self._missing: NDArray[np.int64] = np.zeros(LOOKAHEAD_BLOCKS, np.int64)
        self._need: NDArray[np.int64] = np.zeros(LOOKAHEAD_BLOCKS, np.int64)
        self._stream: NDArray[np.uint32] = np.zeros(LOOKAHEAD_BLOCKS, np.uint32)

    def __repr__(self) -> str:
        where = {
            device: f"{self.table.counts[device][RESIDENT]}/{known.facts.budget}"
            for device, known in self.devices.items()
        }
        return (
            f"<ClientModel seq={self.observed_seq} window={self.window_depth} "
            f"ranges={len(self.table.ranges)} resident={where} under_way={len(self.under_way)}>"
        )

    @property
    def window_depth(self) -> int:
        """Operations issued and not known to have executed."""
        return int(lib.pump_window_depth(self.table.window))

    # ---- what the shim reports -------------------------------------------------------

    def set_device(self, device: int, facts: DeviceFacts) -> None:
        """Take over the shim's record of a device."""
        known = self.devices.get(device)
        if known is None:
            self.devices[device] = _Device(facts)
        else:
            known.facts = facts

    def resync(self, records: list[Range], newest_seq: int) -> None:
        """Make the ranges those of `records`: at the start, and after events were lost.

        Ranges that are known stay as they are. `newest_seq`: newest operation issued;
        operations up to it that have not been read never will be.
        """
        self.observed_seq = max(self.observed_seq, newest_seq)
        self.tally.resyncs += 1
        live = {record.slot: record for record in records}
        for slot, tracked in list(self.table.ranges.items()):
            record = live.get(slot)
            if record is None or record.generation != tracked.record.generation:
                self.table.remove(slot)
        for record in records:
            if record.slot not in self.table.ranges:
                self._add(record, fresh=False)

    def forget_window(self) -> None:
        """Empty the window: what follows it in the ring was passed over."""
        for stream in self.streams:
            self._retire(stream, 2**63)

    def apply(self, batch: Batch, read_range: ReadRange) -> None:
        """Apply the rows of a batch in order."""
        if len(batch) == 0:
            return
        changes = _IS_CHANGE[batch.kind]
        begin = 0
        for row in np.flatnonzero(changes).tolist():
            self._append(batch, begin, row)
            self._change(batch, row, read_range)
            begin = row + 1
        self._append(batch, begin, len(batch))
        self.observed_seq = max(self.observed_seq, int(batch.seq.max()))

    def progress(self, executed_seq: NDArray[np.uint64]) -> None:
        """Retire what has executed. `executed_seq`: one element per stream slot."""
        for stream in self.streams:
            self._retire(stream, int(executed_seq[stream]))

    def finish(self, outcome: Outcome) -> Transfer | None:
        """Take the end of a command; returns the transfer, None for a foreign ticket."""
        transfer = self.under_way.pop(outcome.ticket, None)
        if transfer is None:
            return None
        moved = transfer.slice
        known = self.devices[transfer.device]
        known.in_flight[transfer.direction] -= len(moved.blocks)
        if outcome.result in _REFUSED:
            held = known.held_at[transfer.direction]
            known.held_at[transfer.direction] = max(held, transfer.observed_seq)
        tracked = self.table.ranges.get(moved.slot)
        if tracked is None or tracked.record.generation != moved.generation:
            return transfer  # the range died meanwhile: its numbers belong to others
        if transfer.direction == TO_GPU:
            # LATE: the operation has run, so its faults brought the blocks.
            there = outcome.result in (lib.PUMP_RESULT_MOVED, lib.PUMP_RESULT_LATE)
            before, after = ARRIVING, RESIDENT if there else HOST
        else:
            gone = outcome.result == lib.PUMP_RESULT_MOVED
            before, after = LEAVING, HOST if gone else RESIDENT
        blocks = moved.blocks[self.table.state[moved.blocks] == before]
        self.table.set_state(blocks, after)
        return transfer

    # ---- what a policy sees and answers ----------------------------------------------

    def view(self, device: int) -> View:
        """Return the view of a device that `set_device` made known."""
        known, table = self.devices[device], self.table
        count = lib.pump_window_missing(
            table.window,
            device,
            LOOKAHEAD_BLOCKS,
            ffi.from_buffer("int64_t[]", self._missing),
            ffi.from_buffer("int64_t[]", self._need),
            ffi.from_buffer("uint32_t[]", self._stream),
        )
        missing = self._missing[:count].copy()
        counts = table.counts[device]
        share = max(SLICE_BLOCKS, known.facts.budget // IN_FLIGHT_SHARE)
        in_flight = min(IN_FLIGHT_BLOCKS, share)
        credit = [
            max(0, in_flight - known.in_flight[way])
            if known.held_at[way] < self.observed_seq
            else 0
            for way in (TO_GPU, TO_HOST)
        ]
        leavers = table.leavers(device, lib.PUMP_BY_NEED, LEAVERS_BLOCKS)
        return View(
            budget=known.facts.budget,
            emulated=known.facts.emulated,
            resident=int(counts[RESIDENT] + counts[DOUBTED]),
            arriving=int(counts[ARRIVING]),
            leaving=int(counts[LEAVING]),
            to_gpu_credit=credit[TO_GPU],
            to_host_credit=credit[TO_HOST],
            missing=missing,
            missing_takes_room=table.state[missing] != DOUBTED,
            missing_need=self._need[:count].copy(),
            missing_all=count < LOOKAHEAD_BLOCKS,
            leavers=leavers,
            leavers_next_use=table.next_use[leavers],
            oldest=table.leavers(device, lib.PUMP_BY_MIGRATION, LEAVERS_BLOCKS),
        )

    def carry_out(self, device: int, decision: Decision) -> list[Transfer]:
        """Turn a decision on the newest view into transfers, and count them as under way."""
        known = self.devices[device]
        known.short_of_room = decision.short_of_room
        transfers = []
        for piece in cut(self.table, np.sort(decision.to_host)):
            transfers.append(self._start(device, TO_HOST, piece, 0, 0))
        for piece in cut(self.table, decision.to_gpu):
            need, stream = int(self._need[piece.index]), int(self._stream[piece.index])
            transfers.append(self._start(device, TO_GPU, piece, need, stream))
        return transfers

    def take_back(self, transfer: Transfer) -> None:
        """A transfer could not be handed over (the ring is full): as if never started."""
        self.finish(Outcome(transfer.ticket, lib.PUMP_RESULT_DEAD, duration_us=0))

    # ---- inside ----------------------------------------------------------------------

    def _start(self, device: int, direction: int, piece: Slice, need: int, stream: int) -> Transfer:
        transfer = Transfer(
            ticket=self._next_ticket,
            device=device,
            direction=direction,
            slice=piece,
            observed_seq=self.observed_seq,
            needed_by_seq=need,
            stream=stream,
        )
        self._next_ticket += 1
        self.under_way[transfer.ticket] = transfer
        self.devices[device].in_flight[direction] += len(piece.blocks)
        self.table.set_state(piece.blocks, ARRIVING if direction == TO_GPU else LEAVING)
        return transfer

    def _change(self, batch: Batch, row: int, read_range: ReadRange) -> None:
        """One ALLOC or FREE row: the range table, not the event, says what is there now."""
        for use in range(int(batch.use_begin[row]), int(batch.use_begin[row + 1])):
            slot = int(batch.slot[use])
            record = read_range(slot)
            tracked = self.table.ranges.get(slot)
            if tracked and record and tracked.record.generation == record.generation:
                continue
            self.table.remove(slot)
            if record is not None:
                self._add(record, fresh=True)

    def _add(self, record: Range, *, fresh: bool) -> None:
        """Track a range. The shim populates a fresh one while everything fits; one that
        was there before us may be resident as far as the budget goes."""
        known = self.devices.get(record.device)
        blocks = -(-record.length_bytes // BLOCK_BYTES)
        room = known.facts.budget - self.table.occupied(record.device) if known else 0
        if fresh:
            state = RESIDENT if room >= blocks else ABSENT
        else:
            state = DOUBTED if room >= blocks else HOST
        self.table.add(record, state)

    def _append(self, batch: Batch, begin: int, end: int) -> None:
        """Add the operations among rows [begin, end) to the window."""
        rows = begin + np.flatnonzero(_IS_OPERATION[batch.kind[begin:end]])
        if len(rows) == 0:
            return
        table = self.table
        low, high = int(batch.use_begin[rows[0]]), int(batch.use_begin[rows[-1] + 1])
        slot = batch.slot[low:high]
        offset = batch.offset_bytes[low:high].astype(np.int64)
        length = batch.length_bytes[low:high].astype(np.int64)
        whole = table.length_bytes[slot]
        argument = batch.access[low:high] == lib.PUMP_ACCESS_ARGUMENT
        length = np.where(argument, whole - offset, length)
        known = (
            (table.first_block[slot] >= 0)
            & (table.generation[slot] == batch.generation[low:high])
            & (offset >= 0)
            & (offset < whole)
            & (length > 0)
            # Between two operations may stand a hint with uses of its own.
            & np.repeat(_IS_OPERATION[batch.kind], np.diff(batch.use_begin))[low:high]
        )
        length = np.minimum(length, whole - offset)
        lead = table.lead_bytes[slot] + offset
        first = np.ascontiguousarray(table.first_block[slot] + lead // BLOCK_BYTES)
        count = (lead + length - 1) // BLOCK_BYTES - lead // BLOCK_BYTES + 1
        count = np.ascontiguousarray(np.where(known, count, 0))
        seq = np.ascontiguousarray(batch.seq[rows])
        stream = np.ascontiguousarray(batch.stream[rows])
        borders = np.append(batch.use_begin[rows], batch.use_begin[rows[-1] + 1]) - low
        borders = np.ascontiguousarray(borders, np.uint32)
        lib.pump_window_append(
            table.window,
            len(rows),
            ffi.from_buffer("uint64_t[]", seq),
            ffi.from_buffer("uint32_t[]", stream),
            ffi.from_buffer("uint32_t[]", borders),
            ffi.from_buffer("int64_t[]", first),
            ffi.from_buffer("int64_t[]", count),
        )
        self.streams.update(np.unique(stream).tolist())

    def _retire(self, stream: int, executed_seq: int) -> None:
        out = self._retired
        ffi.memmove(out, b"\0" * ffi.sizeof("struct pump_retired"), ffi.sizeof(out[0]))
        lib.pump_window_retire(self.table.window, stream, executed_seq, out)
        if out.operations == 0:
            return
        tally = self.tally
        tally.operations += out.operations
        tally.operations_hit += out.operations_hit
        tally.blocks_used += out.blocks
        tally.blocks_hit += out.blocks_hit
        tally.miss_late += out.blocks_late
        if any(known.short_of_room for known in self.devices.values()):
            tally.miss_no_room += out.blocks_missing
        else:
            tally.miss_unseen += out.blocks_missing
        for device, known in self.devices.items():
            self._settle(device, known)
            self._doubt(device, DOUBTS_PER_FAULT * out.blocks_missing)

    def _doubt(self, device: int, count: int) -> None:
        """Faults found room somewhere, at times by the driver's own eviction, before we
        knew of them. Which blocks went nobody tells; prefetching them again tells."""
        while count > 0:
            oldest = self.table.leavers(device, lib.PUMP_BY_MIGRATION_SURE, count)
            if len(oldest) == 0:
                return
            self.table.set_state(oldest, DOUBTED)
            count -= len(oldest)

    def _settle(self, device: int, known: _Device) -> None:
        """Faults brought in more than fits: believe what the driver then did.

        Its own eviction takes the block that migrated longest ago (uvm_pmm_gpu.c). With
        an emulated budget the card has room; the overshoot is the policy's to remove.
        """
        occupied = self.table.occupied(device)
        over_budget = occupied - known.facts.budget
        self.tally.overshoot_blocks_peak = max(self.tally.overshoot_blocks_peak, over_budget)
        excess = occupied - known.facts.capacity
        while excess > 0:
            oldest = self.table.leavers(device, lib.PUMP_BY_MIGRATION, excess)
            if len(oldest) == 0:
                return
            self.table.set_state(oldest, HOST)
            excess -= len(oldest)
