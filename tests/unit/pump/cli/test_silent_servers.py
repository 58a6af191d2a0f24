"""Verbs that ask the service or a job's pumpd, while that server is killed, stopped or slow: they
end within the bound, and name the missing answer in one line."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pump import control as control_client
from pump import service as service_client
from pump.base import paths
from pump.cli.main import main
from pump.control import Control, ControlError
from pump.wire import control
from pump.wire import service as wire

TIMEOUT_S = 0.25
"""Replaces the seconds that a call waits for one answer."""
QUESTIONS = 2
"""`pump top --once` polls twice. All peers are polled at once."""
BUSY_S = 2.0
"""Extra seconds for a busy machine."""
HOWS = ("killed", "stopped", "slow")
VERBS = (["jobs"], ["jobs", "--json"], ["top", "--once"], ["service", "metrics"])
WELCOMES = {"service": wire.pack_welcome(wire.OK, wire.VERSION), "pumpd": control.pack_welcome(0)}


@contextlib.contextmanager
def served(path: Path, how: str, welcome: bytes) -> Iterator[None]:
    """Serves a socket. Its process is killed; stopped, so that only the kernel accepts connections;
    or slow: it sends a welcome, but no answer in time."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(str(path))
    taken: list[socket.socket] = []

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                taken.append(listener.accept()[0])
                time.sleep(TIMEOUT_S / 2)
                taken[-1].send(welcome)

    if how != "killed":
        listener.listen(8)
    if how == "slow":
        threading.Thread(target=serve, daemon=True).start()
    if how == "killed":
        listener.close()
    yield
    with contextlib.suppress(OSError):
        listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    for one in taken:
        one.close()


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(service_client, "TIMEOUT_S", TIMEOUT_S)
    monkeypatch.setattr(control_client, "TIMEOUT_S", TIMEOUT_S)
    with tempfile.TemporaryDirectory(prefix="pump-silent-", dir="/tmp") as made:  # a short path
        monkeypatch.setenv("XDG_RUNTIME_DIR", made)
        monkeypatch.setenv("PUMP_SERVICE", f"{made}/service")
        paths.make_job_directory(paths.runtime_base(), os.getpid())
        yield Path(made)


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("victim", ["service", "pumpd"])
def test_no_verb_waits_for_ever_and_one_line_says_who_does_not_answer(
    session: Path,
    victim: str,
    how: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (folder,) = (session / "pump").iterdir()
    path = {"service": session / "service", "pumpd": folder / "socket"}[victim]
    with served(path, how, WELCOMES[victim]):
        for words in VERBS:
            monkeypatch.setattr(sys, "argv", ["pump", *words])
            begin = time.monotonic()
            assert main() == 0
            assert time.monotonic() - begin < QUESTIONS * TIMEOUT_S + BUSY_S, words
            out, err = capsys.readouterr()
            if victim == "pumpd" and words == ["service", "metrics"]:
                assert re.search(r"^pump_job_up{.*} 0\.0$", out, re.M), out
                continue
            said = (out + err).count(f"{victim} did not answer within")
            assert said == (how != "killed"), out + err


@pytest.mark.parametrize("how", HOWS)
def test_a_program_that_steers_its_job_learns_that_pumpd_does_not_answer(
    session: Path, how: str
) -> None:
    with served(session / "job", how, WELCOMES["pumpd"]), Control(str(session / "job")) as there:
        for _ in range(2):
            begin = time.monotonic()
            with pytest.raises(ControlError) as refused:
                there.set(policy="window")
            assert time.monotonic() - begin < TIMEOUT_S + BUSY_S
            assert ("did not answer within" in str(refused.value)) == (how != "killed")
