"""pump trace info: the summary of recordings with known contents, and its errors."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from trace_rows import RowMaker, random_record

from pump.report import words
from pump.trace import format as form
from pump.trace import records as rec
from pump.trace.estimate import RESOLVED, Estimate, OwnTimes
from pump.trace.info import summary
from pump.trace.writer import TraceWriter

CODE = "import sys; from pump.cli.main import main; sys.exit(main())"
MIB = 1 << 20


def pump(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", CODE, *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def kernel(seq: int, time_ns: int, function: int, mib: int = 1, stream: int = 1) -> rec.Operation:
    extent = rec.Extent(3, 1, 0, mib * MIB, 1, 0)
    return rec.Operation(form.KERNEL, seq, time_ns, stream, 0, function, 40 + function, (extent,))


def allocation(kind: int, slot: int, mib: int) -> rec.RangeRow:
    return rec.RangeRow(kind, 5, slot, 1, slot << 30, mib * MIB, 0, 0, 0)


RECORDS: list[rec.Record] = [
    allocation(form.ALLOC, 3, 10),
    allocation(form.ALLOC, 4, 20),
    rec.Name(7, "gemm"),
    kernel(1, 1_000_000, 7, mib=2),
    kernel(2, 2_000_000, 7, mib=3),
    rec.Operation(form.COPY, 3, 2_500_000, 2, 0, 0, 0, ()),
    rec.Sync(3, 1, 3_000_000, 5_000_000),  # waits 2 ms
    rec.Progress(1, 2, 5_000_000),
    allocation(form.FREE, 4, 20),
    kernel(4, 9_000_000, 8, mib=5),  # 4 ms later
    rec.Operation(form.HINT, 4, 9_000_000, 1, 0, 0, 0, (rec.Extent(3, 1, 0, 77, 1, 0),)),
    allocation(form.ALLOC, 5, 4),
    rec.Sync(4, 1, 9_100_000, 9_200_000),  # waits 0.1 ms
    rec.Graph(5, 0x3000, 1),
    rec.Operation(form.MEMSET, 5, 9_200_500, 1, 0, 0, 0, ()),  # 0.0005 ms later
]


def record(path: Path, records: list[rec.Record], chunk: int, whole: bool = True) -> Path:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    command = ["train", "\x1b[31mred"]
    writer = TraceWriter(fd, {"pump": "0.1.0", "policy": "window", "command": command})
    for budget_gib in (5, 7, 6):
        writer.device(
            *(1, bytes(16)),
            **{"index": 0, "total_bytes": 8 << 30, "free_at_start_bytes": 7 << 30},
            **{"budget_bytes": budget_gib << 30, "plain_bytes": 0, "state": 2, "emulated": 1},
        )
    for start in range(0, len(records), chunk):
        maker = RowMaker()
        for one in records[start : start + chunk]:
            maker.add(one)
        writer.events(maker.made())
        writer.flush()
    writer.lost(1, form.LOST_SKIPPED, 11)
    if whole:
        writer.end({})
    else:
        writer.flush()
    os.close(fd)
    return path


@pytest.mark.parametrize("chunk", [1, 3, 100])
def test_the_summary_says_what_is_in_the_file_however_it_is_cut_in_chunks(
    tmp_path: Path, chunk: int
) -> None:
    found = summary(str(record(tmp_path / "t", RECORDS, chunk)))
    expected: dict[str, Any] = {
        "state": "complete",
        "operations": 5,
        "kernels": 3,
        "copies": 1,
        "memsets": 1,
        "hints": 1,
        "graph_launches": 1,
        "graph_operations": 1,
        "streams": 2,
        "signatures": 2,
        "extents": 3,
        "extent_bytes": 10 * MIB,
        "allocations": 3,
        "frees": 1,
        "allocated_bytes_peak": 30 * MIB,
        "allocated_bytes_at_end": 14 * MIB,
        "synchronisations": 2,
        "waited_seconds": 0.0021,
        "longest_wait_seconds": 0.002,
        "host_gaps": 2,
        "host_gap_seconds": 0.0040005,
        "longest_host_gap_seconds": 0.004,
        "longest_pause_between_issues_seconds": 0.004,
        "seconds": 0.009200495,
        "lost": {"skipped to catch up": 11},
    }
    assert {key: found[key] for key in expected} == expected
    assert found["kernel_list"] == [
        {"name": "gemm", "count": 2, "estimated_seconds": pytest.approx(0.004)},
        {"name": "function 0x8", "count": 1, "estimated_seconds": None},
    ]
    assert found["bytes_per_operation"] == found["file_bytes"] / 5
    (device,) = found["devices"]
    budgets = [device[f"{which}budget_bytes"] >> 30 for which in ("", "least_", "most_")]
    assert budgets == [6, 5, 7]
    assert words.memory(device) == (
        "8.0 GiB, budget 6.0 GiB (set by --budget or a lease; 5.0 GiB to 7.0 GiB while recorded)"
    )


def test_a_resync_replaces_what_was_believed_live(tmp_path: Path) -> None:
    path = tmp_path / "t"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    writer = TraceWriter(fd, {})
    maker = RowMaker()
    maker.add(allocation(form.ALLOC, 3, 10))
    writer.events(maker.made())
    names = ("slot", "generation", "base", "length_bytes", "device", "kind", "alloc_seq")
    columns = {name: np.array([9, 1, 0, MIB, 0, 1, 5])[i : i + 1] for i, name in enumerate(names)}
    writer.resync(2, 0, columns)
    writer.end({})
    os.close(fd)
    found = summary(str(path))
    assert found["allocated_bytes_at_end"] == MIB
    assert found["resyncs"] == 1


@pytest.mark.parametrize("seed", range(5))
def test_markers_far_apart_still_tell_slow_kernels_from_fast_ones(seed: int) -> None:
    dice = random.Random(seed)
    truth_ns = {"slow": 1_000_000, "middle": 100_000, "fast": 5_000}
    estimate = Estimate()
    keys = {name: estimate.key(name) for name in truth_ns}
    now_ns, spent = 0, dict.fromkeys(truth_ns, 0.0)
    for start in range(1, 1601, 160):
        names = [dice.choice(list(truth_ns)) for _ in range(160)]
        seq = np.arange(start, start + 160)
        key = np.array([keys[name] for name in names])
        estimate.operations(1, seq, np.zeros(160, np.int64), key)
        times = []
        for place, name in enumerate(names, 1):
            now_ns += truth_ns[name]
            spent[name] += truth_ns[name] / 1e9
            if place % 16 == 0:
                times.append(now_ns + dice.randrange(2_000))
        estimate.progress(1, seq[15::16], np.array(times))
    found = estimate.seconds()
    assert sum(found.values()) == pytest.approx(sum(spent.values()), rel=0.01)
    assert found["slow"] == pytest.approx(spent["slow"], rel=0.1)
    assert found["middle"] == pytest.approx(spent["middle"], rel=0.25)
    assert found["fast"] < RESOLVED * sum(found.values())


def test_time_in_which_nothing_was_issued_is_no_kernels_time() -> None:
    estimate = Estimate()
    key = np.full(1, estimate.key("k"))
    for turn in range(1, 4):  # issued every 100 ms, runs 1 ms
        issued_ns = turn * 100_000_000
        estimate.operations(1, np.array([turn]), np.array([issued_ns]), key)
        estimate.progress(1, np.array([turn]), np.array([issued_ns + 1_000_000]))
    assert estimate.seconds() == {"k": pytest.approx(0.003)}


def test_the_command_prints_it_for_people_and_as_json(tmp_path: Path) -> None:
    path = record(tmp_path / "t", RECORDS, 5, whole=False)
    done = pump("trace", "info", str(path))
    assert (done.returncode, done.stderr) == (0, "")
    assert "truncated" in done.stdout
    assert "3 kernels, 1 copies, 1 memsets; 1 hint" in done.stdout
    assert "estimate" in done.stdout
    assert "gemm" in done.stdout
    assert "11 events (skipped to catch up)" in done.stdout
    assert "\x1b" not in done.stdout
    told = json.loads(pump("trace", "info", "--json", str(path)).stdout)
    assert told == {"schema": "pump.trace/1", **summary(str(path))}
    assert next(iter(told)) == "schema"


@pytest.mark.parametrize("seed", range(8))
def test_nonsense_from_a_hostile_client_is_summed_up_without_an_error(
    tmp_path: Path, seed: int
) -> None:
    dice = random.Random(seed)
    records = [random_record(dice) for _ in range(300)]
    path = record(tmp_path / "t", records, 70)
    found = summary(str(path))
    json.dumps(found, allow_nan=False)
    assert found["operations"] == sum(
        isinstance(one, rec.Operation) and one.kind != form.HINT for one in records
    )
    assert pump("trace", "info", str(path)).returncode == 0


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, "cannot read"),
        (b"", "the file is empty"),
        (b"#!/bin/sh\necho a shell script\n", "not a recording of pump"),
        (form.MAGIC + b"\7\0\0\0\0\0\0\0", "written in format 7; this pump reads up to 1"),
        (form.file_start() + bytes(40), "damaged at byte 16: a chunk's frame"),
    ],
)
def test_what_is_no_sound_recording_is_one_line(
    tmp_path: Path, content: bytes | None, text: str
) -> None:
    path = tmp_path / "t"
    if content is not None:
        path.write_bytes(content)
    done = pump("trace", "info", str(path))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert str(path) in done.stderr
    assert text in done.stderr


@pytest.mark.parametrize(
    ("words", "text"),
    [(["trace"], "info"), (["trace", "inf"], "inf"), (["trace", "info"], "FILE")],
)
def test_a_wrong_command_line_is_one_line(words: list[str], text: str) -> None:
    done = pump(*words)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert text in done.stderr


def timed(seq: int, elapsed_ns: int) -> rec.Timed:
    return rec.Timed(seq, 1, 0, elapsed_ns)


def test_timed_samples_tell_what_markers_cannot(tmp_path: Path) -> None:
    """Both kernels run between the same markers; waits make some samples longer."""
    records: list[rec.Record] = [rec.Name(7, "slow"), rec.Name(8, "fast")]
    for seq in range(1, 65, 2):
        began_ns = seq * 1_000_000
        records += [kernel(seq, began_ns, 7), kernel(seq + 1, began_ns, 8)]
        records.append(rec.Progress(1, seq + 1, began_ns + 1_000_000))
        wait_ns = 500_000 * (seq % 4 == 1)
        records += [timed(seq, 90_000 + wait_ns), timed(seq + 1, 10_000 + wait_ns)]
    found = summary(str(record(tmp_path / "t", records, 7)))
    seconds = {one["name"]: one["estimated_seconds"] for one in found["kernel_list"]}
    assert seconds == {"slow": pytest.approx(32 * 90e-6), "fast": pytest.approx(32 * 10e-6)}


def test_a_kind_without_a_sample_is_as_much_shorter_as_the_others(tmp_path: Path) -> None:
    """By the markers each takes 1 ms, by the samples a tenth of that."""
    records: list[rec.Record] = [rec.Name(7, "sampled"), rec.Name(8, "not sampled")]
    for seq in range(1, 65):
        records += [kernel(seq, seq * 1_000_000, 7 + seq % 2)]
        records.append(rec.Progress(1, seq, seq * 1_000_000 + 1_000_000))
        records += [timed(seq, 100_000)] * (seq % 2 == 0)
    found = summary(str(record(tmp_path / "t", records, 100)))
    for one in found["kernel_list"]:
        assert one["estimated_seconds"] == pytest.approx(32 * 100e-6, rel=0.05)


def test_a_graphs_sample_is_none_of_its_last_operation() -> None:
    own = OwnTimes()
    seq = np.arange(1, 9)
    own.graphs(np.array([1]), np.array([4]))
    own.operations(seq, np.zeros(8, np.int64), seq % 2, np.full(8, MIB))
    own.samples(np.array([4, 6, 7, 9]), np.array([5000, 70, 90, 1]))
    assert own.own_ns(0, MIB) == 70
    assert own.own_ns(1, MIB) == 90
    assert own.own_ns(2, MIB) is None


def test_a_few_samples_of_one_reach_are_no_longer_than_the_shape_usually_takes() -> None:
    own = OwnTimes()
    seq = np.arange(1, 21)
    own.operations(seq, np.zeros(20, np.int64), np.zeros(20, np.int64), seq // 20 * MIB)
    own.samples(seq, np.where(seq == 20, 900_000, 20_000))
    assert own.own_ns(0, MIB) == 20_000, "one sample, which waited"
    assert own.own_ns(0, 5 * MIB) == 20_000, "no sample of that reach"
