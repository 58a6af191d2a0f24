"""PUMP_SUMMARY: pump's counters as one JSON object when a process of the job ends."""

from __future__ import annotations

import json
import os
from pathlib import Path

from jobs import Job

MIB = 1 << 20


def test_the_file_holds_the_counters_of_a_job_that_oversubscribed(job: Job, tmp_path: Path) -> None:
    file = tmp_path / "summary.json"
    done = job.run("--steps=100", "--seed=2", env={"PUMP_SUMMARY": str(file)})
    assert done.returncode == 0, done.stderr
    found = json.loads(file.read_text())
    assert next(iter(found.items())) == ("schema", "pump.summary/1")
    assert found["shim"]["operations"] >= 100
    assert found["shim"]["converted_bytes_peak"] == 24 * 4 * MIB
    assert found["devices"][0]["active"] is True
    assert found["devices"][0]["total_bytes"] == 64 * MIB
    assert found["worker_losses"] == 0
    assert found["line"].startswith("lost ")
    assert done.stderr == f"pump: {found['line']}\n"


def test_a_job_that_fits_is_told_apart_from_one_that_was_not_intercepted(
    job: Job, tmp_path: Path
) -> None:
    env = {"PUMP_SUMMARY": str(tmp_path / "of-%p.json")}
    done = job.run("--steps=10", memory_mib=512, env=env)
    assert done.returncode == 0, done.stderr
    (file,) = tmp_path.glob("of-*.json")
    found = json.loads(file.read_text())
    assert found["devices"][0]["active"] is False
    assert found["devices"][0]["allocated_bytes"] + found["shim"]["converted_bytes_peak"] > 0
    assert file.name == f"of-{found['pid']}.json"


def test_what_is_no_regular_file_is_left_as_it_is(job: Job, tmp_path: Path) -> None:
    """For example, root may set PUMP_SUMMARY=/dev/null."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    done = job.run("--steps=10", memory_mib=512, env={"PUMP_SUMMARY": str(pipe)})
    assert done.returncode == 0, done.stderr
    assert pipe.is_fifo()
    assert f"PUMP_SUMMARY: {pipe} is not a summary that pump wrote" in job.log.read_text()


def test_without_pump_there_is_no_file(job: Job, tmp_path: Path) -> None:
    file = tmp_path / "summary.json"
    env = {"PUMP_SUMMARY": str(file), "PUMP_DISABLE": "1"}
    done = job.run("--steps=10", memory_mib=512, env=env)
    assert done.returncode == 0, done.stderr
    assert not file.exists()
