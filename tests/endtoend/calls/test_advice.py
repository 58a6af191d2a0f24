"""The program's own advice, prefetches and discards. Pump leaves READ_MOSTLY memory to the driver:
a prefetch of such memory to the host frees no GPU memory."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from jobs import pump_run
from places import PROGRAMS

MIB = 1 << 20
SET, UNSET, PREFER = 1, 2, 3


@pytest.mark.parametrize(
    ("advice", "left_alone"),
    [
        ([f"{SET}:96"], True),
        ([f"{SET}:8"], True),  # part of the memory
        ([f"{SET}:96", f"{UNSET}:96"], False),
        ([f"{SET}:96", f"{UNSET}:8"], True),
        ([f"{PREFER}:96"], False),
    ],
)
def test_memory_under_read_mostly_is_moved_by_the_driver_alone(
    tmp_path: Path, advice: list[str], left_alone: bool
) -> None:
    report, summary = tmp_path / "report.json", tmp_path / "summary.json"
    done = pump_run(
        *("--virtual-set=memory=128MiB", "--", sys.executable, str(PROGRAMS / "advice_job.py")),
        *advice,
        PUMP_VIRTUAL_REPORT=str(report),
        PUMP_SUMMARY=str(summary),
    )
    assert json.loads(done.stdout) == [1] * (len(advice) + 5), "as of device memory"
    device = json.loads(summary.read_text())["devices"][0]
    assert device["plain_bytes"] == (96 * MIB if left_alone else 0)
    assert device["allocated_bytes"] == (96 if left_alone else 192) * MIB
    assert json.loads(report.read_text())["violations"] == 0
