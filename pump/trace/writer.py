"""Writes a recording: collects rows in columns, writes them to the file chunk by chunk.

Reads no clock and starts no thread; pumpd/worker/recorder.py calls it from a thread of its own.
`flush` writes all rows that were added.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pump.trace import format as form
from pump.trace import records as rec
from pump.trace.format import Column

FLUSH_ROWS: Final = 16384
FLUSH_EXTENTS: Final = 131072
FLUSH_BLOB_BYTES: Final = 1 << 20
"""A chunk ends at the first of these bounds, so that one more batch does not exceed the format's
bounds."""

PARAMS_START: Final = 32
"""Bytes of struct pump_params: grid, block, size of the buffer, identity; all uint32."""


ROW_COLUMNS: Final = (
    *("kind", "seq", "time_ns", "function", "signature", "stream", "device", "dropped"),
    "payload_bytes",
)
USE_COLUMNS: Final = (
    *("slot", "generation", "offset_bytes", "length_bytes", "access", "argument"),
)
RANGE_COLUMNS: Final = (
    *("slot", "generation", "base", "length_bytes", "device", "kind", "alloc_seq"),
)
TRANSFER_COLUMNS: Final = tuple(
    name.removeprefix("transfer_") for name in form.FIELDS if name.startswith("transfer_")
)


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of the event ring, in order. Columns as in struct pump_batch.

    `rows`: ROW_COLUMNS, shape [n]. `uses`: USE_COLUMNS, shape [m]. `use_count`: shape [n], number
    of uses of each row. `payloads`: of the rows with a payload_bytes above 0.
    """

    rows: Mapping[str, Column]
    uses: Mapping[str, Column]
    use_count: Column
    payloads: Sequence[bytes] = ()


Chosen = NDArray[np.intp]
_KINDS = np.arange(256)
_IS_IN: Final = {group: np.isin(_KINDS, kinds) for group, kinds in form.ROWS_OF.items()}
_IS_OPERATION: Final = np.isin(_KINDS, form.OPERATIONS)
_TAKEN: Final[Mapping[str, Mapping[str, str]]] = {
    "op": {name: name for name in ("seq", "time_ns", "stream", "device", "dropped")},
    "kernel": {"function": "function", "signature": "signature"},
    "range": {"time_ns": "time_ns", "device": "device", "base": "function"},
    "sync": {"seq": "seq", "stream": "stream", "begin_ns": "signature", "end_ns": "time_ns"},
    "progress": {"seq": "seq", "stream": "stream", "time_ns": "time_ns", "before_ns": "signature"},
    "timed": {"seq": "seq", "stream": "stream", "time_ns": "time_ns", "elapsed_ns": "signature"},
    "name": {"function": "function"},
    "params": {"function": "function", "signature": "signature"},
    "graph": {"seq": "seq", "executable": "function", "operations": "signature"},
}
"""Columns of the file that are copied from ROW_COLUMNS, by group of rows: file's name, row's."""
# DISCARDED, FREED, DEAD and POPULATED (pump_abi.h): not work that the program issued.
_PASSED_OVER: Final = np.isin(_KINDS, (13, 14, 15, 16))
_FROM_RING: Final = np.any([_IS_IN[group] for group in _TAKEN], axis=0) & (_KINDS != form.RANGE)


