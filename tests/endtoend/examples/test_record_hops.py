"""Recorded slices agree with the shim's counters, and their times are in order."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from jobs import BIN, Job
from test_record import read

from pump.model.bounds import BLOCK_BYTES
from pump.trace import format as form
from pump.trace import records as rec
from pump.wire.abi import lib

WORDS = ("--buffers=24", "--mib=4", "--steps=96", "--rounds=4", "--sync-every=24")
DIRECTIONS = ("moved_to_gpu_bytes", "moved_to_host_bytes")


def recorded(job: Job, policy: str) -> tuple[list[rec.Record], dict[str, int]]:
    """Returns the rows of the recording and the shim's counters."""
    trace, summary = job.folder / "t", job.folder / "summary"
    words = ("--policy", policy, "--record", str(trace))
    done = job.run(*WORDS, run=words, env={"PUMP_SUMMARY": str(summary)})
    assert done.returncode == 0, done.stderr
    reader, records = read(trace)
    assert reader.end is not None
    return records, dict(json.loads(summary.read_text())["shim"])


@pytest.mark.parametrize("policy", ["window", "planned"])
def test_slices_add_up_to_what_the_shim_has_moved(job: Job, policy: str) -> None:
    records, shim = recorded(job, policy)
    slices = [record for record in records if isinstance(record, rec.Transfer)]
    moved = Counter[int]()
    for row in slices:
        kept = row.kept.bit_count() if row.direction == lib.PUMP_TO_HOST else 0
        copied_bytes = row.length_bytes - kept * BLOCK_BYTES
        moved[row.direction] += copied_bytes if row.result == 0 else 0
    assert [moved[way] for way in (0, 1)] == [shim[name] for name in DIRECTIONS]
    assert moved[0] > 0 < moved[1] and not any(isinstance(r, rec.Lost) for r in records)
    refused = sum(row.result != 0 for row in slices)
    kinds = ("stale", "late", "dead", "invalid", "failed")
    assert refused == sum(shim[f"commands_{kind}"] for kind in kinds)


def test_each_hop_lies_within_the_recording(job: Job) -> None:
    records, _ = recorded(job, "planned")
    times = [r.time_ns for r in records if isinstance(r, rec.Operation | rec.RangeRow)]
    begin_ns, end_ns = min(times), max(r.time_ns for r in records if isinstance(r, rec.Sample))
    for row in (r for r in records if isinstance(r, rec.Transfer)):
        spent_us = row.waited_us + row.called_us + row.driver_us + row.link_us
        assert begin_ns <= row.time_ns - 1000 * spent_us <= row.time_ns <= end_ns
        assert row.time_ns + 1000 * row.seen_us <= end_ns
        assert row.result == 0 or row.driver_us == row.link_us == 0
    progress = [r for r in records if isinstance(r, rec.Progress)]
    polled = [r for r in progress if r.before_ns]
    assert polled and all(r.before_ns <= r.time_ns for r in polled)
    reads = [r for r in records if isinstance(r, rec.Read)]
    assert reads and all(begin_ns <= r.time_ns - 1000 * r.waited_us for r in reads)


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="the kernel counts no delays")
def test_threads_only_ever_do_more(job: Job) -> None:
    records, _ = recorded(job, "planned")
    last: dict[int, rec.Threads] = {}
    for row in (r for r in records if isinstance(r, rec.Threads)):
        if row.group in last:
            assert row.ran_ns >= last[row.group].ran_ns
            assert row.delay_ns >= last[row.group].delay_ns
        last[row.group] = row
    assert last[form.THREADS_PROGRAM].ran_ns > 0 < last[form.THREADS_WORKER].ran_ns
    assert last[form.THREADS_TO_HOST].ran_ns > 0 < last[form.THREADS_MARKERS].ran_ns


def test_demand_schedules_nothing_and_its_report_has_no_table_of_slices(job: Job) -> None:
    records, _ = recorded(job, "demand")
    assert not any(isinstance(record, rec.Transfer) for record in records)
    words = [str(BIN / "pump"), "report", "--text", str(job.folder / "t")]
    text = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert "where moved slices waited" not in text and "Time lost to memory" in text
