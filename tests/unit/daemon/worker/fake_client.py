"""A client in Python: writes a mapping as the shim would, in one thread, without CUDA.

It acts as program, executors and GPU for tests of the worker's side. It does not show concurrency,
the real shim, or real timing.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from pump.wire.abi import SHM_BYTES, ffi, lib
from pump.wire.mapping import Mapping
from pumpd.worker.worker import Worker

BLOCK = lib.PUMP_BLOCK_BYTES
MASK = 2**64 - 1


class FakeClient:
    """Allocates ranges one after another; its devices are alike."""

    def __init__(
        self, budget_blocks: int, *, emulated: bool = False, capacity: int = 0, devices: int = 1
    ) -> None:
        self.fd = os.memfd_create("fake-client")
        os.ftruncate(self.fd, SHM_BYTES)
        self.mapping = Mapping(self.fd)
        self.shm: Any = self.mapping.shm
        header = self.shm.header
        header.magic, header.abi_version = lib.PUMP_ABI_MAGIC, lib.PUMP_ABI_VERSION
        header.device_count = devices
        header.next_seq, header.event_tail, header.event_head = 1, 0, 0
        for device in self.shm.devices[0:devices]:
            device.budget_bytes = budget_blocks * BLOCK
            device.free_at_start_bytes = (capacity or budget_blocks) * BLOCK
            device.total_bytes = 1 << 40
            device.device_state = lib.PUMP_DEVICE_ACTIVE
            device.emulated = emulated
        self._next_base = 1 << 40
        self._next_slot = 0
        self.duplicates: dict[int, int] = {}
        """By ticket: the blocks that an entry asks to duplicate, as in struct pump_entry."""
        self._taken: dict[int, tuple[int, int]] = {}
        """In flight, by ticket: device and direction."""

    def close(self) -> None:
        del self.shm
        self.mapping.close()
        os.close(self.fd)

    def push(
        self,
        kind: int,
        seq: int,
        extents: list[tuple[int, int, int]],
        stream: int = 1,
        *,
        function: int = 0,
        device: int = 0,
        signature: int = 0,
        time_ns: int = 0,
    ) -> bool:
        """Publishes one event; extents are (slot, offset_bytes, length_bytes)."""
        header = self.shm.header
        records = max(1, -(-len(extents) // 3))
        if (header.event_tail + records - header.event_head) & MASK > lib.PUMP_EVENT_SLOTS:
            self.shm.shim_counters.events_dropped += 1
            return False
        position = header.event_tail
        header.event_tail = (position + records) & MASK
        for i in reversed(range(records)):
            event = self.shm.events[(position + i) % lib.PUMP_EVENT_SLOTS]
            event.kind = lib.PUMP_EVENT_MORE if i else kind
            event.seq, event.stream, event.extent_count = seq, stream, len(extents)
            event.function, event.device = function, device
            event.signature = function if kind == lib.PUMP_EVENT_KERNEL else signature
            event.time_ns = time_ns
            for j, (slot, offset, length) in enumerate(extents[3 * i : 3 * i + 3]):
                event.extents[j].slot = slot
                event.extents[j].generation = self.shm.ranges[slot].generation
                event.extents[j].offset_bytes = offset
                event.extents[j].length_access = (length << 2 | lib.PUMP_ACCESS_READ) & MASK
            event.sequence = (position + i + 1) & MASK
        return True

    def name(self, function: int, name: bytes) -> None:
        """Reports a kernel's name, of at most 72 bytes."""
        position = self.shm.header.event_tail
        self.shm.header.event_tail = (position + 1) & MASK
        event = self.shm.events[position % lib.PUMP_EVENT_SLOTS]
        event.kind, event.function, event.extent_count = lib.PUMP_EVENT_NAME, function, 0
        event.payload_bytes = len(name)
        ffi.buffer(event.extents)[: len(name)] = name
        event.sequence = (position + 1) & MASK

    def alloc(self, blocks: int, device: int = 0) -> int:
        """Allocates a range; returns its slot."""
        slot = self._next_slot
        self._next_slot += 1
        record = self.shm.ranges[slot]
        record.generation += 1
        record.range_kind = lib.PUMP_RANGE_CONVERTED
        record.base, record.length_bytes = self._next_base, blocks * BLOCK
        record.device = device
        self._next_base += blocks * BLOCK
        self.shm.header.range_high = self._next_slot
        whole = [(slot, 0, blocks * BLOCK)]
        self.push(lib.PUMP_EVENT_ALLOC, 0, whole, function=record.base, device=device)
        return slot

    def free(self, slot: int) -> None:
        self.shm.ranges[slot].range_kind = lib.PUMP_RANGE_FREE
        self.push(lib.PUMP_EVENT_FREE, 0, [(slot, 0, BLOCK)])
        self.shm.ranges[slot].generation += 1

    def launch(self, slots: list[int], stream: int = 1, function: int = 0) -> int:
        """Issues a kernel that touches whole ranges; returns its seq.

        The launch is compared with its prediction. Its signature is the function.
        """
        header = self.shm.header
        seq = int(header.next_seq)
        header.next_seq = (seq + 1) & MASK
        extents = [(slot, 0, int(self.shm.ranges[slot].length_bytes)) for slot in slots]
        for slot in slots:
            for eighth in range(8):
                self.shm.ranges[slot].last_use_seq[eighth] = seq
        if header.armed:
            found = self.shm.predicted[seq % lib.PUMP_PREDICTIONS].signature
            if found != prediction_word(seq, stream, lib.PUMP_EVENT_KERNEL, function):
                header.valid_seq = min(header.valid_seq, seq - 1)
        self.push(lib.PUMP_EVENT_KERNEL, seq, extents, stream, function=function)
        return seq

    def execute(self, seq: int, stream: int = 1) -> None:
        """Marks all operations of `stream` up to `seq` as executed."""
        self.shm.progress[stream].executed_seq = seq
        self.shm.header.activity += 1

    def commands(self, direction: int, device: int = 0) -> list[Any]:
        """Takes the entries of the schedule in force that may start; returns copies of their
        commands."""
        schedule, valid_seq, taken = self.shm.schedules[device], self.shm.header.valid_seq, []
        while schedule.cursor >> 32:
            at = schedule.cursor >> 16 * direction & 0xFFFF
            if at >= schedule.count[direction]:
                break
            entry = schedule.entries[direction][at]
            executed = self.shm.progress[entry.after_stream].executed_seq
            if executed < entry.after_seq or schedule.left_bytes < entry.left_bytes:
                break
            if schedule.ended_bytes < entry.ended_bytes:
                break
            if direction == lib.PUMP_TO_GPU and entry.command.needed_by_seq > valid_seq:
                break
            schedule.cursor += 1 << 16 * direction
            command = _copy(entry.command)
            command.observed_seq = min(command.observed_seq, valid_seq)
            taken.append(command)
            self._taken[command.ticket] = device, direction
            self.duplicates[command.ticket] = int(entry.duplicates)
        return taken

    def result_of(self, command: Any) -> int:
        """Returns PUMP_RESULT_STALE for blocks that may not leave, else PUMP_RESULT_MOVED."""
        _, direction = self._taken[command.ticket]
        used = max(self.shm.ranges[command.slot].last_use_seq)
        stale = direction == lib.PUMP_TO_HOST and used > command.observed_seq
        return int(lib.PUMP_RESULT_STALE if stale else lib.PUMP_RESULT_MOVED)

    def finish(self, command: Any, result: int = lib.PUMP_RESULT_MOVED, kept: int = 0) -> None:
        """Reports the end of a command. `kept`: as in struct pump_entry_end."""
        device, direction = self._taken.pop(command.ticket)
        schedule = self.shm.schedules[device]
        if command.advice:
            pass  # it moves nothing
        elif direction == lib.PUMP_TO_GPU:
            schedule.ended_bytes += command.length_bytes
        elif result == lib.PUMP_RESULT_MOVED:
            schedule.left_bytes += command.length_bytes
        else:
            schedule.ended_bytes += lib.PUMP_UNPACED_BYTES
        end = self.shm.entry_ends[command.ticket % lib.PUMP_SCHEDULE_TICKETS]
        end.result, end.duration_us, end.kept = result, 100, kept
        end.ticket = command.ticket
        self.shm.header.activity += 1


def _copy(command: Any) -> Any:
    return ffi.new("struct pump_command *", command)[0]


def prediction_word(seq: int, stream: int, kind: int, what: int) -> int:
    """Mirrors pump_prediction_word of shim/include/pump_ring.h."""
    place = (stream << 8 | kind) * 0x9E3779B97F4A7C15
    return (what ^ place ^ (seq + 1) * 0xC2B2AE3D27D4EB4F) & MASK


__all__ = ["BLOCK", "FakeClient", "ffi", "lib"]


MakeClient = Callable[..., FakeClient]
Serve = Callable[..., tuple[FakeClient, Worker]]


def states(worker: Worker, blocks: range) -> list[int]:
    return [worker.model.block(block).state for block in blocks]


def carry_out(client: FakeClient, worker: Worker, ticks: int, device: int = 0) -> list[Any]:
    """Ticks, and lets every command of the device succeed; returns the commands."""
    done = []
    for _ in range(ticks):
        worker.tick()
        for direction in (lib.PUMP_TO_HOST, lib.PUMP_TO_GPU):
            for command in client.commands(direction, device):
                done.append(command)
                client.finish(command)
    worker.tick()
    return done
