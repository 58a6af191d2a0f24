"""Jobs take turns if they want much more than a GPU has. When anything ends, others continue."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from contextlib import AbstractContextManager
from pathlib import Path

import pumpds
from job import expected
from jobs import BIN, Job
from service_client import Service
from service_jobs import at_work

from pump.control import Control
from pump.policy.turns import TURN_S
from pump.wire.control import HOLD_MS_MOST
from pumpd.lease.lease_client import SILENT_S
from pumpd.lease.rounds import HOLD_ROUND_S

SHAPE = {"buffers": 24, "mib": 4, "steps": 3000, "seed": 1}
WORDS = [f"--{name}={value}" for name, value in SHAPE.items()]
WORDS += ["--sync-every=50"]
MEMORY_MIB = 104
"""Memory of the GPU; each job uses 0.92 times this."""
SOON_S = HOLD_MS_MOST / 1000 + 4
"""Time in which a released job continues."""


def taking_turns(
    two_jobs: list[Job], folder: Path
) -> AbstractContextManager[tuple[Service, list[subprocess.Popen[str]]]]:
    """Starts a service and both jobs on one GPU."""
    return at_work(two_jobs, folder, WORDS, MEMORY_MIB, [()] * 2)


def waiting(service: Service, started: list[subprocess.Popen[str]]) -> list[int]:
    """Returns the numbers of the jobs that wait for their turn."""
    with service.ask() as client:
        there = {job.job_pid: job for job in client.jobs()}
    return [
        number
        for number, process in enumerate(started)
        if process.pid in there and any(gpu.waits for gpu in there[process.pid].gpus)
    ]


def one_waits(service: Service, started: list[subprocess.Popen[str]]) -> int:
    found: list[list[int]] = []

    def one() -> bool:
        found.append(waiting(service, started))
        return len(found[-1]) == 1

    assert pumpds.wait_for(one, 30)
    return found[-1][0]


def test_each_has_its_turn_and_both_compute_what_one_computes(
    two_jobs: list[Job], tmp_path: Path
) -> None:
    with taking_turns(two_jobs, tmp_path) as (service, started):
        first = one_waits(service, started)
        assert pumpds.wait_for(lambda: held(started[first].pid) > 0, 2 * TURN_S[1])
        assert pumpds.wait_for(lambda: waiting(service, started) == [1 - first], 2 * TURN_S[1])
        # The job gets the message later, and waits only after the operations it has issued.
        assert pumpds.wait_for(lambda: held(started[1 - first].pid) > 0, 20)
        service.kill()
        for process in started:
            stdout, stderr = process.communicate(timeout=120)
            assert stdout.split() == ["running", expected(**SHAPE)], stderr
    for job in two_jobs:
        said = job.log.read_text()
        assert "lost the service" in said
        assert re.search(r"waited \d+(\.\d+)? (ms|s) for its turns on the GPU", said)


def test_a_job_whose_service_dies_waits_no_longer(two_jobs: list[Job], tmp_path: Path) -> None:
    with taking_turns(two_jobs, tmp_path) as (service, started):
        one_waits(service, started)
        assert pumpds.wait_for(lambda: are_listed([one.pid for one in started]), 20)

        def any_waits() -> bool:
            return any(held(one.pid) for one in started)

        service.process.send_signal(signal.SIGSTOP)
        assert pumpds.wait_for(lambda: not any_waits(), HOLD_ROUND_S + SILENT_S + 4)
        service.process.send_signal(signal.SIGCONT)
        assert pumpds.wait_for(any_waits, 20)
        service.kill()
        assert pumpds.wait_for(lambda: not any_waits(), SOON_S)


def are_listed(pids: list[int]) -> bool:
    """Returns whether `pump jobs` lists as waiting exactly those jobs that wait, at least one. A
    turn that changes in between makes this false."""
    listed = subprocess.run([BIN / "pump", "jobs"], capture_output=True, text=True, check=True)
    lines = [line for line in listed.stdout.splitlines() if "waiting for its turn" in line]
    return [int(line.split()[0]) for line in lines] == [pid for pid in pids if held(pid)] != []


def held(pid: int) -> int:
    """Returns the number of the job's waiting threads."""
    with Control.of_job(str(pumpds.socket_of(pid))) as control:
        return sum(device.held_threads for one in control.state() for device in one.devices)


def test_a_job_that_waits_ends_by_ctrl_c(two_jobs: list[Job], tmp_path: Path) -> None:
    with taking_turns(two_jobs, tmp_path) as (service, started):
        waits = one_waits(service, started)
        assert pumpds.wait_for(lambda: held(started[waits].pid) > 0, 20)
        os.kill(started[waits].pid, signal.SIGINT)
        started[waits].communicate(timeout=60)  # tests/c/progress checks that it ends at once
        assert started[waits].returncode != 0


def test_a_job_whose_pumpd_dies_waits_no_longer(two_jobs: list[Job], tmp_path: Path) -> None:
    with taking_turns(two_jobs, tmp_path) as (service, started):
        waits = one_waits(service, started)
        process = started[waits]
        assert pumpds.wait_for(lambda: held(process.pid) > 0, 20)
        os.kill(pumpds.of_job(process.pid).supervisor, signal.SIGKILL)
        other = started[1 - waits]
        os.kill(other.pid, signal.SIGKILL)
        stdout, stderr = process.communicate(timeout=120)
        assert stdout.split() == ["running", expected(**SHAPE)], stderr
