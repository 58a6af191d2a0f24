"""Drivers before CUDA 12.4: the layouts of parameters come from the program's code."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import HERE, Job, pump_run, recording

pytest.importorskip("cuda.bindings.nvrtc")

JOB = ("--buffers=24", "--mib=4", "--steps=120")
OLD = {"PUMP_VIRTUAL_VERSION": "12020"}
LAYOUTS = HERE / "layouts_job.py"


def recorded(tmp_path: Path, program: list[str], **env: str) -> dict[str, Any]:
    """What pump trace info says of the program's recording."""
    trace = tmp_path / "trace"
    done = pump_run(f"--record={trace}", "--", sys.executable, *program, **env)
    return {"stderr": done.stderr, **recording(trace)}


@pytest.mark.parametrize("way", ["ptx", "cubin", "fatbin", "file", "library", "kernel"])
def test_launches_reach_the_same_ranges_as_on_a_driver_that_tells(tmp_path: Path, way: str) -> None:
    new = recorded(tmp_path, [str(LAYOUTS), way])
    old = recorded(tmp_path, [str(LAYOUTS), way], **OLD)
    figures = ("operations", "kernels", "extents", "signatures")
    assert [old[figure] for figure in figures] == [new[figure] for figure in figures]
    assert new["extents"] == 3 * new["kernels"] == 9
    assert "demand paging" not in old["stderr"]


def test_results_are_the_same_on_an_old_driver(job: Job) -> None:
    plain = job.run(*JOB, memory_mib=256, env={"PUMP_DISABLE": "1"})
    old = job.run(*JOB, memory_mib=32, env=OLD)
    assert old.returncode == 0, old.stderr
    assert old.stdout == plain.stdout
    assert json.loads(job.report.read_text())["violations"] == 0


def test_code_that_cannot_be_read_is_left_to_demand_paging_and_named_once(tmp_path: Path) -> None:
    found = recorded(tmp_path, [str(LAYOUTS), "unread"], **OLD)
    assert found["kernels"] == 3 and found["extents"] == 0
    assert found["stderr"].count("left to demand paging") == 1
