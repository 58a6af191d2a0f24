"""Invariant 2: after kill -9 of pumpd at any moment the job runs, is right and attaches again."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
from pathlib import Path

import pumpds
import pytest
from job import expected
from jobs import BIN, Job

from pump.wire.abi import lib

SHAPE = {"buffers": 24, "mib": 4, "steps": 35, "seed": 5}
ROUNDS = 20
WORDS = [*(f"--{name}={value}" for name, value in SHAPE.items()), f"--rounds={ROUNDS}"]


@pytest.fixture(scope="module")
def right() -> str:
    return expected(**SHAPE, replays=ROUNDS)


def policy_of(seed: int) -> tuple[str, str]:
    return "--policy", ("window", "planned")[seed % 2]


def finish(process: subprocess.Popen[str]) -> list[str]:
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    return out.split()


@pytest.mark.parametrize("seed", range(8))
def test_a_killed_worker_is_replaced_and_the_job_stays_right(
    job: Job, right: str, seed: int
) -> None:
    random_ = random.Random(seed)
    process = job.start(*WORDS, "--sleep-ms=3", run=policy_of(seed))
    assert process.stdout is not None and process.stdout.readline().strip() == "running"
    for _ in range(2):
        assert pumpds.wait_for(lambda: bool(pumpds.of_job(process.pid).workers))
        first = pumpds.of_job(process.pid).workers
        pumpds.wait_for(lambda: False, random_.random() * 0.3)
        for worker in first:
            pumpds.kill(worker)
        assert pumpds.wait_for(
            lambda old=first: bool(set(pumpds.of_job(process.pid).workers) - set(old)), 8
        ), "a new worker serves the client"
    assert finish(process) == [right]


@pytest.mark.parametrize("seed", range(8))
def test_a_killed_pumpd_leaves_the_job_right_and_a_new_one_is_found(
    job: Job, right: str, seed: int
) -> None:
    random_ = random.Random(100 + seed)
    process = job.start(*WORDS, "--sleep-ms=4", run=policy_of(seed))
    assert process.stdout is not None and process.stdout.readline().strip() == "running"
    assert pumpds.wait_for(lambda: bool(pumpds.of_job(process.pid).workers))
    pumpds.wait_for(lambda: False, random_.random() * 0.4)
    everything = pumpds.of_job(process.pid)
    for pid in (everything.supervisor, everything.warm, *everything.workers):
        pumpds.kill(pid)
    socket = pumpds.socket_of(process.pid)
    where = ["--socket", str(socket), "--job-pid", str(process.pid)]
    again = subprocess.Popen(
        [str(BIN / "pumpd"), "job", *where, "--policy", "window"],
        stdin=subprocess.DEVNULL,
    )
    try:
        assert pumpds.wait_for(lambda: bool(pumpds.of_job(process.pid).workers), 8)
        assert finish(process) == [right]
    finally:
        assert again.wait(timeout=10) == 0, "pumpd ends with the job"
    assert not socket.exists()


@pytest.mark.parametrize("seed", range(4))
def test_a_job_whose_pumpd_never_comes_back_finishes_alone(job: Job, right: str, seed: int) -> None:
    process = job.start(*WORDS, "--sleep-ms=1", run=policy_of(seed))
    assert process.stdout is not None and process.stdout.readline().strip() == "running"
    pumpds.wait_for(lambda: False, random.Random(seed).random() * 0.5)
    everything = pumpds.of_job(process.pid)
    for pid in (everything.supervisor, everything.warm, *everything.workers):
        if pid:
            pumpds.kill(pid)
    assert finish(process) == [right]


@pytest.mark.long
@pytest.mark.parametrize("seed", range(200))
def test_random_kills_over_and_over_never_hurt(job: Job, right: str, seed: int) -> None:
    random_ = random.Random(seed)
    process = job.start(*WORDS, f"--sleep-ms={random_.choice((0, 1, 3))}", run=policy_of(seed))
    assert process.stdout is not None and process.stdout.readline().strip() == "running"
    while process.poll() is None and random_.random() < 0.9:
        pumpds.wait_for(lambda: False, random_.random() * 0.4)
        there = pumpds.of_job(process.pid)
        victims = [there.supervisor, there.warm, *there.workers]
        victim = random_.choice(victims)
        if victim:
            pumpds.kill(victim)
    assert finish(process) == [right]


def test_nothing_of_pumpd_outlives_the_job(job: Job) -> None:
    process = job.start("--steps=50")
    socket = None
    if pumpds.wait_for(lambda: bool(pumpds.of_job(process.pid).supervisor), 5):
        socket = pumpds.socket_of(process.pid)
    assert len(finish(process)) == 2
    assert pumpds.wait_for(lambda: pumpds.of_job(process.pid) == pumpds.Pumpd(), 10)
    if socket:
        assert not socket.exists() and not socket.parent.exists()


@pytest.mark.parametrize("policy", ["window", "planned"])
def test_a_stopped_worker_does_not_stop_the_job(job: Job, right: str, policy: str) -> None:
    process = job.start(*WORDS, "--sleep-ms=1", run=("--policy", policy))
    assert process.stdout is not None and process.stdout.readline().strip() == "running"
    assert pumpds.wait_for(lambda: bool(pumpds.of_job(process.pid).workers))
    worker = pumpds.of_job(process.pid).workers[0]
    os.kill(worker, signal.SIGSTOP)
    try:
        assert finish(process) == [right]
    finally:
        os.kill(worker, signal.SIGCONT)


def test_the_last_line_waits_for_operations_that_a_late_worker_has_not_read(
    job: Job, tmp_path: Path
) -> None:
    figures = tmp_path / "summary.json"
    process = job.start("--steps=100", "--sleep-ms=3", env={"PUMP_SUMMARY": str(figures)})
    assert process.stdout is not None and process.stdout.readline().strip() == "running"
    assert pumpds.wait_for(lambda: bool(pumpds.of_job(process.pid).workers))
    worker = pumpds.of_job(process.pid).workers[0]
    with pumpds.mapping_of(worker) as mapping:
        assert pumpds.wait_for(lambda: mapping.shm.shim_counters.operations > 10)
        os.kill(worker, signal.SIGSTOP)
        try:
            state = mapping.shm.header
            assert pumpds.wait_for(lambda: state.client_state == lib.PUMP_CLIENT_EXITING)
        finally:
            os.kill(worker, signal.SIGCONT)
    finish(process)
    told = json.loads(figures.read_text())
    assert told["worker"]["operations"] == told["shim"]["operations"] > 100
