"""SIGSTOP and SIGCONT at random times: the job is right, and a stopped pumpd does not block it."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from faults import BIN, BOUND_S, eventually

from pumpd.common.link import answers

JOB_MS = 250
VICTIMS = ("pumpd", "pumpd-warm", "pumpd-worker", "pumpd-serve", "brief")


class Scene:
    """A service, a pumpd with a lease, and jobs that this pumpd serves one after another."""

    def __init__(self, folder: Path, tools: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        self.program = [str(tools / "brief"), "short"]
        self.summary = folder / "summary"
        self.log = folder / "pumpd.log"
        self.environment = environment | {
            "BRIEF_MS": str(JOB_MS),
            "PUMP_SOCKET": str(folder / "job"),
            "PUMP_SUMMARY": str(self.summary),
        }
        pumpd = str(BIN / "pumpd")
        with (folder / "errors").open("w") as errors:
            self.service = subprocess.Popen(
                [pumpd, "serve", "--socket", str(folder / "service"), "--beat", "0.3"],
                stderr=errors,
            )
            eventually(lambda: answers(str(folder / "service")), "the service to listen")
            words = ["--job-pid", str(os.getpid()), "--service", str(folder / "service")]
            log = ["--log-level", "info", "--log-file", str(self.log)]
            self.pumpd = subprocess.Popen(
                [pumpd, "job", "--socket", str(folder / "job"), *words, *log], stderr=errors
            )
        self.job: subprocess.Popen[str] | None = None
        self.until_served()

    def start(self) -> subprocess.Popen[str]:
        self.job = subprocess.Popen(
            self.program,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        return self.job

    def finish(self) -> None:
        """Checks that the job ends in time with the right result."""
        assert self.job is not None
        out, err = self.job.communicate(timeout=BOUND_S)
        assert (self.job.returncode, out) == (0, "right\n"), err
        assert len(err.splitlines()) <= 2, f"more than a line beside the last: {err}"

    def until_served(self) -> None:
        """Checks that pump recovers: one of the next few jobs gets a worker."""

        def served() -> bool:
            self.start()
            self.finish()
            return json.loads(self.summary.read_text())["shim"]["attaches"] > 0

        eventually(served, "a job that is served")

    def processes(self, name: str) -> list[psutil.Process]:
        if name == "brief":
            return [psutil.Process(self.job.pid)] if self.job and self.job.poll() is None else []
        if name == "pumpd-serve":
            return [psutil.Process(self.service.pid)]
        supervisor = psutil.Process(self.pumpd.pid)
        if name == "pumpd":
            return [supervisor]
        found = []
        for one in supervisor.children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                if one.name() == name:
                    found.append(one)
        return found

    def signal(self, name: str, number: int) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):  # it may have exited
            for one in self.processes(name):
                one.send_signal(number)

    def go_on(self) -> None:
        for name in VICTIMS:
            self.signal(name, signal.SIGCONT)

    def close(self) -> None:
        self.go_on()
        for one in (self.job, self.pumpd, self.service):
            if one is not None:
                one.kill()
                one.communicate()


@pytest.fixture(scope="module")
def scene(
    tools: Path, job_environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scene]:
    made = Scene(tmp_path_factory.mktemp("stopped"), tools, job_environment)
    yield made
    made.close()


def stop_and_go(scene: Scene, source: random.Random) -> None:
    """Runs one job. Its processes stop at random, and continue at random or at its end."""
    moments: list[tuple[float, str, int]] = []
    for _ in range(source.randrange(1, 5)):
        name, at = source.choice(VICTIMS), source.random() * JOB_MS / 1e3
        moments.append((at, name, signal.SIGSTOP))
        if name == "brief" or source.random() < 0.6:
            moments.append((at + source.random() * 0.2, name, signal.SIGCONT))
    scene.start()
    begin = time.monotonic()
    for at, name, number in sorted(moments):
        time.sleep(max(0.0, begin + at - time.monotonic()))
        scene.signal(name, number)
    scene.signal("brief", signal.SIGCONT)  # another stop may have followed its SIGCONT
    scene.finish()
    scene.go_on()


def no_worker_is_left(scene: Scene) -> None:
    eventually(lambda: not scene.processes("pumpd-worker"), "no worker of an ended job")
    assert scene.pumpd.poll() is None and scene.service.poll() is None


@pytest.mark.parametrize("seed", range(6))
def test_stops_at_random_moments_leave_the_job_right(scene: Scene, seed: int) -> None:
    print("seed", seed)
    stop_and_go(scene, random.Random(seed))
    scene.until_served()
    no_worker_is_left(scene)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 300))
def test_two_hundred_stops_at_random_moments_leave_the_job_right(scene: Scene, seed: int) -> None:
    test_stops_at_random_moments_leave_the_job_right(scene, seed)


def test_a_job_runs_from_start_to_end_while_all_of_pump_is_stopped(scene: Scene) -> None:
    for name in VICTIMS:
        scene.signal(name, signal.SIGSTOP)
    scene.start()
    scene.finish()
    assert json.loads(scene.summary.read_text())["shim"]["attaches"] == 0
    scene.go_on()
    scene.until_served()
    no_worker_is_left(scene)
