"""Batches made by hand, to drive a model without a ring.

Tests look at it through the view of studied policies.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from model_states import set_states

from pump.model.client import ClientModel, DeviceFacts
from pump.wire.abi import ffi, lib
from pump.wire.mapping import Batch, Ranges
from pump_lab import abi
from pump_lab.sim.deciding import View, view_of

BLOCK = lib.PUMP_BLOCK_BYTES
BASE = 1 << 40


class Script:
    """A model, and short methods to feed it; ranges are 1 GiB apart."""

    def __init__(
        self,
        *,
        capacity: int = 4096,
        budget: int = 1 << 20,
        devices: int = 1,
        emulated: bool = False,
    ) -> None:
        self.model = ClientModel(capacity)
        for device in range(devices):
            self.model.set_device(device, DeviceFacts(budget, budget, emulated, True))
        self.batch = Batch()
        self.executed = ffi.new("uint64_t[]", lib.PUMP_MAX_STREAMS)
        self.generation: dict[int, int] = {}
        self.seq = 0
        self._shm: Any = None

    def send(
        self,
        kind: int,
        *,
        seq: int = 0,
        stream: int = 0,
        device: int = 0,
        function: int = 0,
        dropped: int = 0,
        time_ns: int = 0,
        signature: int = 0,
        uses: list[tuple[int, int, int, int, int]] | None = None,
    ) -> None:
        """Applies one row; uses are (slot, generation, offset_bytes, length_bytes, access)."""
        raw, uses = self.batch.raw, uses or []
        raw.rows, raw.uses, raw.payload_used = 1, len(uses), 0
        raw.seq[0], raw.kind[0], raw.stream[0] = seq, kind, stream
        raw.device[0], raw.function[0], raw.dropped[0] = device, function, dropped
        raw.time_ns[0], raw.signature[0] = time_ns, signature
        raw.use_begin[0], raw.use_begin[1] = 0, len(uses)
        for i, (slot, generation, offset, length, access) in enumerate(uses):
            raw.slot[i], raw.generation[i] = slot, generation
            raw.offset_bytes[i], raw.length_bytes[i], raw.access[i] = offset, length, access
        self.model.ingest(self.batch)

    def alloc(self, slot: int, blocks: int, *, device: int = 0) -> range:
        """Allocates a range; returns the numbers of its blocks."""
        generation = self.generation.setdefault(slot, 1)
        uses = [(slot, generation, 0, blocks * BLOCK, lib.PUMP_ACCESS_WRITE)]
        self.send(lib.PUMP_EVENT_ALLOC, device=device, function=BASE + (slot << 30), uses=uses)
        found = self.model.blocks_of(slot)
        assert found is not None
        return found

    def free(self, slot: int) -> None:
        uses = [(slot, self.generation[slot], 0, BLOCK, lib.PUMP_ACCESS_WRITE)]
        self.send(lib.PUMP_EVENT_FREE, uses=uses)
        self.generation[slot] += 1

    def copy(
        self,
        runs: list[tuple[int, int, int]],
        *,
        stream: int = 0,
        dropped: int = 0,
        time_ns: int = 0,
    ) -> int:
        """Issues an operation with runs of (slot, first block, blocks), and `dropped` more extents
        that it does not list; returns its seq."""
        self.seq += 1
        uses = [
            (slot, self.generation[slot], first * BLOCK, count * BLOCK, lib.PUMP_ACCESS_READ)
            for slot, first, count in runs
        ]
        self.send(
            lib.PUMP_EVENT_COPY,
            seq=self.seq,
            stream=stream,
            dropped=dropped,
            time_ns=time_ns,
            uses=uses,
        )
        return self.seq

    def execute(self, seq: int, *, stream: int = 0) -> None:
        self.executed[stream] = seq
        self.model.progress(self.executed, 1)

    def state(self, blocks: range) -> list[int]:
        return [self.model.block(block).state for block in blocks]

    def set_state(self, blocks: range | list[int], state: int) -> None:
        set_states(self.model, blocks, state)

    def start(self, direction: int, blocks: list[int], *, device: int = 0) -> list[Command]:
        """Starts transfers of chosen blocks; returns copies of the commands."""
        commands = ffi.new("struct pump_command[]", 256)
        count = abi.lib.pump_sim_start(
            self.model.raw, device, direction, blocks, len(blocks), commands, 256
        )
        return [Command(c) for c in commands[0:count]]

    def finish(self, ticket: int, result: int = lib.PUMP_RESULT_MOVED, us: int = 400) -> None:
        """Ends a transfer of `start`."""
        abi.lib.pump_sim_end(self.model.raw, ticket, result, us)

    def view(self, device: int = 0) -> View:
        return view_of(self.model, device)

    def schedule(self, device: int = 0) -> tuple[list[Entry], list[Entry]]:
        """Puts a schedule in force in a mapping of its own; returns departures and arrivals.

        No entry is taken, and the next schedule replaces this one.
        """
        if self._shm is None:
            self._shm = ffi.new("struct pump_shm *")
        self._shm.header.next_seq = self.seq + 1  # all issued operations have been read
        lib.pump_worker_schedule(self._shm, self.model.raw, device)
        made = self._shm.schedules[device]
        out, come = (
            [Entry.of(self, e) for e in made.entries[way][0 : made.count[way] * (made.cursor > 0)]]
            for way in (lib.PUMP_TO_HOST, lib.PUMP_TO_GPU)
        )
        return out, come

    def resync(self, ranges: dict[int, tuple[int, int]], newest_seq: int = 0) -> None:
        """Resynchronizes the model; `ranges`: slot -> (generation, blocks)."""
        slots = ffi.new("uint32_t[]", sorted(ranges))
        records = ffi.new("struct pump_range[]", max(1, len(ranges)))
        for record, slot in zip(records, sorted(ranges), strict=False):
            record.generation, blocks = ranges[slot]
            record.range_kind, record.length_bytes = lib.PUMP_RANGE_CONVERTED, blocks * BLOCK
            record.base = BASE + (slot << 30)
        self.model.resync(Ranges(len(ranges), slots, records), newest_seq)


class Entry(NamedTuple):
    """An entry of a schedule: blocks to move in one direction, and the conditions for the move."""

    blocks: tuple[int, ...]
    need: int = 0
    """The operation that the arrival serves; 0: a departure."""
    after_seq: int = 0
    left: int = 0
    """The number of blocks that must have left before."""

    @classmethod
    def of(cls, script: Script, planned: Any) -> Entry:
        command = planned.command
        blocks = script.model.blocks_of(command.slot)
        assert blocks is not None
        first = command.offset_bytes // BLOCK
        return cls(
            tuple(blocks[first : first + command.length_bytes // BLOCK]),
            command.needed_by_seq,
            planned.after_seq,
            planned.left_bytes // BLOCK,
        )


def blocks_of(entries: list[Entry]) -> list[int]:
    """Returns the blocks in the order of the entries."""
    return [block for entry in entries for block in entry.blocks]


class Command:
    """A copy of one `struct pump_command`."""

    def __init__(self, raw: object) -> None:
        for name in ("ticket", "slot", "generation", "offset_bytes", "length_bytes"):
            setattr(self, name, getattr(raw, name))
        for name in ("observed_seq", "needed_by_seq", "stream"):
            setattr(self, name, getattr(raw, name))

    ticket: int
    slot: int
    generation: int
    offset_bytes: int
    length_bytes: int
    observed_seq: int
    needed_by_seq: int
    stream: int
