"""Facts about other processes: running, ended, or with an ended first thread."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pump.base import processes
from pumpd.common.jobwatch import JobWatch

LEAVE = """
import ctypes, sys, threading
threading.Thread(target=sys.stdin.read).start()
ctypes.CDLL(None).pthread_exit(None)
"""


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def until_zombie(pid: int) -> None:
    while state_of(pid) != "Z":
        os.sched_yield()


@pytest.fixture
def headless() -> Iterator[subprocess.Popen[bytes]]:
    """Starts a process whose first thread has ended; it ends with its standard input."""
    with subprocess.Popen(
        [sys.executable, "-c", LEAVE, "", "a word"], stdin=subprocess.PIPE, env={"MINE": "a=b"}
    ) as process:
        until_zombie(process.pid)
        yield process


def test_a_process_lives_until_its_last_thread_ends(headless: subprocess.Popen[bytes]) -> None:
    watch = JobWatch(headless.pid)
    started = processes.start_time(headless.pid)
    assert started is not None
    assert started >= (processes.start_time(os.getpid()) or 0)
    assert not watch.ended()
    assert headless.stdin is not None
    headless.stdin.close()
    os.waitid(os.P_PID, headless.pid, os.WEXITED | os.WNOWAIT)
    assert state_of(headless.pid) == "Z"
    assert processes.start_time(headless.pid) is None
    assert watch.ended()


def test_command_and_environment_are_those_of_any_thread(
    headless: subprocess.Popen[bytes],
) -> None:
    assert processes.command_of(headless.pid)[1:] == [b"-c", LEAVE.encode(), b"", b"a word"]
    assert processes.environment_of(headless.pid)["MINE"] == "a=b"


def test_of_a_process_that_has_ended_there_is_nothing() -> None:
    process = subprocess.Popen(["true"])
    until_zombie(process.pid)
    assert processes.command_of(process.pid) == []
    assert processes.environment_of(process.pid) == {}
    process.wait()
    assert processes.start_time(process.pid) is None
    assert processes.command_of(process.pid) == []
