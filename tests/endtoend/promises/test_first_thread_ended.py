"""If the first thread ends with pthread_exit, /proc shows the program as a zombie. Such a program
is served and listed like any other."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pumpds
from job import expected
from jobs import BIN, Job, recording

SHAPE = {"buffers": 24, "mib": 4, "steps": 40, "seed": 4}
WORDS = [*(f"--{name}={value}" for name, value in SHAPE.items()), "--rounds=2", "--thread"]


def test_a_job_whose_first_thread_has_ended_is_served_and_recorded(
    job: Job, tmp_path: Path
) -> None:
    record = ("--record", str(tmp_path / "job.pump"))
    done = job.run(*WORDS, "--sleep-ms=2", run=record, env={"PUMP_SUMMARY": f"{tmp_path}/figures"})
    assert done.stdout.split() == ["running", expected(**SHAPE, replays=2)], done.stderr
    figures = json.loads((tmp_path / "figures").read_text())
    assert figures["worker"]["operations"] > 0
    assert figures["shim"]["moved_to_gpu_bytes"] > 0
    assert "--thread" in recording(tmp_path / "job.pump")["command"]


def test_a_job_whose_first_thread_has_ended_is_listed_by_its_name(job: Job, tmp_path: Path) -> None:
    hold = tmp_path / "hold"
    hold.touch()
    process = job.start(*WORDS, f"--hold={hold}", run=("--name", "headless"))

    def listed() -> bool:
        line = [str(BIN / "pump"), "jobs", "--json"]
        told = subprocess.run(line, capture_output=True, text=True, check=True).stdout
        jobs = {one["pid"]: one for one in json.loads(told)["jobs"]}
        mine = jobs.get(process.pid)
        return mine is not None and mine["name"] == "headless" and len(mine["clients"]) == 1

    assert pumpds.wait_for(listed)
    hold.unlink()
    process.communicate(timeout=60)
    assert process.returncode == 0