class TraceWriter:
    """Writes to `fd`, an empty file opened for writing; the caller closes it.

    header: the JSON object at the beginning of the file. Every method may raise OSError; the file
    then ends at the last whole chunk, if it can be truncated.
    """

    def __init__(self, fd: int, header: Mapping[str, Any]) -> None:
        self._fd = fd
        self._written_bytes = 0
        self._pending: dict[str, list[Column]] = defaultdict(list)
        self._rows = self._extents = self._blob_bytes = 0
        self.operations = 0
        """Number of kernels, copies and memsets that were added."""
        self.rows = 0
        self._adders = {
            "op": self._add_op,
            "range": self._add_range,
            "name": self._add_name,
            "params": self._add_params,
        }
        self._write(form.file_start() + _json_chunk(form.CHUNK_HEADER, header))

    def __repr__(self) -> str:
        return f"<TraceWriter {self.operations} operations, {self._written_bytes} bytes>"

    # ---- rows ----

    def events(self, given: Rows) -> None:
        """Adds rows of the ring, in order; keeps no view of their arrays.

        Invalid rows (an allocation without a range) count as lost.
        """
        kind = np.minimum(given.rows["kind"], 255)
        good = np.where(_IS_IN["range"][kind], given.use_count == 1, True)
        good &= np.where(kind == form.PARAMS, given.rows["payload_bytes"] >= PARAMS_START, True)
        good &= _FROM_RING[kind]
        for group, taken in _TAKEN.items():
            chosen = np.flatnonzero(good & _IS_IN[group][kind])
            if len(chosen):
                for name, column in taken.items():
                    self._add(f"{group}_{name}", given.rows[column][chosen])
                if group in self._adders:
                    self._adders[group](given, chosen)
        self._add("kind", kind[good].astype(np.uint8))
        self.operations += int(np.count_nonzero(_IS_OPERATION[kind]))
        self._count_rows(int(np.count_nonzero(good)))
        bad = int(np.count_nonzero(~good & ~_PASSED_OVER[kind]))
        if bad:
            self.lost(int(given.rows["time_ns"][-1]), form.LOST_MALFORMED, bad)

    def device(self, time_ns: int, uuid: bytes, **facts: int) -> None:
        """Adds a device that is new or has changed. facts: the columns device_* of the format."""
        self._add_value("kind", form.DEVICE)
        self._add_value("device_time_ns", time_ns)
        self._add("device_uuid", np.frombuffer(uuid, np.uint8))
        for name, value in facts.items():
            self._add_value(f"device_{name}", value)
        self._count_rows(1)

    def sample(self, sample: rec.Sample) -> None:
        """Adds a sample of the worker's model of a device."""
        self._add_records(form.SAMPLE, "sample", [sample])

    def transfers(self, columns: Mapping[str, Column]) -> None:
        """Adds slices that have ended. columns: TRANSFER_COLUMNS, shape [n]."""
        count = len(columns["time_ns"])
        self._add("kind", np.full(count, form.TRANSFER, np.uint8))
        for name in TRANSFER_COLUMNS:
            self._add(f"transfer_{name}", columns[name])
        self._count_rows(count)

    def reads(self, reads: Sequence[rec.Read]) -> None:
        """Adds reads of the event ring, with their times."""
        self._add_records(form.READ, "read", reads)

    def threads(self, groups: Sequence[rec.Threads]) -> None:
        """Adds the times of groups of threads."""
        self._add_records(form.THREADS, "threads", groups)

    def lost(self, time_ns: int, reason: int, count: int) -> None:
        """Records that `count` events are missing here. reason: LOST_* of format.py."""
        self._add_value("kind", form.LOST)
        self._add_value("lost_time_ns", time_ns)
        self._add_value("lost_reason", reason)
        self._add_value("lost_count", count)
        self._count_rows(1)

    def policy(self, time_ns: int, policy: str) -> None:
        """Records that the worker now uses this policy."""
        text = policy.encode()
        self._add_value("kind", form.POLICY)
        self._add_value("policy_time_ns", time_ns)
        self._add_value("policy_bytes", len(text))
        self._add_blob("policy_text", [text])
        self._count_rows(1)

    def resync(self, time_ns: int, seq: int, ranges: Mapping[str, Column]) -> None:
        """Adds all live ranges, read from the table. seq: of the newest operation.

        ranges: RANGE_COLUMNS, shape [n].
        """
        count = len(ranges["slot"])
        self._add_value("kind", form.RESYNC)
        self._add_value("resync_time_ns", time_ns)
        self._add_value("resync_seq", seq)
        self._add_value("resync_ranges", count)
        self._count_rows(1)
        for begin in range(0, count, FLUSH_ROWS):
            end = min(begin + FLUSH_ROWS, count)
            self._add("kind", np.full(end - begin, form.RANGE, np.uint8))
            self._add("range_time_ns", np.full(end - begin, time_ns, np.uint64))
            for name in RANGE_COLUMNS:
                self._add(f"range_{name}", ranges[name][begin:end])
            self._count_rows(end - begin)

    # ---- to the file ----

    def flush(self) -> None:
        """Writes the pending rows to the file, as one chunk."""
        if self._rows == 0:
            return
        columns = {name: np.concatenate(parts) for name, parts in self._pending.items()}
        rows = self._rows
        self._pending.clear()
        self._rows = self._extents = self._blob_bytes = 0
        self._write(form.pack_chunk(form.CHUNK_EVENTS, rows, form.pack_columns(columns)))
        self.rows += rows

    def end(self, facts: Mapping[str, Any]) -> None:
        """Flushes, and writes the end of the recording. No call may follow."""
        self.flush()
        totals = {"operations": self.operations, "rows": self.rows}
        self._write(_json_chunk(form.CHUNK_END, {**totals, **facts}))

    def _write(self, data: bytes) -> None:
        left = memoryview(data)
        try:
            while left:
                left = left[os.write(self._fd, left) :]
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, self._written_bytes)
            raise
        self._written_bytes += len(data)

    # ---- columns ----

    def _add(self, name: str, values: Column) -> None:
        self._pending[name].append(values)

    def _add_value(self, name: str, value: int) -> None:
        self._pending[name].append(np.array([value], np.uint64))

    def _add_records(self, kind: int, group: str, records: Sequence[Any]) -> None:
        for record in records:
            self._add_value("kind", kind)
            for name, value in record._asdict().items():
                self._add_value(f"{group}_{name}", value)
        self._count_rows(len(records))

    def _count_rows(self, rows: int) -> None:
        self._rows += rows
        if (
            self._rows >= FLUSH_ROWS
            or self._extents >= FLUSH_EXTENTS
            or self._blob_bytes >= FLUSH_BLOB_BYTES
        ):
            self.flush()

    def _add_op(self, given: Rows, chosen: Chosen) -> None:
        counts = given.use_count[chosen]
        self._add("op_extents", counts)
        # Only uses of operations: an ALLOC or FREE between operations has one use, too.
        wanted = np.zeros(len(given.use_count), np.bool_)
        wanted[chosen] = True
        uses = np.flatnonzero(np.repeat(wanted, given.use_count))
        for name in USE_COLUMNS:
            self._add(f"extent_{name}", given.uses[name][uses])
        self._extents += len(uses)

    def _add_range(self, given: Rows, chosen: Chosen) -> None:
        use = (np.cumsum(given.use_count) - given.use_count)[chosen]
        for name in ("slot", "generation", "length_bytes"):
            self._add(f"range_{name}", given.uses[name][use])
        for name in ("kind", "alloc_seq"):  # not in the ring
            self._add(f"range_{name}", np.zeros(len(chosen), np.uint64))

    def _add_name(self, given: Rows, chosen: Chosen) -> None:
        texts = _payloads(given, chosen)
        self._add("name_bytes", np.array([len(text) for text in texts], np.uint64))
        self._add_blob("name_text", texts)

    def _add_params(self, given: Rows, chosen: Chosen) -> None:
        texts = _payloads(given, chosen)
        starts = np.frombuffer(b"".join(text[:PARAMS_START] for text in texts), "<u4")
        names = (*(f"{what}_{axis}" for what in ("grid", "block") for axis in "xyz"),)
        for column, name in enumerate((*names, "parameter_bytes")):
            self._add(f"params_{name}", starts.reshape(-1, PARAMS_START // 4)[:, column])
        data = [text[PARAMS_START:] for text in texts]
        self._add("params_bytes", np.array([len(text) for text in data], np.uint64))
        self._add_blob("params_data", data)

    def _add_blob(self, name: str, texts: Sequence[bytes]) -> None:
        blob = b"".join(texts)
        self._add(name, np.frombuffer(blob, np.uint8))
        self._blob_bytes += len(blob)


def _payloads(given: Rows, chosen: Chosen) -> list[bytes]:
    """Returns the payload of each chosen row, b"" for rows without one."""
    which = np.cumsum(given.rows["payload_bytes"] != 0) - 1
    empty = given.rows["payload_bytes"][chosen] == 0
    return [
        b"" if none else given.payloads[index]
        for index, none in zip(which[chosen].tolist(), empty.tolist(), strict=True)
    ]


def _json_chunk(kind: int, facts: Mapping[str, Any]) -> bytes:
    return form.pack_chunk(kind, 0, json.dumps(facts, sort_keys=True).encode())
