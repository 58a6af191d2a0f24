"""Which recordings can be simulated, and the errors for all others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from trace_rows import device_facts, ring, written

from pump.model.bounds import BLOCK_BYTES
from pump.policy import by_name
from pump.trace import format as form
from pump.trace import records as rec
from pump.trace.writer import TraceWriter
from pump_lab import profiles
from pump_lab.sim import recording, report
from pump_lab.sim.program import Program, ProgramError
from pump_lab.sim.simulation import Machine, run

BASE = 1 << 40


def memory(slot: int, device: int = 0) -> rec.RangeRow:
    place = BASE + slot * 4 * BLOCK_BYTES, 4 * BLOCK_BYTES
    return rec.RangeRow(form.ALLOC, 1000, slot, 1, *place, device, 0, 0)


def memset(seq: int, slot: int, device: int = 0) -> rec.Operation:
    whole = rec.Extent(slot, 1, 0, 4 * BLOCK_BYTES, 2, 0)
    return rec.Operation(form.MEMSET, seq, 1000 + seq, 0, device, 0, 0, (whole,))


def taken(
    folder: Path, *records: rec.Record, end: bool = True, budget_blocks: int = 100
) -> Program:
    def fill(writer: TraceWriter) -> None:
        writer.device(
            0, bytes(16), **device_facts(index=0, budget_bytes=budget_blocks * BLOCK_BYTES)
        )
        if records:
            writer.events(ring([*records]))

    data = written(folder / "a.trace", fill, {} if end else None)
    return recording.program(data, "a.trace")


def test_what_was_recorded_of_one_gpu_is_a_program(tmp_path: Path) -> None:
    found = taken(tmp_path, memory(0, 3), memory(1, 3), memset(1, 0, 3), memset(2, 1, 3))
    assert (found.operations, len(found.ranges), found.peak_bytes) == (2, 2, 8 * BLOCK_BYTES)
    assert not found.facts["truncated"]
    assert taken(tmp_path, memory(0), memset(1, 0), end=False).facts["truncated"]


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        ((), "no allocation was recorded"),
        ((memset(1, 0),), "no allocation was recorded"),
        ((memory(0), memory(1)), "no operation was recorded"),
        ((memory(0), memory(1, 1), memset(1, 0), memset(2, 1, 1)), "GPUs 0, 1 were used"),
        ((memory(0), memset(1, 0), memset(2, 0, 1)), r"one GPU \(pump-run --device\)"),
    ],
)
def test_what_cannot_be_simulated_is_refused_with_its_reason(
    tmp_path: Path, records: tuple[rec.Record, ...], reason: str
) -> None:
    with pytest.raises(ProgramError, match=reason):
        taken(tmp_path, *records)


def test_a_recording_that_was_cut_off_too_early_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match="no operation was recorded before it was cut off"):
        taken(tmp_path, memory(0), end=False)


def test_times_that_are_not_the_programs_are_told(tmp_path: Path) -> None:
    records = memory(0), memory(1), memset(1, 0)
    fits, short = (taken(tmp_path, *records, budget_blocks=b).facts for b in (8, 6))
    assert (fits["short_of_bytes"], short["short_of_bytes"]) == (0, 2 * BLOCK_BYTES)
    assert report.caveats({**fits, "left_out": []}) == []
    (line,) = report.caveats({**short, "left_out": []})
    assert "4.0 MiB too little" in line and "Record a run that fits" in line
    simulated = {"as_recorded_seconds": 1.25, "recorded_seconds": 1.5}
    (_, line) = report.caveats({**short, **simulated, "left_out": []})
    assert "it takes 1.2500 s; it took 1.5000 s" in line
    (line,) = report.caveats({**fits, "recorded_mode": "compute", "left_out": []})
    assert "timing mode" in line


@pytest.mark.parametrize(
    ("header", "mode"),
    [
        ({"job": {"virtual": {"mode": "compute", "profile": "h200-pcie5"}}}, "compute"),
        ({"job": {"command": ["python"]}}, None),
        ({"job": []}, None),
        ({}, None),
    ],
)
def test_where_it_was_recorded_is_known(header: dict[str, Any], mode: str | None) -> None:
    assert recording.virtual_mode(header) == mode


def test_a_recording_without_a_wait_after_its_start_is_measured_from_its_first_launch(
    tmp_path: Path,
) -> None:
    late = [memset(seq, 0)._replace(time_ns=10**9 + seq) for seq in (1, 2)]
    found = taken(tmp_path, memory(0), *late)
    begin, end = np.flatnonzero(found.steps["mark"])
    assert found.steps["host_ns"][: begin + 1].sum() == 10**9 + 1 - 1000
    assert found.steps["host_ns"][begin + 1 : end].sum() == 1
    assert found.facts["steady_steps"] == len(found.steps) - begin - 1
    assert found.facts["simulated_part"] == "starting at its first launch"


def test_a_recording_that_was_short_of_memory_is_simulated_as_it_was(tmp_path: Path) -> None:
    rows = [memory(0), memory(1)]
    for seq in range(1, 9):
        rows.append(memset(seq, seq % 2)._replace(time_ns=10**6 * seq))
        rows.append(rec.Sync(seq, 0, 10**6 * seq, 10**6 * seq + 500_000))
    machine = Machine(profiles.load("a100-pcie4"), 1 << 30)
    found = taken(tmp_path, *rows, budget_blocks=6)
    assert found.facts["recorded_seconds"] == pytest.approx(0.0085 - 0.0015)
    found.facts["recorded_policy"] = "demand"
    seconds = report.as_recorded(report.Case(found, machine))["as_recorded_seconds"]
    assert seconds > 2 * report.unlimited(report.Case(found, machine)).steady.seconds
    assert report.as_recorded(report.Case(taken(tmp_path, *rows), machine)) == {}


def test_an_operation_takes_what_its_samples_say_and_keeps_its_dropped_operands(
    tmp_path: Path,
) -> None:
    marker = rec.Progress(0, 3, 5_000_000)
    samples = [rec.Timed(seq, 0, 5_000_000, ns) for seq, ns in ((1, 40_000), (2, 60_000))]
    many = memset(3, 1)._replace(dropped=8)
    found = taken(tmp_path, memory(0), memory(1), memset(1, 0), memset(2, 0), many, marker,
                  *samples)  # fmt: skip
    operations = found.steps[found.steps["seq"] > 0]
    assert operations["duration_ns"].tolist() == [40_000, 40_000, 40_000]
    assert operations["dropped"].tolist() == [0, 0, 8]
    assert found.facts["durations"] == "estimated from timed samples"
    assert found.facts["operands_dropped"] == 8
    markers = taken(tmp_path, memory(0), memset(1, 0), marker)
    assert markers.facts["durations"] == "estimated from markers"


def test_after_dropped_operands_what_is_there_is_in_doubt(tmp_path: Path) -> None:
    """So blocks that are believed resident are prefetched once more, in vain."""

    def again(dropped: int) -> int:
        operations = [memset(1 + i, i % 3) for i in range(30)]
        operations[9::3] = [one._replace(dropped=dropped) for one in operations[9::3]]
        records = *map(memory, range(3)), *operations, rec.Timed(1, 0, 0, 3_000_000)
        program = taken(tmp_path, *records, budget_blocks=10)
        machine = Machine(profiles.load("a100-pcie4"), 10 * BLOCK_BYTES)
        found = run(program, machine, by_name("window"))
        return int(found.whole.counters["prefetch_resident_blocks"])

    assert again(8) > 1.5 * again(0)
