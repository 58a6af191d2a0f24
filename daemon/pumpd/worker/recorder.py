"""Records the events that a worker reads. Only workers of recorded jobs import this module.

DESIGN
  The worker must wait neither for the compressor nor for a disk. The worker copies the columns of
  each batch, because the next batch overwrites its views. Some thousand rows at a time go through
  a bounded queue to a thread that packs and writes them (pump/trace/writer.py). Rows that do not
  fit into the queue are lost; the recording contains their number at that position.

  A file error (disk full, folder removed) ends the recording, not the worker. The log gets one
  warning, and the mapping gets the error number, which the shim prints in its last line.

  A recording is written next to FILE and renamed to FILE at the end (pump/trace/place.py).
"""

from __future__ import annotations

import errno
import json
import logging
import os
import queue
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

import pump
from pump.base.names import quoted
from pump.trace import format as form
from pump.trace import place
from pump.trace import records as rec
from pump.trace.writer import ROW_COLUMNS, USE_COLUMNS, Rows, TraceWriter
from pump.wire.abi import ffi, lib
from pump.wire.mapping import BATCH_TYPES, Batch, Ranges
from pumpd.common import threads
from pumpd.common.settings import WorkerSettings
from pumpd.worker.hops import Hops
from pumpd.worker.run_delay import RunDelay

log = logging.getLogger("pumpd.recorder")

HAND_OVER_ROWS: Final = 2048
HAND_OVER_USES: Final = 16384
HAND_OVER_PAYLOAD_BYTES: Final = 262144
HAND_OVER_NS: Final = 200_000_000
"""The worker hands its rows over when one of these limits is reached."""

FLUSH_S: Final = 1.0
"""Longest time until data that the thread received is in the file."""

QUEUE_BYTES: Final = 128 << 20
"""Most bytes of copied columns that wait for the thread; further events are lost and counted."""

SAMPLE_BYTES: Final = 512
"""Approximate size of a waiting sample."""

CLOSE_S: Final = 30.0
"""Longest wait for the thread at the end, because a disk may hang."""

_RANGE: Final = np.dtype(
    {
        "names": ["generation", "kind", "base", "length_bytes", "device", "alloc_seq"],
        "formats": ["<u4", "<u4", "<u8", "<u8", "<u4", "<u8"],
        "offsets": [
            ffi.offsetof("struct pump_range", name)
            for name in (
                *("generation", "range_kind", "base", "length_bytes", "device", "alloc_seq"),
            )
        ],
        "itemsize": ffi.sizeof("struct pump_range"),
    }
)

_BATCH_ROWS: Final = 4096
_BATCH_USES: Final = 65536
_ROWS_ROOM: Final = HAND_OVER_ROWS + _BATCH_ROWS
_USES_ROOM: Final = HAND_OVER_USES + _BATCH_USES
_USE_END: Final = "use_end"
Work = Callable[[TraceWriter], None]


def path_of(file: str, client_number: int) -> str:
    """Returns the path for the job's client number n, from 1: FILE, FILE.2, FILE.3, ..."""
    return file if client_number <= 1 else f"{file}.{client_number}"


