"""One client's shared mapping: events in, commands out, progress, counters.

A thin layer over libpump_core that turns its columns into numpy views without a copy.
It holds no opinion; the client may have written anything into the mapping, so what is
read here is range-checked in C or by the caller.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pump.wire.abi import SHM_BYTES, ffi, lib

REAP_AT_ONCE = 64
"""Completions collected by one call (commands)."""


ADDRESS_LIMIT = 1 << 57
"""Above every user address (bytes); five-level paging included."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of one drain, in issue order.

    All arrays are views that the next drain overwrites. Row i owns the uses
    `use_begin[i]:use_begin[i + 1]`. Times in ns, lengths in bytes.
    """

    seq: NDArray[np.uint64]
    time_ns: NDArray[np.uint64]
    function: NDArray[np.uint64]
    stream: NDArray[np.uint32]
    device: NDArray[np.uint32]
    kind: NDArray[np.uint16]
    use_begin: NDArray[np.uint32]
    slot: NDArray[np.uint32]
    generation: NDArray[np.uint32]
    offset_bytes: NDArray[np.uint64]
    length_bytes: NDArray[np.uint64]
    access: NDArray[np.uint8]
    malformed: int

    def __len__(self) -> int:
        return len(self.seq)


@dataclass(frozen=True, slots=True)
class Range:
    """A copy of one record of the range table."""

    slot: int
    generation: int
    kind: int
    base: int
    length_bytes: int
    device: int
    alloc_seq: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a command ended: PUMP_RESULT_* and the time from taking it, in us."""

    ticket: int
    result: int
    duration_us: int


class ProtocolError(Exception):
    """The mapping's indices make no sense; state must be read from the range table."""


def _view(struct: Any, name: str, dtype: Any, count: int) -> NDArray[Any]:
    field = ffi.addressof(struct, name)
    return np.frombuffer(ffi.buffer(field, np.dtype(dtype).itemsize * count), dtype=dtype)


