"""Recordings as Chrome traces: each event has the form that the format's document requires."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import pytest
from trace_rows import RowMaker

from pump.cli import main as command
from pump.trace import format as form
from pump.trace import records as rec
from pump.trace.chrome import GPU, PROGRAM, export
from pump.trace.writer import TraceWriter

US = 1000
MIB = 1 << 20


def recording(path: Path) -> Path:
    """Records on one stream two kernels, a copy, two markers, a wait, an allocation, a sample."""
    rows = RowMaker()
    extent = rec.Extent(4, 1, 0, 2 * MIB, 0, 16)
    rows.add(rec.Name(7, 'axpy<"float">'))
    rows.add(rec.RangeRow(form.ALLOC, 1000 * US, 4, 1, 1 << 40, 2 * MIB, 0, 0, 0))
    rows.add(rec.Operation(form.KERNEL, 1, 1010 * US, 1, 0, 7, 3, (extent,)))
    rows.add(rec.Operation(form.KERNEL, 2, 1020 * US, 1, 0, 8, 3, ()))
    rows.add(rec.Progress(1, 2, 1050 * US))
    rows.add(rec.Operation(form.COPY, 3, 1040 * US, 1, 0, 0, 0, ()))
    rows.add(rec.Progress(1, 3, 1060 * US))
    rows.add(rec.Sync(3, 1, 1042 * US, 1061 * US))
    fd = os.open(path, os.O_WRONLY | os.O_CREAT)
    writer = TraceWriter(fd, {"pump": "0"})
    writer.events(rows.made())
    figures = dict.fromkeys(rec.Sample._fields, 0) | {"time_ns": 1055 * US}
    writer.sample(rec.Sample(**{**figures, "resident_bytes": 10, "maybe_evicted_bytes": 4}))
    writer.lost(1062 * US, form.LOST_SKIPPED, 5)
    writer.end({})
    os.close(fd)
    return path


def check_event(event: dict[str, Any]) -> None:
    """Checks an event against "Trace Event Format", for the kinds that are used here."""
    assert isinstance(event["name"], str) and event["name"]
    assert type(event["pid"]) is int and type(event["tid"]) is int
    kind = event["ph"]
    assert kind in {"X", "C", "M", "i"}
    if kind == "M":
        assert event["name"] in {"process_name", "thread_name"}
        assert isinstance(event["args"]["name"], str)
        return
    assert isinstance(event["ts"], float) and event["ts"] >= 0
    if kind == "X":
        assert isinstance(event["dur"], float) and event["dur"] >= 0
    if kind == "i":
        assert event["s"] in {"g", "p", "t"}
    if kind == "C":
        assert event["args"] and all(type(v) in (int, float) for v in event["args"].values())


def exported(path: Path) -> list[dict[str, Any]]:
    out = io.StringIO()
    count = export(str(path), out)
    found = json.loads(out.getvalue())
    assert set(found) == {"displayTimeUnit", "otherData", "traceEvents"}
    assert len(found["traceEvents"]) == count
    return list(found["traceEvents"])


def test_every_event_is_what_the_format_asks_for(tmp_path: Path) -> None:
    for event in exported(recording(tmp_path / "a")):
        check_event(event)


def test_operations_share_the_time_up_to_their_marker_and_never_overlap(tmp_path: Path) -> None:
    spans = [e for e in exported(recording(tmp_path / "a")) if e["ph"] == "X"]
    runs = [(e["name"], e["ts"], e["dur"]) for e in spans if e["pid"] == GPU]
    # The first two run from 10 us (the issue) to the marker at 50 us, the copy to the one at 60 us.
    assert runs == [
        ('axpy<"float">', 10.0, 20.0),
        ("function 0x8", 30.0, 20.0),
        ("copy", 50.0, 10.0),
    ]
    assert {e["cat"] for e in spans if e["pid"] == GPU} == {"estimate"}
    assert [(e["name"], e["ts"], e["dur"]) for e in spans if e["pid"] == PROGRAM] == [
        ("wait", 42.0, 19.0)
    ]


def test_samples_are_counters_and_losses_are_marked(tmp_path: Path) -> None:
    found = exported(recording(tmp_path / "a"))
    (memory,) = (e for e in found if e["name"] == "memory of device 0 (bytes)")
    assert (memory["ph"], memory["ts"]) == ("C", 55.0)
    assert (memory["args"]["on the GPU"], memory["args"]["in doubt"]) == (6, 4)
    assert [e["args"] for e in found if e["name"] == "lost"] == [{"events": 5}]
    assert [e["args"]["bytes"] for e in found if e["name"] == "allocate"] == [2 * MIB]


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr("sys.argv", ["pump", "trace", "export", *words])
    return command.main()


def test_the_command_writes_a_file_or_to_standard_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = str(recording(tmp_path / "a")), tmp_path / "a.json"
    assert run(monkeypatch, path, "--perfetto", str(out)) == 0
    count = len(json.loads(out.read_text())["traceEvents"])
    assert capsys.readouterr().out == f"wrote {count} events to {out}\n"
    assert run(monkeypatch, path, "--perfetto", "-") == 0
    assert json.loads(capsys.readouterr().out) == json.loads(out.read_text())


def test_what_cannot_be_read_or_written_is_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(recording(tmp_path / "a"))
    assert run(monkeypatch, path, "--perfetto", str(tmp_path / "no" / "x")) == 1
    assert "cannot write to" in capsys.readouterr().err
    assert run(monkeypatch, str(tmp_path / "none"), "--perfetto", "-") == 2
    assert "cannot read" in capsys.readouterr().err
    (tmp_path / "b").write_text("something else altogether")
    assert run(monkeypatch, str(tmp_path / "b"), "--perfetto", str(tmp_path / "x")) == 2
    assert "not a recording" in capsys.readouterr().err
