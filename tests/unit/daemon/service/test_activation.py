"""`pumpd jobs` and the processes that it serves, while one is killed, stopped or slow."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pumpds
import pytest

from pumpd.common import link
from pumpd.service.activation import ASKED_S, ASKING_MOST

ASKER = """
import socket, sys
for _ in sys.stdin:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as one:
        one.connect(sys.argv[1])
        one.send(b"PUMP_NAME=asker")
        print(one.recv(4096).decode(), flush=True)
"""
SOON_S = ASKED_S / 2
"""The time limit, also on a busy machine, for an answer that waits for no process."""


class Asker:
    """A process that asks for a pumpd, like the shim of a process that a rule serves."""

    def __init__(self, path: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", ASKER, path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self) -> tuple[Path, float]:
        """Returns the socket of its pumpd, and the seconds until the answer."""
        assert self.process.stdin is not None and self.process.stdout is not None
        begin = time.monotonic()
        print(file=self.process.stdin, flush=True)
        return Path(self.process.stdout.readline().strip()), time.monotonic() - begin

    def pumpd(self) -> int:
        """Returns the process id of its pumpd, once there is one."""
        assert pumpds.wait_for(lambda: pumpds.of_job(self.process.pid).supervisor != 0)
        return pumpds.of_job(self.process.pid).supervisor

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def activator(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, int]]:
    """Yields the socket and the process id of `pumpd jobs`; its folder must be empty at the end."""
    with tempfile.TemporaryDirectory(prefix="pump-jobs-", dir="/tmp") as made:  # a short path
        monkeypatch.setenv("XDG_RUNTIME_DIR", made)
        monkeypatch.setenv("PUMP_SERVICE", "none")
        path = Path(made) / "pump" / "jobs"
        process = subprocess.Popen([sys.executable, "-m", "pumpd", "jobs"], stderr=subprocess.PIPE)
        assert pumpds.wait_for(lambda: link.answers(str(path)))
        yield path, process.pid
        process.terminate()
        process.communicate(timeout=20)
        assert pumpds.wait_for(lambda: not list(path.parent.iterdir()), 20)


def test_those_that_connect_and_say_nothing_delay_no_other(activator: tuple[Path, int]) -> None:
    path, _ = activator
    with contextlib.ExitStack() as stack:
        mute = [
            stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
            for _ in range(ASKING_MOST + 20)
        ]
        for one in mute:
            one.settimeout(20)
            while one.connect_ex(str(path)):
                time.sleep(0.01)
        asker = stack.enter_context(contextlib.closing(Asker(path)))
        answer, took_s = asker.ask()
        assert answer.is_socket() and took_s < SOON_S
        for one in mute:
            assert one.recv(1) == b"", "each is disconnected in time"


def test_a_pumpd_that_is_stopped_stays_and_one_that_is_killed_is_replaced(
    activator: tuple[Path, int],
) -> None:
    path, _ = activator
    with contextlib.closing(Asker(path)) as asker:
        first, _ = asker.ask()
        pumpd = asker.pumpd()
        os.kill(pumpd, signal.SIGSTOP)
        again, took_s = asker.ask()
        assert again == first and took_s < SOON_S
        with contextlib.closing(Asker(path)) as other:
            answer, took_s = other.ask()
            assert answer not in (first, Path()) and took_s < SOON_S
        pumpds.kill(pumpd)
        assert pumpds.wait_for(lambda: asker.ask()[0] != first)
        assert asker.pumpd() != pumpd


def test_one_that_is_slow_or_stopped_answers_when_it_runs(activator: tuple[Path, int]) -> None:
    path, pid = activator
    os.kill(pid, signal.SIGSTOP)
    goes_on = threading.Timer(0.3, os.kill, (pid, signal.SIGCONT))
    goes_on.start()
    with contextlib.closing(Asker(path)) as asker:
        answer, took_s = asker.ask()
    goes_on.join()
    assert answer.is_socket() or answer.name == "socket"
    assert took_s < 0.3 + SOON_S
