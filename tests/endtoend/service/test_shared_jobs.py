"""Several jobs under pump on one virtual GPU (shared=NAME)."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pumpds
import pytest
from job import expected
from jobs import MIB, Job

from pump.control import Control
from pump.wire.control import DeviceState

SHAPE = {"buffers": 24, "mib": 4, "steps": 300, "seed": 1}
WORDS = [f"--{name}={value}" for name, value in SHAPE.items()]
MEMORY_MIB = 120
"""Memory of the GPU; each job uses 0.8 times this."""


@pytest.mark.parametrize("policy", ["window", "demand"])
def test_two_jobs_on_one_card_compute_what_one_computes(
    two_jobs: list[Job], tmp_path: Path, policy: str
) -> None:
    right = expected(**SHAPE)
    run = ("--virtual-set", "shared=jobs", "--budget", "45%", "--policy", policy)
    env = {"PUMP_VIRTUAL_CARDS": str(tmp_path)}
    started = [job.start(*WORDS, memory_mib=MEMORY_MIB, run=run, env=env) for job in two_jobs]
    for process in started:
        stdout, stderr = process.communicate(timeout=120)
        assert stdout.split() == ["running", right], stderr
    cards = []
    for job in two_jobs:
        report = json.loads(job.report.read_text())
        assert report["violations"] == 0
        assert report["d2h_bytes"] > 0, "a job of 0.8 of the card has 0.45 of it"
        assert "budget 54 MiB;" in job.log.read_text(), "the budget is what was asked for"
        cards.append(report["card"])
    assert max(card["joined"] for card in cards) == 2
    assert all(card["check"] == 0 for card in cards)
    assert not list(tmp_path.glob("pump-card-*"))


def test_a_job_goes_on_when_the_other_is_killed(two_jobs: list[Job], tmp_path: Path) -> None:
    run = ("--virtual-set", "shared=jobs", "--budget", "45%")
    env = {"PUMP_VIRTUAL_CARDS": str(tmp_path)}
    long = [word for word in WORDS if "steps" not in word]
    survivor, victim = (
        job.start(*words, memory_mib=MEMORY_MIB, run=run, env=env)
        for job, words in zip(two_jobs, (WORDS, [*long, "--steps=1000000"]), strict=True)
    )
    try:
        assert victim.stdout
        assert victim.stdout.readline() == "running\n"
        os.kill(victim.pid, signal.SIGKILL)
        stdout, stderr = survivor.communicate(timeout=120)
    finally:
        victim.kill()
        victim.communicate()
    assert stdout.split() == ["running", expected(**SHAPE)], stderr
    card = json.loads(two_jobs[0].report.read_text())["card"]
    assert card["check"] == 0
    assert card["processes"] == 1, "what the dead one had is given back"


def device_of(pid: int) -> DeviceState:
    """Returns the device state of the job's only client."""
    with Control.of_job(str(pumpds.socket_of(pid))) as control:
        (client,) = control.state()
        return client.devices[0]


@pytest.mark.alone
def test_jobs_without_a_service_share_a_card_and_the_one_that_stays_has_all_of_it(
    two_jobs: list[Job], tmp_path: Path
) -> None:
    run = ("--virtual-set", "shared=jobs")
    env = {"PUMP_VIRTUAL_CARDS": str(tmp_path)}
    holds = [job.folder / "hold" for job in two_jobs]
    started = []

    def start(number: int) -> None:
        holds[number].touch()
        words = [*WORDS, f"--hold={holds[number]}"]
        process = two_jobs[number].start(*words, memory_mib=MEMORY_MIB, run=run, env=env)
        started.append(process)
        assert process.stdout
        assert process.stdout.readline() == "running\n"

    def budget_is(number: int, least_mib: int, most_mib: int) -> bool:
        return least_mib * MIB <= device_of(started[number].pid).budget_bytes <= most_mib * MIB

    try:
        start(0)
        assert pumpds.wait_for(lambda: budget_is(0, 110, 117), 30), "it is alone"
        start(1)  # each needs 96 MiB of 120
        assert pumpds.wait_for(lambda: budget_is(0, 54, 59), 30)
        assert pumpds.wait_for(lambda: budget_is(1, 54, 59), 30)
        second = device_of(started[1].pid)
        assert second.free_at_start_bytes < 40 * MIB, "what the driver keeps counts as used"
        assert not second.emulated
        holds[0].unlink()
        assert expected(**SHAPE) in started[0].communicate(timeout=120)[0]
        assert pumpds.wait_for(lambda: budget_is(1, 110, 117), 30), "the other has left"
        holds[1].unlink()
        assert expected(**SHAPE) in started[1].communicate(timeout=120)[0]
    finally:
        for process in started:
            process.kill()
            process.communicate()
    assert "budget 58 MiB;" in two_jobs[0].log.read_text()
    assert "budget 116 MiB;" in two_jobs[1].log.read_text()
    for job in two_jobs:
        report = json.loads(job.report.read_text())
        assert report["violations"] == 0