class Mapping:
    """A memfd of PUMP_SHM_BYTES, mapped; `close` unmaps it. One thread at a time."""

    def __init__(self, fd: int) -> None:
        """Map `fd`. Raises ValueError when the file is too small, OSError from mmap."""
        self._map = mmap.mmap(fd, SHM_BYTES)
        self._buffer = ffi.from_buffer(self._map)
        self.shm = ffi.cast("struct pump_shm *", self._buffer)
        self._batch = ffi.new("struct pump_batch *")
        self._outcomes = ffi.new("struct pump_outcome[]", REAP_AT_ONCE)
        self._command = ffi.new("struct pump_command *")
        self._range = ffi.new("struct pump_range *")
        self._cursors = ffi.new("uint64_t[]", 2 * lib.PUMP_MAX_DEVICES)
        self._columns = {
            name: _view(self._batch, name, dtype, count)
            for name, dtype, count in (
                ("seq", np.uint64, 4096),
                ("time_ns", np.uint64, 4096),
                ("function", np.uint64, 4096),
                ("stream", np.uint32, 4096),
                ("device", np.uint32, 4096),
                ("kind", np.uint16, 4096),
                ("use_begin", np.uint32, 4097),
                ("slot", np.uint32, 65536),
                ("generation", np.uint32, 65536),
                ("offset_bytes", np.uint64, 65536),
                ("length_bytes", np.uint64, 65536),
                ("access", np.uint8, 65536),
            )
        }
        progress = np.frombuffer(
            ffi.buffer(ffi.addressof(self.shm, "progress"), 64 * lib.PUMP_MAX_STREAMS),
            dtype=np.uint64,
        ).reshape(lib.PUMP_MAX_STREAMS, 8)
        self.executed_seq: NDArray[np.uint64] = progress[:, 1]
        """Live view, one element per stream slot."""

    def close(self) -> None:
        """Unmap. Views handed out before must not be used any more."""
        self._columns.clear()
        del self.executed_seq, self.shm
        ffi.release(self._buffer)
        with contextlib.suppress(BufferError):  # a view lives on: the mapping goes with it
            self._map.close()

    def drain(self) -> Batch:
        """Return what has arrived. Raises ProtocolError for impossible indices."""
        rows = lib.pump_core_drain(self.shm, self._batch)
        if rows < 0:
            raise ProtocolError
        columns, uses = self._columns, self._batch.uses
        return Batch(
            seq=columns["seq"][:rows],
            time_ns=columns["time_ns"][:rows],
            function=columns["function"][:rows],
            stream=columns["stream"][:rows],
            device=columns["device"][:rows],
            kind=columns["kind"][:rows],
            use_begin=columns["use_begin"][: rows + 1],
            slot=columns["slot"][:uses],
            generation=columns["generation"][:uses],
            offset_bytes=columns["offset_bytes"][:uses],
            length_bytes=columns["length_bytes"][:uses],
            access=columns["access"][:uses],
            malformed=self._batch.malformed,
        )

    def backlog(self) -> int:
        """Return how many records wait in the event ring."""
        return int(lib.pump_core_backlog(self.shm))

    def skip(self) -> int:
        """Jump over everything that waits; return how many records that were."""
        return int(lib.pump_core_skip(self.shm))

    def read_range(self, slot: int) -> Range | None:
        """Return a consistent copy of one live range; None if there is none, or nonsense."""
        if lib.pump_core_range(self.shm, slot, self._range) != 0:
            return None
        record = self._range
        sensible = (
            record.range_kind in (lib.PUMP_RANGE_CONVERTED, lib.PUMP_RANGE_MANAGED)
            and 0 < record.length_bytes < ADDRESS_LIMIT
            and record.base < ADDRESS_LIMIT
            and record.device < lib.PUMP_MAX_DEVICES
        )
        if not sensible:
            return None
        return Range(
            slot=slot,
            generation=record.generation,
            kind=record.range_kind,
            base=record.base,
            length_bytes=record.length_bytes,
            device=record.device,
            alloc_seq=record.alloc_seq,
        )

    def range_slots(self) -> range:
        """Return the slots of the range table that may be live."""
        return range(lib.pump_core_range_high(self.shm))

    def submit(
        self,
        device: int,
        direction: int,
        *,
        ticket: int,
        slot: int,
        generation: int,
        offset_bytes: int,
        length_bytes: int,
        observed_seq: int,
        needed_by_seq: int = 0,
        stream: int = 0,
    ) -> bool:
        """Hand one command to the executors; False when their ring is full."""
        command = self._command
        command.ticket = ticket
        command.slot = slot
        command.generation = generation
        command.offset_bytes = offset_bytes
        command.length_bytes = length_bytes
        command.observed_seq = observed_seq
        command.needed_by_seq = needed_by_seq
        command.stream = stream
        result = lib.pump_core_submit(self.shm, device, direction, command)
        if result not in (0, -errno.EAGAIN):
            raise ValueError(f"no command ring for device {device}, direction {direction}")
        return bool(result == 0)

    def reap(self, device: int, direction: int) -> list[Outcome]:
        """Return finished commands of one ring, at most REAP_AT_ONCE."""
        cursor = self._cursors + (2 * device + direction)
        count = lib.pump_core_reap(
            self.shm, device, direction, cursor, self._outcomes, REAP_AT_ONCE
        )
        return [
            Outcome(o.ticket, o.result, o.duration_us) for o in self._outcomes[0 : max(count, 0)]
        ]

    def activity(self) -> int:
        """Return the counter that moves with each completion and each progress."""
        return int(lib.pump_core_activity(self.shm))

    def wait(self, seen_activity: int, spin_ns: int, timeout_ns: int) -> bool:
        """Wait for work as `pump_core_wait` does; True when there may be some."""
        return bool(lib.pump_core_wait(self.shm, seen_activity, spin_ns, timeout_ns))
