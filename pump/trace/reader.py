"""Reads a recording, chunk by chunk, as columns or row by row.

If a file ends early (its writer was killed, or still writes), the reader returns all whole chunks
and sets `truncated`. Any other deviation from the format raises a TraceError. Memory is bounded by
one chunk, time by the length of the file.

    with open(path, "rb") as file:
        reader = Reader(file)
        for record in reader.records():
            ...
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any, BinaryIO, Final

import numpy as np

from pump.trace import format as form
from pump.trace import records as rec
from pump.trace.format import Columns, DamagedError, Frame, TraceError


class NotATraceError(TraceError):
    """The file is not a recording of pump."""


class NewerVersionError(TraceError):
    """A later version of pump wrote the file."""


class EmptyTraceError(TraceError):
    """The file ends before its header does: nothing was recorded yet."""


class Reader:
    """The recording in `file`, from its position to its end.

    `header`: the JSON object of the first chunk. `end`: the object of the last chunk, None until it
    is read. `truncated`: after reading, whether the file has no end. `read_bytes`: number of bytes
    read. The constructor and the iterators raise TraceError. Only one iteration is possible.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.read_bytes = 0
        self.truncated = False
        self.end: Mapping[str, Any] | None = None
        self._rows = self._extents = 0
        start = self._read(form.FILE_START.size)
        if not start:
            raise EmptyTraceError("the file is empty: no recording has been written to it")
        if start[: len(form.MAGIC)] != form.MAGIC[: len(start)]:
            raise NotATraceError("not a recording of pump")
        if len(start) < form.FILE_START.size:
            raise EmptyTraceError("the file ends before its header")
        _, version, zero = form.FILE_START.unpack(start)
        if version > form.VERSION:
            raise NewerVersionError(
                f"written in format {version}; this pump reads up to {form.VERSION}. "
                "Install a newer pump"
            )
        if version == 0 or zero != 0:
            raise DamagedError("damaged: the first 16 bytes have no format version")
        chunk = self._chunk()
        if chunk is None:
            raise EmptyTraceError("the file ends before its header")
        frame, body = chunk
        if frame.kind != form.CHUNK_HEADER:
            raise DamagedError("damaged: the header is missing")
        self.header = self._json(body)

    # ---- iterators ----

    def chunks(self) -> Iterator[Columns]:
        """Yields the rows, some thousands at a time: every column of format.FIELDS, with lengths
        that match. Raises TraceError; DamagedError for bytes that no writer writes."""
        while self.end is None:
            chunk = self._chunk()
            if chunk is None:
                self.truncated = True
                return
            frame, body = chunk
            if frame.kind == form.CHUNK_EVENTS:
                yield self._columns(frame, body)
            elif frame.kind == form.CHUNK_END:
                self.end = self._json(body)
        if self._read(1):
            raise DamagedError(f"damaged: data after the end at byte {self.read_bytes - 1}")

    def records(self) -> Iterator[rec.Record]:
        """Yields the rows, one by one, in the order of the events. Raises TraceError."""
        for columns in self.chunks():
            yield from rows_of(columns)

    # ---- chunks ----

    def _read(self, count: int) -> bytes:
        parts = []
        while count > 0:
            data = self._file.read(count)
            if not data:
                break
            parts.append(data)
            count -= len(data)
            self.read_bytes += len(data)
        return b"".join(parts)

    def _chunk(self) -> tuple[Frame, bytes] | None:
        """Returns the next chunk; None if the file ends, even in the middle of one."""
        at = self.read_bytes
        frame_bytes = self._read(form.FRAME_BYTES)
        if len(frame_bytes) < form.FRAME_BYTES:
            return None
        try:
            frame = form.unpack_frame(frame_bytes)
            stored = self._read(frame.stored_bytes)
            if len(stored) < frame.stored_bytes:
                return None
            return frame, form.unpack_body(frame, stored)
        except DamagedError as error:
            raise DamagedError(f"damaged at byte {at}: {error}") from None

    def _json(self, body: bytes) -> Mapping[str, Any]:
        try:
            if len(body) > form.MAX_JSON_BYTES:
                raise ValueError
            found = json.loads(body)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise DamagedError(f"damaged before byte {self.read_bytes}: not a JSON object")
        return found

    def _columns(self, frame: Frame, body: bytes) -> Columns:
        try:
            columns = form.unpack_columns(body)
            for name, field in form.FIELDS.items():
                columns.setdefault(name, np.zeros(0, field.dtype))
            for name in form.LATER:
                if not len(columns[name]):
                    rows = int(np.isin(columns["kind"], form.ROWS_OF[name.partition("_")[0]]).sum())
                    columns[name] = np.zeros(rows, form.FIELDS[name].dtype)
            _check_counts(columns, frame.rows)
            self._check_totals(columns)
        except DamagedError as error:
            raise DamagedError(f"damaged before byte {self.read_bytes}: {error}") from None
        return columns

    def _check_totals(self, columns: Columns) -> None:
        """Raises DamagedError if a file has more rows than a writer stores in this many bytes."""
        self._rows += len(columns["kind"])
        self._extents += len(columns["extent_slot"])
        rows_most = form.FREE_ROWS + form.ROWS_PER_BYTE * self.read_bytes
        extents_most = form.FREE_EXTENTS + form.EXTENTS_PER_BYTE * self.read_bytes
        if self._rows > rows_most or self._extents > extents_most:
            raise DamagedError("more rows than the file's length allows")