class _Block:
    """Collects the rows of several event batches in columns of its own, until they are written.

    Filled by memory copies with pointers that are looked up in advance, because the worker does
    this in each tick, between reading and deciding.
    """

    def __init__(self) -> None:
        self._rows = {n: np.empty(_ROWS_ROOM, BATCH_TYPES[n]) for n in ROW_COLUMNS}
        self._rows[_USE_END] = np.empty(_ROWS_ROOM, BATCH_TYPES["use_begin"])
        self._uses = {n: np.empty(_USES_ROOM, BATCH_TYPES[n]) for n in USE_COLUMNS}
        self._to_rows = [_target(column) for column in self._rows.values()]
        self._to_uses = [_target(column) for column in self._uses.values()]
        self._from: Any = None
        self.clear()

    def clear(self) -> None:
        self.rows = self.uses = self.payload_bytes = self.since_ns = 0
        self._batches: list[tuple[int, int]] = []
        self._payloads: list[bytes] = []

    @property
    def nbytes(self) -> int:
        """Returns the approximate number of bytes in the columns."""
        return self.rows * 54 + self.uses * 33 + self.payload_bytes

    def take(self, batch: Batch) -> None:
        """Appends a batch. The caller hands the block over before it could overflow."""
        raw = batch.raw
        if self.rows == 0:
            self.since_ns = time.monotonic_ns()
        if raw is not self._from:
            self._from = raw
            row_columns = [getattr(raw, name) for name in ROW_COLUMNS]
            self._from_rows = [_pointer(c) for c in (*row_columns, raw.use_begin + 1)]
            self._from_uses = [_pointer(getattr(raw, name)) for name in USE_COLUMNS]
        rows, uses, at = raw.rows, raw.uses, self.rows
        for (to, size), source in zip(self._to_rows, self._from_rows, strict=True):
            ffi.memmove(to + at * size, source, rows * size)
        at = self.uses
        if uses:
            for (to, size), source in zip(self._to_uses, self._from_uses, strict=True):
                ffi.memmove(to + at * size, source, uses * size)
        self.rows += rows
        self.uses += uses
        self._batches.append((rows, uses))
        if raw.payload_used:
            for row in np.flatnonzero(batch.payload_bytes).tolist():
                self._payloads.append(batch.payload(row))
                self.payload_bytes += len(self._payloads[-1])

    def as_rows(self) -> Rows:
        """Returns views of the rows, for the writer."""
        rows, uses = np.array(self._batches).T
        # The end of a row's uses is relative to the start of its own batch.
        end = self._rows[_USE_END][: self.rows] + np.repeat(np.cumsum(uses) - uses, rows)
        return Rows(
            {name: self._rows[name][: self.rows] for name in ROW_COLUMNS},
            {name: column[: self.uses] for name, column in self._uses.items()},
            np.diff(end, prepend=0),
            self._payloads,
        )


def _pointer(column: Any) -> Any:
    return ffi.cast("char *", column)


def _target(column: NDArray[Any]) -> tuple[Any, int]:
    """Returns the address of a column, and the bytes of one value."""
    return _pointer(ffi.from_buffer(column)), column.itemsize


