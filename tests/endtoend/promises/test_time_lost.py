"""The time lost to memory in a job's last line, compared with a run that has enough memory. The
bounds are wide: other processes may keep the machine busy."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from jobs import pump_run
from places import ROOT

from pump.report import gather

MLP = [sys.executable, str(ROOT / "examples" / "train_mlp.py"), "--width=2048", "--layers=6"]
MLP += ["--iterations=20", "--warm-up=0", "--report-every=0", "--batch=256", "--no-hash"]
FOOTPRINT_MIB = 405
LOST = ("lost_least_ns", "lost_ns", "lost_most_ns", "lost_of_ns")

pytestmark = pytest.mark.alone


def train(folder: Path, memory_mib: int, *words: str) -> tuple[float, Any, str]:
    """Trains on a GPU of that size. Returns seconds by the program's own clock, the worker's
    counters, and the printed lines."""
    result, figures = folder / "result.json", folder / "counters.json"
    figures.unlink(missing_ok=True)
    command = [*words, "--virtual-set", f"memory={memory_mib}MiB", "--", *MLP]
    done = pump_run(*command, "--json", str(result), PUMP_SUMMARY=str(figures))
    seconds = float(json.loads(result.read_text())["seconds"])
    return seconds, json.loads(figures.read_text())["worker"], done.stderr


def test_the_time_lost_is_near_what_memory_for_everything_would_save(tmp_path: Path) -> None:
    record = ("--record", str(tmp_path / "run.pump"))
    room_s, fits, _ = train(tmp_path, 4 * FOOTPRINT_MIB)
    run_s, tight, printed = train(tmp_path, FOOTPRINT_MIB // 2, *record)
    assert not any(fits[name] for name in LOST), "it was left alone"
    least, lost, most, whole = (tight[name] / 1e9 for name in LOST)
    truth = run_s - room_s
    assert truth > 0.2 * run_s, "this test is about a run that is short of memory"
    assert 0 < least <= lost <= most <= whole
    assert lost == pytest.approx(truth, rel=0.35)
    assert "pump: lost about" in printed and " to memory at " in printed
    found = gather.report(str(tmp_path / "run.pump"))["time_lost"]
    assert found["seconds"] == pytest.approx(lost, rel=0.05)


def test_a_recorded_job_that_fits_lost_nothing(tmp_path: Path) -> None:
    record = ("--record", str(tmp_path / "run.pump"))
    _, counters, printed = train(tmp_path, 4 * FOOTPRINT_MIB, *record)
    assert counters["lost_of_ns"] > 0 and counters["lost_most_ns"] == 0
    assert "everything fitted on the GPU" in printed


def test_a_job_that_waits_for_memory_each_time_is_told_a_range(tmp_path: Path) -> None:
    """With demand paging no update of the weights finds its memory on the GPU."""
    room_s, _, _ = train(tmp_path, 4 * FOOTPRINT_MIB)
    run_s, tight, printed = train(tmp_path, FOOTPRINT_MIB // 2, "-v", "--policy", "demand")
    least, _, most, _ = (tight[name] / 1e9 for name in LOST)
    assert 0.85 * least <= run_s - room_s <= 1.15 * most
    assert re.search(
        r"time lost to memory: about [\d.]+ s of [\d.]+ s \([\d.]+ m?s to [\d.]+ s\); ", printed
    )