def _check_counts(columns: Columns, rows: int) -> None:
    """Raises DamagedError if columns have lengths that do not match."""
    kind = columns["kind"]
    if len(kind) != rows:
        raise DamagedError("a chunk's number of rows does not match its frame")
    per_kind = np.bincount(kind, minlength=256)
    for name in form.FIELDS:
        if name == "kind":
            continue
        sum_of = form.SUM_OF.get(name)
        if sum_of:
            expected = int(columns[sum_of].sum(dtype=np.uint64))
        else:
            kinds = form.ROWS_OF[name.partition("_")[0]]
            expected = int(per_kind[list(kinds)].sum())
            expected *= form.UUID_BYTES if name == "device_uuid" else 1
        if len(columns[name]) != expected:
            raise DamagedError(f"column {name} has {len(columns[name])} values, not {expected}")


# ---- rows -------------------------------------------------------------------


def rows_of(columns: Columns, groups: Collection[str] = form.ROWS_OF) -> Iterator[rec.Record]:
    """Yields the rows of one chunk, as records; leaves out kinds that this version does not know.

    groups: keys of form.ROWS_OF; only rows of these groups are yielded.
    """
    makers: dict[int, Iterator[rec.Record]] = {}
    for group, make in _MAKERS.items():
        if group in groups:
            rows = make(columns)
            makers |= dict.fromkeys(form.ROWS_OF[group], rows)
    for kind in columns["kind"].tolist():
        maker = makers.get(kind)
        if maker is not None:
            yield next(maker)


def _rows_of_group(columns: Columns, group: str) -> Iterator[tuple[Any, ...]]:
    """Yields the rows of a group, with columns in the order of FIELDS, without blobs."""
    names = [
        name
        for name in form.FIELDS
        if name.startswith(f"{group}_") and name not in (*form.SUM_OF, "device_uuid")
    ]
    return zip(*(columns[name].tolist() for name in names), strict=True)


def _operations(columns: Columns) -> Iterator[rec.Operation]:
    kind = columns["kind"]
    kinds = kind[np.isin(kind, form.ROWS_OF["op"])].tolist()
    extents = map(rec.Extent._make, zip(*(columns[n].tolist() for n in _EXTENT), strict=True))
    kernels = _rows_of_group(columns, "kernel")
    for kind, (seq, time_ns, stream, device, count, dropped) in zip(
        kinds, _rows_of_group(columns, "op"), strict=True
    ):
        function, signature = next(kernels) if kind == form.KERNEL else (0, 0)
        own = tuple(next(extents) for _ in range(count))
        yield rec.Operation(kind, seq, time_ns, stream, device, function, signature, own, dropped)


def _ranges(columns: Columns) -> Iterator[rec.RangeRow]:
    kind = columns["kind"]
    kinds = kind[np.isin(kind, form.ROWS_OF["range"])].tolist()
    for kind, values in zip(kinds, _rows_of_group(columns, "range"), strict=True):
        yield rec.RangeRow(kind, *values)


def _rows_with_data(columns: Columns, group: str, data: str) -> Iterator[tuple[Any, ...]]:
    """Yields the rows of a group, with each row's part of a blob instead of its length."""
    blob, at = columns[data].tobytes(), 0
    for *values, count in _rows_of_group(columns, group):
        yield *values, blob[at : at + count]
        at += count


def _names(columns: Columns) -> Iterator[rec.Name]:
    for function, text in _rows_with_data(columns, "name", "name_text"):
        yield rec.Name(function, text.decode("utf-8", "replace"))


def _params(columns: Columns) -> Iterator[rec.Params]:
    for function, signature, *sizes, whole, data in _rows_with_data(
        columns, "params", "params_data"
    ):
        grid, block = (sizes[0], sizes[1], sizes[2]), (sizes[3], sizes[4], sizes[5])
        yield rec.Params(function, signature, grid, block, whole, data)


def _devices(columns: Columns) -> Iterator[rec.Device]:
    blob = columns["device_uuid"].tobytes()
    for number, (time_ns, device, *facts) in enumerate(_rows_of_group(columns, "device")):
        uuid = blob[number * form.UUID_BYTES : (number + 1) * form.UUID_BYTES]
        yield rec.Device(time_ns, device, uuid, *facts)


def _policies(columns: Columns) -> Iterator[rec.Policy]:
    for time_ns, text in _rows_with_data(columns, "policy", "policy_text"):
        yield rec.Policy(time_ns, text.decode("utf-8", "replace"))


def _progress(columns: Columns) -> Iterator[rec.Progress]:
    for seq, stream, time_ns, before_ns in _rows_of_group(columns, "progress"):
        yield rec.Progress(stream, seq, time_ns, before_ns)


_EXTENT: Final = [name for name in form.FIELDS if name.startswith("extent_")]
_MAKERS: Final[Mapping[str, Any]] = {
    "op": _operations,
    "range": _ranges,
    "sync": lambda columns: map(rec.Sync._make, _rows_of_group(columns, "sync")),
    "progress": _progress,
    "timed": lambda columns: map(rec.Timed._make, _rows_of_group(columns, "timed")),
    "name": _names,
    "params": _params,
    "device": _devices,
    "lost": lambda columns: map(rec.Lost._make, _rows_of_group(columns, "lost")),
    "resync": lambda columns: map(rec.Resync._make, _rows_of_group(columns, "resync")),
    "policy": _policies,
    "graph": lambda columns: map(rec.Graph._make, _rows_of_group(columns, "graph")),
    "sample": lambda columns: map(rec.Sample._make, _rows_of_group(columns, "sample")),
    "transfer": lambda columns: map(rec.Transfer._make, _rows_of_group(columns, "transfer")),
    "read": lambda columns: map(rec.Read._make, _rows_of_group(columns, "read")),
    "threads": lambda columns: map(rec.Threads._make, _rows_of_group(columns, "threads")),
}
