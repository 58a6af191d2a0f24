"""Schedules executed without the worker: the same bits, and void once a prediction fails."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pumpds
import pytest
from job import expected
from jobs import Job

SHAPE = {"buffers": 24, "mib": 4, "steps": 48, "seed": 11}
WORDS = [f"--{name}={value}" for name, value in SHAPE.items()]
ROUNDS = 12
EACH = (*WORDS, f"--rounds={ROUNDS}", "--sync-every=8")
LONG = (*WORDS, f"--rounds={ROUNDS}", "--sync-every=2", "--sleep-ms=5")

PLANNED = ("--policy", "planned")


@pytest.fixture(scope="module")
def right() -> str:
    return expected(**SHAPE, replays=ROUNDS)


def counted(folder: Path) -> dict[str, int]:
    """Returns the shim's counters of the job's process."""
    (file,) = folder.glob("summary.*")
    return dict(json.loads(file.read_text())["shim"])


def summary(folder: Path) -> dict[str, str]:
    return {"PUMP_SUMMARY": str(folder / "summary.%p")}


def started(job: Job, *words: str) -> subprocess.Popen[str]:
    process = job.start(*words, run=PLANNED)
    assert process.stdout is not None and process.stdout.readline().strip() == "running"
    assert pumpds.wait_for(lambda: bool(pumpds.of_job(process.pid).workers))
    return process


def finish(process: subprocess.Popen[str]) -> list[str]:
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    return out.split()


def test_planned_moves_blocks_by_its_schedule(job: Job, right: str, tmp_path: Path) -> None:
    done = job.run(*EACH, run=PLANNED, env=summary(tmp_path))
    assert done.stdout.split() == ["running", right], done.stderr
    assert counted(tmp_path)["scheduled_bytes"] > 0
    assert json.loads(job.report.read_text())["violations"] == 0


def test_a_window_moves_what_is_issued_and_compares_nothing(
    job: Job, right: str, tmp_path: Path
) -> None:
    done = job.run(*EACH, run=("--policy", "window"), env=summary(tmp_path))
    assert done.stdout.split() == ["running", right], done.stderr
    counters = counted(tmp_path)
    assert counters["scheduled_bytes"] > 0 == counters["schedules_dropped"]


def test_demand_schedules_nothing(job: Job, right: str, tmp_path: Path) -> None:
    done = job.run(*EACH, run=("--policy", "demand"), env=summary(tmp_path))
    assert done.stdout.split() == ["running", right], done.stderr
    counters = counted(tmp_path)
    assert counters["scheduled_bytes"] == counters["schedules_dropped"] == 0


def test_a_job_that_fits_is_never_compared_with_anything(
    job: Job, right: str, tmp_path: Path
) -> None:
    done = job.run(*EACH, run=PLANNED, memory_mib=256, env=summary(tmp_path))
    assert done.stdout.split() == ["running", right], done.stderr
    counters = counted(tmp_path)
    assert counters["scheduled_bytes"] == counters["schedules_dropped"] == 0


@pytest.mark.parametrize("words", [("--fork-every=40",), ("--churn",), ("--managed",)])
def test_schedules_go_with_forks_frees_and_managed_memory(
    job: Job, right: str, words: tuple[str, ...]
) -> None:
    done = job.run(*EACH, *words, run=PLANNED)
    assert done.stdout.split() == ["running", right], done.stderr
    assert json.loads(job.report.read_text())["violations"] == 0


def test_a_worker_stopped_again_and_again_is_not_missed_meanwhile(job: Job, right: str) -> None:
    process = started(job, *LONG)
    (worker,) = pumpds.of_job(process.pid).workers
    alone = 0
    with pumpds.mapping_of(worker) as mapping:
        counters = mapping.shm.shim_counters
        with suppress(ProcessLookupError):  # the worker ends with the job
            while process.poll() is None:
                time.sleep(0.05)
                os.kill(worker, signal.SIGSTOP)
                time.sleep(0.005)
                before = counters.scheduled_bytes
                time.sleep(0.05)
                alone += counters.scheduled_bytes - before
                os.kill(worker, signal.SIGCONT)
    assert finish(process) == [right]
    assert alone > 0
    assert json.loads(job.report.read_text())["violations"] == 0


@pytest.mark.parametrize("seed", range(4))
def test_workers_killed_in_the_middle_of_schedules_leave_the_job_right(
    job: Job, right: str, seed: int
) -> None:
    random_ = random.Random(seed)
    process = started(job, *LONG)
    for _ in range(4):
        time.sleep(0.2 + 0.3 * random_.random())
        for worker in pumpds.of_job(process.pid).workers:
            pumpds.kill(worker)
    assert finish(process) == [right]
    assert json.loads(job.report.read_text())["violations"] == 0


@pytest.mark.parametrize(
    "failures",
    [
        ",".join(f"cuMemPrefetchAsync_v2:{n}:999" for n in range(40, 220, 3)),
        ",".join(f"cuEventSynchronize:{n}:999" for n in range(20, 200, 3)),
    ],
    ids=lambda text: text.partition(":")[0],
)
def test_a_driver_that_refuses_what_is_scheduled_costs_time_only(
    job: Job, right: str, failures: str
) -> None:
    done = job.run(*EACH, run=PLANNED, env={"PUMP_VIRTUAL_FAIL": failures})
    assert done.stdout.split() == ["running", right], done.stderr
