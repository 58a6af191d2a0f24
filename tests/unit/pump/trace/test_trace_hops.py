"""Hops in recordings and reports: they are read as written, summed, and named in a line."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_report_page import made

from pump.report import hops
from pump.report.gather import report
from pump.report.page import page
from pump.trace import format as form
from pump.trace import records as rec
from pump.trace.reader import Reader
from pump.trace.writer import TRANSFER_COLUMNS, TraceWriter

MS = 1_000_000
SLICES = [
    rec.Transfer(9 * MS, 0, 0, 0, 3, 1, 2 << 20, 4 << 20, 10, 1, 50, 300, 20, 2),
    rec.Transfer(9 * MS, 1, 0, 0, 3, 1, 6 << 20, 2 << 20, 30, 1, 50, 100, 40, 0),
    rec.Transfer(8 * MS, 0, 1, 0, 131071, 7, 0, 6 << 20, 900, 2, 700, 1, 25, 5),
    rec.Transfer(2**64 - 1, 15, 1, 255, 4, 2**32 - 1, 0, 2 << 20, 2**32 - 1, 5, 0, 0, 6, 2**32 - 1),
]
READS = [rec.Read(5 * MS, 40), rec.Read(7 * MS, 60)]
THREADS = [
    rec.Threads(6 * MS, form.THREADS_TO_GPU, 500, 100),
    rec.Threads(7 * MS, form.THREADS_TO_GPU, 3 * MS, 2 * MS),
    rec.Threads(7 * MS, form.THREADS_PROGRAM, 8 * MS, 0),
]


def columns(slices: list[rec.Transfer]) -> dict[str, Any]:
    values = zip(*slices, strict=True)
    return dict(zip(TRANSFER_COLUMNS, (np.array(v, np.uint64) for v in values), strict=True))


def recorded(path: Path) -> bytes:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        writer = TraceWriter(fd, {})
        writer.transfers(columns(SLICES))
        writer.reads(READS)
        writer.threads(THREADS)
        writer.end({})
    finally:
        os.close(fd)
    return path.read_bytes()


def test_slices_reads_and_threads_are_read_as_they_were_written(tmp_path: Path) -> None:
    data = recorded(tmp_path / "t")
    assert list(Reader(io.BytesIO(data)).records()) == [*SLICES, *READS, *THREADS]


def of_markers(**more: Any) -> bytes:
    names = ("progress_seq", "progress_stream", "progress_time_ns")
    rows = {name: np.array([5, 6], np.uint64) for name in names}
    kinds = {"kind": np.array([form.PROGRESS] * 2, np.uint8)}
    body = form.pack_columns({**kinds, **rows, **more})
    start = form.file_start() + form.pack_chunk(form.CHUNK_HEADER, 0, b"{}")
    return start + form.pack_chunk(form.CHUNK_EVENTS, 2, body)


def test_a_recording_without_a_later_column_has_zeros_there() -> None:
    found = list(Reader(io.BytesIO(of_markers())).records())
    assert found == [rec.Progress(5, 5, 5), rec.Progress(6, 6, 6)]


def test_a_later_column_of_a_wrong_length_is_damage() -> None:
    data = of_markers(progress_before_ns=np.array([4], np.uint64))
    with pytest.raises(form.DamagedError, match="progress_before_ns has 1 values, not 2"):
        list(Reader(io.BytesIO(data)).records())


def test_a_report_sums_the_hops_of_slices_that_moved(tmp_path: Path) -> None:
    recorded(tmp_path / "t")
    found = report(str(tmp_path / "t"))["hops"]
    to_gpu, to_host = found["to_gpu"], found["to_host"]
    assert (to_gpu["slices"], to_gpu["bytes"], to_gpu["refused"]) == (2, 6 << 20, 0)
    assert (to_host["slices"], to_host["bytes"], to_host["refused"]) == (1, 2 << 20, 1)
    assert to_gpu["link"] == pytest.approx(
        {"count": 2, "median_seconds": 2e-4, "p99_seconds": 2.98e-4, "sum_seconds": 4e-4}
    )
    assert to_host["waited"]["sum_seconds"] == pytest.approx(9e-4)
    assert found["ring"]["median_seconds"] == pytest.approx(5e-5)
    assert found["marker"] is None
    assert found["threads"] == [
        {"threads": "threads that copy to the GPU", "ran_seconds": 0.003, "delay_seconds": 0.002},
        {"threads": "threads of the program", "ran_seconds": 0.008, "delay_seconds": 0.0},
    ]


def test_a_line_names_the_largest_hop_that_is_neither_drivers_nor_links(tmp_path: Path) -> None:
    recorded(tmp_path / "t")
    whole = report(str(tmp_path / "t"))
    words = "the slowest hop is: executor wakes up, to the host (0.900 ms on average)"
    assert words in page(whole)
    gathered = hops.Hops()
    chunk = next(Reader(io.BytesIO(recorded(tmp_path / "u"))).chunks())
    marks = {"progress_before_ns": [1], "progress_time_ns": [1 + 4 * MS]}
    gathered.add({**chunk, **{name: np.array(v, np.uint64) for name, v in marks.items()}})
    assert "marker waits for a poll (2.000 ms on average)" in hops.largest(gathered.result())


def test_a_marker_that_no_poll_had_missed_before_counts_for_nothing() -> None:
    gathered = hops.Hops()
    before = np.array([0, 9], np.uint64)  # seen by the program's own wait; and nonsense
    gathered.add(next(Reader(io.BytesIO(of_markers(progress_before_ns=before))).chunks()))
    assert gathered.result()["marker"] is None


def test_a_report_without_slices_says_nothing_of_them() -> None:
    assert "Where transfers waited" not in page(made())
    assert "waited for a core" not in page(made())