class Recorder:
    """Records one client. All methods except `close` return immediately; none raises OSError."""

    def __init__(self, path: str, header: Mapping[str, Any], folder: int | None = None) -> None:
        """Starts a recording to `path`. Raises OSError, for example to protect a file there.

        `folder`: a descriptor of the path's folder, which the caller keeps; None: opened here.
        """
        self.path = path
        self.error = 0
        """errno of the error that ended the recording early, or 0."""
        self._folder = place.open_folder(path) if folder is None else os.dup(folder)
        try:
            self._draft = place.Draft(Path(path).name, self._folder)
        except OSError:
            os.close(self._folder)
            raise
        self._block = _Block()
        self.hops = Hops()
        """The worker's notes on delays of slices and events."""
        self._spare: queue.SimpleQueue[_Block] = queue.SimpleQueue()  # blocks to reuse
        self._devices: dict[int, dict[str, int]] = {}
        self._lost_rows = 0
        self.empty = True
        """True until an event or a range arrives, or an event is lost."""
        self._waiting_bytes = 0  # bytes queued by the worker
        self._done_bytes = 0  # bytes processed by the thread
        self._work: queue.SimpleQueue[tuple[Work, int] | None] = queue.SimpleQueue()
        try:
            self._writer = TraceWriter(self._draft.fd, header)
            self._over = threads.start(self._run)
        except OSError:
            self._draft.discard()
            os.close(self._folder)
            raise

    def __repr__(self) -> str:
        return f"<Recorder {quoted(self.path)}: {self._writer!r}, errno {self.error}>"

    @property
    def operations(self) -> int:
        """Returns the number of recorded operations."""
        return self._writer.operations

    # ---- what the worker reports ----

    def batch(self, batch: Batch) -> None:
        """Records the rows of one drain, after the model has computed their extents."""
        block = self._block
        if len(batch) and not self.error:
            self.empty = False
            self.hops.read(batch.raw.time_ns[0])
            block.take(batch)
            if (
                block.rows >= HAND_OVER_ROWS
                or block.uses >= HAND_OVER_USES
                or block.payload_bytes >= HAND_OVER_PAYLOAD_BYTES
            ):
                self._hand_over()
        if batch.malformed:
            self.lost(batch.malformed, form.LOST_MALFORMED)

    def tick(self) -> None:
        """Hands over rows that have waited long enough. The worker calls it once a tick."""
        if self._block.rows and time.monotonic_ns() - self._block.since_ns > HAND_OVER_NS:
            self._hand_over()
        if self.hops.due():
            self._hand_over_hops()

    def ranges(self, ranges: Ranges, newest_seq: int) -> None:
        """Records the content of the range table: all live ranges."""
        self.empty = self.empty and ranges.count == 0
        self._hand_over()
        data = ffi.buffer(ranges.records, ranges.count * _RANGE.itemsize)
        records = np.frombuffer(bytes(data), _RANGE)
        columns = {name: records[name] for name in _RANGE.names or ()}
        slots = ffi.buffer(ranges.slots, 4 * ranges.count)
        columns["slot"] = np.frombuffer(bytes(slots), np.uint32)
        now_ns = time.monotonic_ns()
        self._put(lambda writer: writer.resync(now_ns, newest_seq, columns), len(data))

    def lost(self, count: int, reason: int) -> None:
        """Records the loss of `count` events; `reason`: LOST_* of pump.trace.format."""
        self.empty = False
        self._hand_over()
        now_ns = time.monotonic_ns()
        self._put(lambda writer: writer.lost(now_ns, reason, count), 0)

    def device(self, index: int, record: Any) -> None:
        """Records the shim's facts about a device (`struct pump_device`), if they have changed."""
        facts = {
            "total_bytes": record.total_bytes,
            "free_at_start_bytes": record.free_at_start_bytes,
            "budget_bytes": record.budget_bytes,
            "state": min(record.device_state, 255),
            "emulated": min(1, record.emulated),
        }
        if self._devices.get(index) == facts:
            return
        self._devices[index] = facts
        self._hand_over()
        now_ns, uuid = time.monotonic_ns(), bytes(record.uuid)
        facts = {**facts, "index": index, "plain_bytes": record.plain_bytes}
        self._put(lambda writer: writer.device(now_ns, uuid, **facts), 0)

    def sample(self, samples: list[rec.Sample]) -> None:
        """Records the worker's estimate of each device's memory."""
        self._hand_over()

        def write(writer: TraceWriter) -> None:
            for sample in samples:
                writer.sample(sample)

        self._put(write, len(samples) * SAMPLE_BYTES)

    def threads(self, delays: RunDelay, *, last: bool = False) -> None:
        """Records the current run times and delays of the client's threads."""
        self._put(lambda writer: writer.threads(delays.sample(last=last)), 0)

    def record_policy(self, name: str) -> None:
        """Records that the worker switches to this policy."""
        self._hand_over()
        now_ns = time.monotonic_ns()
        self._put(lambda writer: writer.policy(now_ns, name), 0)

    def close(self, facts: Mapping[str, int] | None = None, keep: bool = True) -> None:
        """Writes the remaining rows, and an end record with these facts. Waits for the disk, at
        most CLOSE_S. `keep`: whether the file stays."""
        self._hand_over()
        self._hand_over_hops()
        self._put(lambda writer: self._end(writer, facts or {}), 0)
        self._work.put(None)
        if not self._over.wait(CLOSE_S):
            self._fail(OSError(errno.ETIMEDOUT, "the disk does not respond"))
            return  # the thread may still write: the descriptor stays open
        if not keep:
            self._draft.discard()
            os.close(self._folder)
            return
        try:
            self._draft.publish()
        except OSError as error:
            self.error = self.error or error.errno or errno.EIO
            log.warning("the recording to %s: %s", quoted(self.path), error.strerror)
        self._draft.close()
        os.close(self._folder)
        log.info("%r", self)

    # ---- internal ----

    def _hand_over_hops(self) -> None:
        ends, reads, lost = self.hops.take()
        self._lost_rows += lost
        count, size = len(ends["time_ns"]), sum(column.nbytes for column in ends.values())
        if count and self._has_room(count, size):
            self._put(lambda writer: writer.transfers(ends), size)
        if reads:
            self._put(lambda writer: writer.reads(reads), 0)

    def _has_room(self, rows: int, size: int) -> bool:
        """Returns whether `size` bytes may wait for the thread; if not, counts the rows as lost."""
        if self._waiting_bytes - self._done_bytes + size > QUEUE_BYTES:
            self._lost_rows += rows
            return False
        if self._lost_rows:
            count, now_ns, self._lost_rows = self._lost_rows, time.monotonic_ns(), 0
            self._put(lambda writer: writer.lost(now_ns, form.LOST_RECORDER, count), 0)
        return True

    def _hand_over(self) -> None:
        block = self._block
        if block.rows == 0:
            return
        if not self._has_room(block.rows, block.nbytes):
            block.clear()
            return
        try:
            self._block = self._spare.get_nowait()
        except queue.Empty:
            self._block = _Block()
        self._put(lambda writer: self._write(writer, block), block.nbytes)

    def _write(self, writer: TraceWriter, block: _Block) -> None:
        writer.events(block.as_rows())
        block.clear()
        self._spare.put(block)

    def _put(self, work: Work, size: int) -> None:
        if not self.error:
            self._waiting_bytes += size
            self._work.put((work, size))

    def _run(self) -> None:
        """Runs the thread: does the queued work, and flushes in time."""
        due = time.monotonic() + FLUSH_S
        try:
            while True:
                try:
                    item = self._work.get(timeout=max(0.0, due - time.monotonic()))
                except queue.Empty:
                    self._writer.flush()
                    due = time.monotonic() + FLUSH_S
                    continue
                if item is None:
                    return
                item[0](self._writer)
                self._done_bytes += item[1]
                if time.monotonic() >= due:
                    self._writer.flush()
                    due = time.monotonic() + FLUSH_S
        except OSError as error:
            self._fail(error)
        except Exception:  # a bug in pump must not look like a running recording
            log.exception("the recorder failed")
            self._fail(OSError(errno.EIO, "internal error"))

    def _end(self, writer: TraceWriter, facts: Mapping[str, int]) -> None:
        if self._lost_rows:
            writer.lost(time.monotonic_ns(), form.LOST_RECORDER, self._lost_rows)
        moment = {"unix_ns": time.time_ns(), "monotonic_ns": time.monotonic_ns()}
        writer.end({**moment, **facts})

    def _fail(self, error: OSError) -> None:
        self.error = error.errno or errno.EIO
        log.warning(
            "the recording to %s stopped after %d operations: %s",
            *(quoted(self.path), self._writer.operations, error.strerror),
        )


