"""Recordings: written records are read again, and cut files are distinguished from damaged ones."""

from __future__ import annotations

import io
import os
import random
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from trace_rows import RowMaker, device_facts, random_record, ring, written

from pump.trace import format as form
from pump.trace import records as rec
from pump.trace.format import DamagedError, TraceError
from pump.trace.reader import (
    EmptyTraceError,
    NewerVersionError,
    NotATraceError,
    Reader,
)
from pump.trace.writer import TraceWriter


def read(data: bytes) -> tuple[Reader, list[rec.Record]]:
    reader = Reader(io.BytesIO(data))
    return reader, list(reader.records())


@pytest.mark.parametrize("seed", range(20))
def test_what_is_written_is_read_again_in_the_same_order(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    records: list[rec.Record] = []

    def fill(writer: TraceWriter) -> None:
        for _ in range(dice.randrange(1, 12)):
            part = [random_record(dice) for _ in range(dice.randrange(1, 60))]
            writer.events(ring(part))
            records.extend(part)
            if dice.random() < 0.3:
                lost = rec.Lost(dice.getrandbits(64), form.LOST_SKIPPED, dice.getrandbits(40))
                writer.lost(*lost)
                records.append(lost)
            if dice.random() < 0.3:
                writer.device(7, b"u" * 16, **device_facts())
                records.append(rec.Device(7, 1, b"u" * 16, 1 << 40, 5, 4, 3, 2, 1))
            if dice.random() < 0.2:
                writer.flush()

    reader, found = read(written(tmp_path / "t", fill, {"word": "last"}))
    assert found == records
    operations = sum(
        isinstance(record, rec.Operation) and record.kind != form.HINT for record in records
    )
    assert reader.header == {"pump": "test"}
    assert reader.end == {"operations": operations, "rows": len(records), "word": "last"}
    assert not reader.truncated


def test_the_range_table_is_told_whole_however_many_ranges_are_live(tmp_path: Path) -> None:
    count = 40_000
    numbers = np.arange(count)
    names = ("slot", "generation", "base", "length_bytes", "device", "kind", "alloc_seq")
    columns = {name: numbers % (2 if name in ("device", "kind") else count) for name in names}
    data = written(tmp_path / "t", lambda writer: writer.resync(9, 77, columns), {})
    _, (first, *rest) = read(data)
    assert first == rec.Resync(9, 77, count)
    assert [row.slot for row in rest if isinstance(row, rec.RangeRow)] == numbers.tolist()
    assert rest[3] == rec.RangeRow(form.RANGE, 9, 3, 3, 3, 3, 1, 1, 3)


def test_a_row_that_makes_no_sense_is_counted_as_lost(tmp_path: Path) -> None:
    good = rec.Sync(1, 2, 3, 4)
    maker = RowMaker()
    maker.add(good)
    maker.add(rec.RangeRow(form.ALLOC, 5, 1, 1, 1, 1, 0, 0, 0))
    maker.add(rec.Progress(1, 2, 99))
    maker.counts[1], maker.uses = 0, []  # an allocation that names no range
    maker.rows[2]["kind"] = form.RESYNC  # not a kind of the ring
    _, found = read(written(tmp_path / "t", lambda writer: writer.events(maker.made()), {}))
    assert found == [good, rec.Lost(99, form.LOST_MALFORMED, 2)]


def small_file(folder: Path) -> tuple[bytes, list[rec.Record]]:
    """Returns a whole recording of a few hundred bytes, in several chunks, and its records."""
    dice = random.Random(5)
    records = [random_record(dice) for _ in range(6)]

    def fill(writer: TraceWriter) -> None:
        for record in records:
            writer.events(ring([record]))
            writer.flush()

    return written(folder / "small", fill, {}), records


def test_a_file_cut_anywhere_yields_what_was_whole_before_the_cut(tmp_path: Path) -> None:
    data, records = small_file(tmp_path)
    seen = set()
    for length in range(len(data)):
        try:
            reader, found = read(data[:length])
        except EmptyTraceError:
            seen.add(-1)
            continue
        assert reader.truncated
        assert found == records[: len(found)]
        seen.add(len(found))
    assert seen == {-1, *range(len(records) + 1)}


def test_any_flipped_byte_is_noticed(tmp_path: Path) -> None:
    data, records = small_file(tmp_path)
    for at in range(len(data)):
        broken = bytearray(data)
        broken[at] ^= 1 << at % 8
        with pytest.raises(TraceError):
            read(bytes(broken))
    assert read(data)[1] == records


def test_what_was_read_before_the_damage_was_given_out(tmp_path: Path) -> None:
    data, records = small_file(tmp_path)
    broken = data[:-60] + b"\xff" + data[-59:]
    found = []
    with pytest.raises(DamagedError, match="damaged at byte"):
        for record in Reader(io.BytesIO(broken)).records():
            found.append(record)
    assert found
    assert found == records[: len(found)]


def chunked(*chunks: bytes) -> bytes:
    return b"".join([form.file_start(), form.pack_chunk(form.CHUNK_HEADER, 0, b"{}"), *chunks])


def test_a_reader_of_this_version_passes_over_chunks_and_columns_it_does_not_know() -> None:
    column = form.pack_columns({"kind": np.array([200], np.uint8)})
    alien = form.COLUMN.pack(0x7F00, 9, 4, 3, 1) + bytes(12)
    end = form.pack_chunk(form.CHUNK_END, 0, b"{}")
    data = chunked(
        form.pack_chunk(77, 5, b"anything"),
        form.pack_chunk(form.CHUNK_EVENTS, 1, alien + column),
        end,
    )
    reader, found = read(data)
    assert found == []
    assert reader.end == {}


@pytest.mark.parametrize(
    ("data", "error", "text"),
    [
        (b"", EmptyTraceError, "empty"),
        (b"\x7fELF\2\1\1\0" + bytes(20), NotATraceError, "not a recording"),
        (form.MAGIC + b"\2\0\0\0" + bytes(4), NewerVersionError, "format 2; this pump reads up to"),
        (form.MAGIC + bytes(8), DamagedError, "damaged"),
        (chunked(form.pack_chunk(form.CHUNK_END, 0, b"[1]")), DamagedError, "not a JSON object"),
        (chunked(form.pack_chunk(form.CHUNK_END, 0, b"[" * 90_000)), DamagedError, "not a JSON"),
        (chunked(form.pack_chunk(form.CHUNK_END, 0, b"{}"), b"x"), DamagedError, "after the end"),
        (form.file_start() + form.pack_chunk(form.CHUNK_END, 0, b"{}"), DamagedError, "header"),
    ],
)
def test_what_is_no_recording_is_refused_with_the_reason(
    data: bytes, error: type[TraceError], text: str
) -> None:
    with pytest.raises(error, match=text):
        read(data)


def frame_of(raw_bytes: int, stored: bytes, rows: int = 1, flags: int = 1) -> bytes:
    sums = zlib.crc32(stored)
    frame = form.FRAME.pack(form.CHUNK_EVENTS, flags, rows, raw_bytes, len(stored), sums)
    return frame + form.FRAME_SUM.pack(zlib.crc32(frame)) + stored


@pytest.mark.parametrize(
    "chunk",
    [
        frame_of(1 << 30, b"x"),
        frame_of(100, zlib.compress(bytes(50_000_000))),  # a bomb: claims 100 bytes, makes 50 MB
        frame_of(100, zlib.compress(bytes(100)) + b"more"),
        frame_of(100, b"not zlib"),
        frame_of(4, b"abcd", flags=0),
        frame_of(4, b"abcd", flags=6),
        frame_of(16, form.COLUMN.pack(1, 0, 0, 1 << 31, 0), flags=0),  # 2^31 rows from 16 bytes
        frame_of(16, form.COLUMN.pack(1, 0, 8, 1, 0), flags=0),
        frame_of(16, form.COLUMN.pack(1, 0, 3, 0, 0), flags=0),
        frame_of(16, form.COLUMN.pack(1, 7, 0, 1, 0), flags=0),
        frame_of(16, form.COLUMN.pack(1, 0, 0, 1, 256), flags=0),
        frame_of(32, 2 * form.COLUMN.pack(1, 0, 0, 1, 200), flags=0),
        frame_of(16, form.COLUMN.pack(1, 0, 0, 1, form.KERNEL), flags=0),  # and no operation
        frame_of(16, form.COLUMN.pack(1, 0, 0, 1, 200), rows=2, flags=0),
    ],
)
def test_chunks_with_right_sums_and_wrong_contents_are_damage(chunk: bytes) -> None:
    with pytest.raises(DamagedError):
        read(chunked(chunk))


@pytest.mark.parametrize("seed", range(30))
def test_no_mutated_file_makes_the_reader_fail_in_another_way(tmp_path: Path, seed: int) -> None:
    """Bodies are changed under right checksums, so that the later checks are reached."""
    dice = random.Random(seed)
    records = [random_record(dice) for _ in range(40)]
    data = written(tmp_path / "t", lambda writer: writer.events(ring(records)), {})
    columns = next(Reader(io.BytesIO(data)).chunks())
    body = form.pack_columns(columns)
    for _ in range(60):
        changed = bytearray(body)
        for _ in range(dice.choice((1, 2, 20))):
            changed[dice.randrange(len(changed))] = dice.choice((0, 1, 255, dice.getrandbits(8)))
        if dice.random() < 0.3:
            del changed[dice.randrange(len(changed)) :]
        chunk = form.pack_chunk(form.CHUNK_EVENTS, len(records), bytes(changed))
        try:
            found = read(chunked(chunk))[1]
        except DamagedError:
            continue
        assert len(found) <= len(records)


def test_when_the_disk_is_full_the_file_ends_at_the_last_whole_chunk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    writer = TraceWriter(fd, {})
    first = [rec.Sync(1, 1, 1, 1)]
    writer.events(ring(first))
    writer.flush()
    real = os.write

    def write_ten_bytes_then_none(fd: int, data: Any) -> int:
        if len(data) > 10:
            return real(fd, data[:10]) if data.obj[:10] == data[:10] else no_space()
        return no_space()

    def no_space() -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", write_ten_bytes_then_none)
    writer.events(ring(first))
    with pytest.raises(OSError, match="No space"):
        writer.flush()
    os.close(fd)
    reader, found = read(path.read_bytes())
    assert found == first
    assert reader.truncated
