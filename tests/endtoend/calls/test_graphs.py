"""A captured iteration that needs 1.5 times the GPU's memory: bits, faults and the recording."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import job
import pytest
from jobs import MIB, pump_run, recording
from places import PROGRAMS

BUFFERS, BUFFER_MIB, STEPS = 24, 4, 60
MEMORY_MIB = 64


def run(folder: Path, replays: int, mode: str, policy: str, kernels: Path, *more: str) -> Any:
    """Returns the job's digest, the virtual driver's report and pump's counters."""
    report, counters = folder / "report.json", folder / "summary.json"
    settings = [f"device.memory_bytes={MEMORY_MIB * MIB}", f"mode={mode}"]
    virtual = [f"--virtual-set={setting}" for setting in settings]
    sizes = ("--buffers", BUFFERS, "--mib", BUFFER_MIB, "--steps", STEPS, "--replays", replays)
    done = pump_run(
        *(*virtual, "--policy", policy, *more),
        *("--", sys.executable, str(PROGRAMS / "job.py"), *map(str, sizes)),
        PUMP_VIRTUAL_KERNELS=str(kernels),
        PUMP_VIRTUAL_REPORT=str(report),
        PUMP_SUMMARY=str(counters),
    )
    found = json.loads(report.read_text())
    assert found["violations"] == 0
    return done.stdout.split()[-1], found, json.loads(counters.read_text())


@pytest.mark.parametrize("policy", ["demand", "window", "planned"])
def test_a_replayed_iteration_has_the_same_bits_and_is_counted_in_full(
    tmp_path: Path, kernels: Path, policy: str
) -> None:
    trace = tmp_path / "recording"
    digest, report, counters = run(
        *(tmp_path, 4, "compute", policy, kernels, "--record", str(trace))
    )
    assert digest == job.expected(BUFFERS, BUFFER_MIB, STEPS, 1, 4)
    assert report["graphs"] == {"launches": 4, "kernels": 4 * STEPS, "copies": 0, "memsets": 0}
    shim = counters["shim"]
    assert (shim["graph_launches"], shim["graph_operations"]) == (4, 4 * STEPS)
    found = recording(trace)
    assert (found["graph_launches"], found["graph_operations"]) == (4, 4 * STEPS)
    assert found["kernel_list"][0]["count"] == 4 * STEPS


def test_a_replayed_iteration_faults_less_with_its_window_known(
    tmp_path: Path, kernels: Path
) -> None:
    faults = {
        policy: min(run(tmp_path, 20, "timing", policy, kernels)[1]["faults"] for _ in range(2))
        for policy in ("demand", "window")
    }
    assert faults["window"] < 0.9 * faults["demand"], faults