# ---- start ------------------------------------------------------------------


def start(settings: WorkerSettings, counters: Any) -> Recorder | None:
    """Returns the recorder that the settings request, or None. If the file cannot be created, logs
    one warning. `counters`: `struct pump_worker_counters`, which the shim reads."""
    if not settings.record:
        return None
    counters.recorded_file = settings.client_number
    path = path_of(settings.record, settings.client_number)
    try:
        return Recorder(path, header_of(settings), settings.record_folder)
    except OSError as error:
        counters.recording_error = error.errno or errno.EIO
        log.warning("cannot record to %s: %s", quoted(path), error.strerror)
        return None


def header_of(settings: WorkerSettings) -> dict[str, Any]:
    """Returns the header of a recording (docs/trace-format.md)."""
    # One clock is read between two readings of the other, so that both times match closely.
    before, unix_ns, after = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
    return {
        "pump": pump.__version__,
        "abi": int(lib.PUMP_ABI_VERSION),
        "recorded": datetime.fromtimestamp(unix_ns / 1e9, UTC).isoformat(timespec="seconds"),
        "clock": "CLOCK_MONOTONIC",
        "unix_ns": unix_ns,
        "monotonic_ns": (before + after) // 2,
        "policy": settings.policy,
        "client_number": settings.client_number,
        "client_pid": settings.client_pid,
        "command": list(settings.client_command),
        "job": json.loads(settings.record_job) if settings.record_job else {},
    }
