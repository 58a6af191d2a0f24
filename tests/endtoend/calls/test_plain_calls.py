"""Plain memory gives the same answers with pump when programs reach its edges."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from jobs import pump_run
from places import PROGRAMS

STEPS = 40
CUDA_SUCCESS, CUDA_ERROR_INVALID_VALUE = 0, 1
PROGRAM = (sys.executable, str(PROGRAMS / "plain_calls_job.py"), str(STEPS))


def run(report: Path, *options: str, **env: str) -> tuple[Any, dict[str, Any]]:
    """Returns (the calls' answers, the driver's report)."""
    done = pump_run(*options, "--", *PROGRAM, PUMP_VIRTUAL_REPORT=str(report), **env)
    return json.loads(done.stdout), json.loads(report.read_text())


@pytest.mark.parametrize("keep", [(), ("--keep-device=stream-ordered",)], ids=["pool", "none"])
def test_memory_of_plain_calls_is_freed_in_the_order_of_a_stream(
    tmp_path: Path, keep: tuple[str, ...]
) -> None:
    """All allocations together are five times the limit. A second free of an address is refused,
    and queries do not know the memory that pump adds to round up."""
    limits = ("--limit=32MiB", "--virtual-set=memory=16MiB")
    plain, driver = run(tmp_path / "plain", "--virtual-set=memory=256MiB", PUMP_DISABLE="1")
    found, report = run(tmp_path / "pump", *limits, *keep)
    assert found == plain
    assert found["right"] == STEPS
    assert report["violations"] <= driver["violations"]
    assert report["calls"]["cuMemAllocManaged"] > 0


@pytest.mark.parametrize("memory", ["256MiB", "16MiB"], ids=["dormant", "active"])
def test_copies_and_memsets_end_where_the_requested_memory_does(
    tmp_path: Path, memory: str
) -> None:
    """Pump refuses access to the memory past the end like the driver refuses unallocated memory."""
    plain, _ = run(tmp_path / "plain", "--virtual-set=memory=256MiB", PUMP_DISABLE="1")
    found, report = run(tmp_path / "pump", f"--virtual-set=memory={memory}")
    assert found["ends"] == plain["ends"]
    for kind in ("plain", "ordered"):
        assert set(found["ends"][f"{kind} within"].values()) == {CUDA_SUCCESS}
        assert set(found["ends"][f"{kind} beyond"].values()) == {CUDA_ERROR_INVALID_VALUE}
    assert report["calls"]["cuMemAllocManaged"] > 0
