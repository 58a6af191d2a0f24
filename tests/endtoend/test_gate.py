"""Gates in front of launches: the same bits, and no way to hang on one.

A program that waits for each of its launches, on a slow link: what it launches next is often
just on its way.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
from pathlib import Path

import pumpds
import pytest
from conftest import Job
from job import expected

SHAPE = {"buffers": 24, "mib": 4, "steps": 48, "seed": 11}
ROUNDS = 7
WORDS = [*(f"--{name}={value}" for name, value in SHAPE.items()), f"--rounds={ROUNDS}"]
EACH = (*WORDS, "--sync-every=1")
LONG_ROUNDS = 3 * ROUNDS
LONG = (*EACH, f"--rounds={LONG_ROUNDS}")
"""The last word counts."""


@pytest.fixture(scope="module")
def right() -> str:
    return expected(**SHAPE, replays=ROUNDS)


@pytest.fixture(scope="module")
def right_of_long() -> str:
    return expected(**SHAPE, replays=LONG_ROUNDS)


def options(gbps: float = 4.0, policy: str = "planned", gate: bool = True) -> tuple[str, ...]:
    """Of pump-run, with a link of that rate."""
    rates = {"prefetch_h2d": gbps, "copy_d2h": gbps, "demand": gbps / 4}
    link = [f"link.{name}_gbps={rate}" for name, rate in rates.items()]
    words = [word for setting in link for word in ("--virtual-set", setting)]
    return (*words, "--policy", policy, *(["--gate"] if gate else []))


def counted(folder: Path) -> dict[str, int]:
    """The shim's counters, of the job's process."""
    (file,) = folder.glob("summary.*")
    return dict(json.loads(file.read_text())["shim"])


def summary(folder: Path, **env: str) -> dict[str, str]:
    return {"PUMP_SUMMARY": str(folder / "summary.%p"), **env}


def test_gated_launches_give_the_same_bits(job: Job, right: str, tmp_path: Path) -> None:
    done = job.run(*EACH, run=options(), env=summary(tmp_path))
    assert done.stdout.split() == ["running", right], done.stderr
    assert counted(tmp_path)["gates"] > 0
    assert " gates, " in done.stderr
    assert json.loads(job.report.read_text())["violations"] == 0


@pytest.mark.parametrize(("policy", "gate"), [("planned", False), ("window", True)])
def test_there_are_none_unasked_and_none_without_expectations(
    job: Job, right: str, tmp_path: Path, policy: str, gate: bool
) -> None:
    done = job.run(*EACH, run=options(policy=policy, gate=gate), env=summary(tmp_path))
    assert done.stdout.split() == ["running", right], done.stderr
    assert counted(tmp_path)["gates"] == 0 and "gate" not in done.stderr


def test_what_comes_too_slowly_is_left_to_the_watchdog(
    job: Job, right: str, tmp_path: Path
) -> None:
    done = job.run(*EACH, run=options(gbps=0.4), env=summary(tmp_path))
    assert done.stdout.split() == ["running", right], done.stderr
    counters = counted(tmp_path)
    assert 0 < counters["gates_late"] <= counters["gates"]


def test_a_graph_gets_no_gate(job: Job, right: str, tmp_path: Path) -> None:
    words = [word for word in EACH if not word.startswith("--rounds")]
    done = job.run(*words, f"--replays={ROUNDS}", run=options(), env=summary(tmp_path))
    assert done.stdout.split() == ["running", right], done.stderr
    assert counted(tmp_path)["gates"] == 0


@pytest.mark.parametrize(
    "failures",
    [
        "cuStreamWaitValue32_v2:1:801",
        "cuStreamWaitValue32_v2:5:999",
        "cuMemHostRegister_v2:1:2",
        "cuMemHostGetDevicePointer_v2:1:1",
        ",".join(f"cuMemPrefetchAsync_v2:{n}:999" for n in range(40, 140, 3)),
        ",".join(f"cuEventSynchronize:{n}:999" for n in range(20, 120, 3)),
    ],
    ids=lambda text: text.partition(",")[0],
)
def test_a_driver_that_fails_around_a_gate_costs_time_only(
    job: Job, right: str, failures: str
) -> None:
    done = job.run(*EACH, run=options(), env={"PUMP_VIRTUAL_FAIL": failures})
    assert done.stdout.split() == ["running", right], done.stderr


def test_a_driver_without_words_for_it_is_named_once(job: Job, right: str, tmp_path: Path) -> None:
    env = summary(tmp_path, PUMP_VIRTUAL_FAIL="cuMemHostRegister_v2:1:2")
    done = job.run(*EACH, run=options(), env=env)
    assert done.stdout.split() == ["running", right], done.stderr
    assert counted(tmp_path)["gates"] == 0
    assert job.log.read_text().count("the job goes on without gates") == 1


def test_a_program_that_forks_keeps_its_gates(job: Job, right: str, tmp_path: Path) -> None:
    done = job.run(*EACH, "--fork-every=40", run=options(), env=summary(tmp_path))
    assert done.stdout.split() == ["running", right], done.stderr
    assert counted(tmp_path)["gates"] > 0


def finish(process: subprocess.Popen[str]) -> list[str]:
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    return out.split()


@pytest.mark.parametrize("seed", range(4))
def test_workers_killed_among_gates_leave_the_job_right(
    job: Job, right_of_long: str, seed: int
) -> None:
    random_ = random.Random(seed)
    process = job.start(*LONG, run=options(gbps=random_.choice((1.0, 4.0))))
    assert process.stdout is not None and process.stdout.readline().strip() == "running"
    for _ in range(3):
        if not pumpds.wait_for(lambda: bool(pumpds.of_job(process.pid).workers), 5):
            break
        pumpds.wait_for(lambda: False, 0.3 + random_.random())
        for worker in pumpds.of_job(process.pid).workers:
            pumpds.kill(worker)
    assert finish(process) == [right_of_long]


def test_a_worker_stopped_among_gates_does_not_stop_the_job(job: Job, right_of_long: str) -> None:
    process = job.start(*LONG, run=options())
    assert process.stdout is not None and process.stdout.readline().strip() == "running"
    assert pumpds.wait_for(lambda: bool(pumpds.of_job(process.pid).workers))
    pumpds.wait_for(lambda: False, 1.0)
    (worker,) = pumpds.of_job(process.pid).workers
    os.kill(worker, signal.SIGSTOP)
    try:
        assert finish(process) == [right_of_long]
    finally:
        os.kill(worker, signal.SIGCONT)
