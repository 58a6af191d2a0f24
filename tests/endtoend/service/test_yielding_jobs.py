"""Launches of a job that yields wait in their stream; they continue, whichever process ends."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pumpds
import pytest
from job import expected
from jobs import Job
from service_client import Service
from service_jobs import at_work

from pump.control import ClientState, Control, ControlError

SHAPE = {"buffers": 24, "mib": 4, "steps": 600, "seed": 1}
WORDS = [f"--{name}={value}" for name, value in SHAPE.items()]
WORDS += ["--sync-every=50"]
MEMORY_MIB = 128
"""Memory of the GPU; each job uses 0.75 times this, so the jobs take no turns."""
FIRST, OTHER = 0, 1


@contextmanager
def beside_a_first_one(
    two_jobs: list[Job], folder: Path
) -> Iterator[tuple[Service, list[subprocess.Popen[str]]]]:
    """Starts a service and both jobs on one GPU; the second job has gates."""
    priorities = [("--priority", "10"), ("--priority", "-10")]
    with at_work(two_jobs, folder, WORDS, MEMORY_MIB, priorities) as (service, started):
        assert pumpds.wait_for(lambda: gates(started[OTHER]) > 10, 30)
        yield service, started


def state(process: subprocess.Popen[str]) -> list[ClientState]:
    try:
        with Control.of_job(str(pumpds.socket_of(process.pid))) as control:
            return list(control.state())
    except (ControlError, LookupError, OSError):
        return []


def gates(process: subprocess.Popen[str], name: str = "gates") -> int:
    return sum(client.shim.get(name, 0) for client in state(process))


def ends_right(process: subprocess.Popen[str]) -> None:
    stdout, stderr = process.communicate(timeout=120)
    assert stdout.split() == ["running", expected(**SHAPE)], stderr


def test_both_compute_what_one_computes_and_the_first_one_never_yields(
    two_jobs: list[Job], tmp_path: Path
) -> None:
    with beside_a_first_one(two_jobs, tmp_path) as (_, started):
        assert gates(started[FIRST]) == 0
        ends_right(started[FIRST])
        ends_right(started[OTHER])


def test_a_job_yields_no_longer_once_the_first_one_has_ended(
    two_jobs: list[Job], tmp_path: Path
) -> None:
    with beside_a_first_one(two_jobs, tmp_path) as (_, started):
        started[FIRST].kill()

        def makes_no_more() -> bool:
            before = gates(started[OTHER])
            time.sleep(0.3)
            return gates(started[OTHER]) == before

        assert pumpds.wait_for(makes_no_more, 20)
        ends_right(started[OTHER])


def workers(process: subprocess.Popen[str], _service: Service) -> list[int]:
    return pumpds.of_job(process.pid).workers


def supervisor(process: subprocess.Popen[str], _service: Service) -> list[int]:
    return [pumpds.of_job(process.pid).supervisor]


def service_itself(_process: subprocess.Popen[str], service: Service) -> list[int]:
    return [service.process.pid]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
@pytest.mark.parametrize("which", [workers, supervisor, service_itself])
def test_whatever_ends_or_stops_the_job_goes_on(
    which: Callable[[subprocess.Popen[str], Service], list[int]],
    how: signal.Signals,
    two_jobs: list[Job],
    tmp_path: Path,
) -> None:
    with beside_a_first_one(two_jobs, tmp_path) as (service, started):
        pids = which(started[OTHER], service)
        assert pids
        for pid in pids:
            os.kill(pid, how)
        try:
            ends_right(started[OTHER])
        finally:
            for pid in pids:
                if how == signal.SIGSTOP:
                    os.kill(pid, signal.SIGKILL)


def test_a_job_with_gates_ends_by_ctrl_c(two_jobs: list[Job], tmp_path: Path) -> None:
    with beside_a_first_one(two_jobs, tmp_path) as (_, started):
        os.kill(started[OTHER].pid, signal.SIGINT)
        started[OTHER].communicate(timeout=30)
        assert started[OTHER].returncode != 0
