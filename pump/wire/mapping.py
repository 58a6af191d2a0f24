"""One client's shared mapping: events, schedules, progress, counters.

A thin layer over libpump_core without policy. The client may have written anything into the
mapping, so C or the caller checks all values that are read. Data to and from the model stays in C
arrays: a tick makes no Python object for an event.
"""

from __future__ import annotations

import contextlib
import mmap
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pump.wire.abi import SHM_BYTES, ffi, lib

BATCH_TYPES = {
    name: np.dtype(f"u{ffi.sizeof(field.type.item)}")
    for name, field in ffi.typeof("struct pump_batch").fields
    if field.type.kind == "array"
}
"""Types of the columns of `struct pump_batch`, by name."""
_ROW_COLUMNS = (
    *("seq", "time_ns", "function", "signature", "stream", "device", "kind", "dropped"),
    *("use_begin", "payload_begin", "payload_bytes"),
)
_USE_COLUMNS = ("slot", "generation", "argument", "offset_bytes", "length_bytes", "access")


class Batch:
    """Events that one drain has taken from the event ring, in issue order, as numpy arrays.

    Attributes are the columns of `struct pump_batch`, shape [rows] (`use_begin`: [rows + 1]) or
    [uses]: views that the next drain overwrites. Row i owns the uses
    `use_begin[i]:use_begin[i + 1]`. Times in ns, lengths in bytes.
    """

    __slots__ = ("_columns", "raw")

    def __init__(self) -> None:
        self.raw: Any = ffi.new("struct pump_batch *")
        self._columns = {
            name: np.frombuffer(ffi.buffer(getattr(self.raw, name)), BATCH_TYPES[name])
            for name in (*_ROW_COLUMNS, *_USE_COLUMNS)
        }

    def __len__(self) -> int:
        return int(self.raw.rows)

    def __getattr__(self, name: str) -> NDArray[Any]:
        if name in _USE_COLUMNS:
            return self._columns[name][: self.raw.uses]
        if name in _ROW_COLUMNS:
            return self._columns[name][: self.raw.rows + (name == "use_begin")]
        raise AttributeError(name)

    @property
    def malformed(self) -> int:
        """Returns the number of invalid records that were skipped."""
        return int(self.raw.malformed)

    def payload(self, row: int) -> bytes:
        """Returns the payload of a PARAMS or NAME row; other rows have none."""
        begin = self.raw.payload_begin[row]
        return bytes(ffi.buffer(self.raw.payload)[begin : begin + self.raw.payload_bytes[row]])


@dataclass(frozen=True, slots=True)
class Ranges:
    """Copies of all live ranges: two C arrays of `count` elements, by slot."""

    count: int
    slots: Any
    """`uint32_t *`"""
    records: Any
    """`struct pump_range *`"""


class ProtocolError(Exception):
    """The mapping's indices are invalid; callers read the state from the range table instead."""


class Mapping:
    """A memfd of SHM_BYTES, mapped; `close` unmaps it. Only one thread at a time may use it."""

    def __init__(self, fd: int) -> None:
        """Maps `fd`. Raises ValueError if the file is too small, OSError from mmap."""
        self._map = mmap.mmap(fd, SHM_BYTES)
        self._buffer = ffi.from_buffer(self._map)
        self.shm = ffi.cast("struct pump_shm *", self._buffer)
        self.batch = Batch()
        """The batch that `drain` fills."""

    def close(self) -> None:
        """Unmaps. Batches, ranges and views of this mapping must not be used afterwards."""
        del self.shm
        ffi.release(self._buffer)
        with contextlib.suppress(BufferError):  # a view exists: its deletion unmaps
            self._map.close()

    def drain(self) -> Batch:
        """Reads the events that have arrived. Raises ProtocolError for impossible indices."""
        if lib.pump_core_drain(self.shm, self.batch.raw) < 0:
            raise ProtocolError
        return self.batch

    def backlog(self) -> int:
        """Returns how many records wait in the event ring."""
        return int(lib.pump_core_backlog(self.shm))

    def skip(self) -> int:
        """Skips all waiting records; returns their number."""
        return int(lib.pump_core_skip(self.shm))

    def ask_again(self) -> None:
        """Asks the shim to send names and parameters again, because some were lost."""
        self.shm.header.resend = (self.shm.header.resend + 1) & 0xFFFFFFFF

    def read_ranges(self) -> Ranges:
        """Copies all live ranges out of the table."""
        slots = ffi.new("uint32_t[]", lib.PUMP_MAX_RANGES)
        records = ffi.new("struct pump_range[]", lib.PUMP_MAX_RANGES)
        count = lib.pump_core_ranges(self.shm, slots, records, lib.PUMP_MAX_RANGES)
        return Ranges(count, slots, records)

    def read_into(self, model: Any) -> int:
        """Drains the ring and applies it to `struct pump_model *`; returns the number of rows.

        Raises ProtocolError for impossible indices.
        """
        rows: int = lib.pump_worker_read(self.shm, model, self.batch.raw)
        if rows < 0:
            raise ProtocolError
        return rows

    def follow(self, model: Any) -> None:
        """Applies executed operations and ended transfers to a model, and renews the schedules that
        need it."""
        lib.pump_worker_follow(self.shm, model)

    def activity(self) -> int:
        """Returns the counter that each completion and each progress increases."""
        return int(lib.pump_core_activity(self.shm))

    def wait(self, model: Any, seen_activity: int, spin_ns: int, timeout_ns: int) -> bool:
        """Waits for work as `pump_worker_wait` does; returns True when there may be some."""
        return bool(lib.pump_worker_wait(self.shm, model, seen_activity, spin_ns, timeout_ns))
