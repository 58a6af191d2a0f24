"""Requests over sockets: one deadline holds for all of an exchange."""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pump.base import paths
from pump.cli import jobs
from pump.service import ServiceClient, ServiceError
from pump.wire import control, request_reply
from pump.wire import service as wire

SOON_S = 0.4


@contextlib.contextmanager
def answering(path: Path, answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """Acts as the service; `answer` gets its only connection."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(path))
        listener.listen(1)

        def serve() -> None:
            with contextlib.suppress(OSError):
                connection, _ = listener.accept()
                with connection:
                    answer(connection)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield str(path)
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(5)


def welcome(connection: socket.socket) -> None:
    connection.recv(64)
    connection.send(wire.pack_welcome(wire.OK, 1))


def test_a_backlog_that_stays_full_ends_at_the_deadline(tmp_path: Path) -> None:
    path = str(tmp_path / "full")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(path)
        listener.listen(0)
        waiting = [request_reply.connect(path, time.monotonic() + 5)]
        with pytest.raises(TimeoutError):
            waiting.append(request_reply.connect(path, time.monotonic() + SOON_S))
            waiting.append(request_reply.connect(path, time.monotonic() + SOON_S))
        for one in waiting:
            one.close()


def test_a_deadline_that_is_past_ends_even_what_could_be_had() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        theirs.send(b"answer")
        assert request_reply.exchange(ours, b"?", 6, time.monotonic() + 5) == b"answer"
        theirs.send(b"answer")
        with pytest.raises(TimeoutError):
            request_reply.exchange(ours, b"?", 6, time.monotonic() - 1)


def test_a_service_that_always_has_more_jobs_does_not_hold_a_client_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = wire.JobState(1, 0, 1, 1, "", 0, "", 0, 0, 0, 0)

    def more_and_more(connection: socket.socket) -> None:
        welcome(connection)
        while connection.recv(wire.FRAME_BYTES):
            time.sleep(0.05)
            connection.send(wire.encode(wire.Jobs(1, (job,)), 1))

    monkeypatch.setattr("pump.service.TIMEOUT_S", SOON_S)
    with answering(tmp_path / "s", more_and_more) as path, ServiceClient(path) as service:
        with pytest.raises(ServiceError, match="did not answer within"):
            service.jobs()
        with pytest.raises(ServiceError, match="closed"):  # a late answer serves no later call
            service.state()


def test_jobs_are_asked_at_once_so_one_that_hangs_delays_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    all_asked = threading.Barrier(3)

    def answer_when_all_are_asked(connection: socket.socket) -> None:
        connection.recv(64)
        connection.send(control.pack_welcome(control.OK))
        connection.recv(control.REQUEST_BYTES)
        all_asked.wait(10)
        connection.send(control.encode_reply([]))

    with contextlib.ExitStack() as stack:
        short = stack.enter_context(tempfile.TemporaryDirectory(dir="/tmp"))
        monkeypatch.setenv("XDG_RUNTIME_DIR", short)
        for _ in range(all_asked.parties):
            folder = Path(paths.make_job_directory(paths.runtime_base(), os.getpid()))
            path = folder / paths.SOCKET_NAME
            stack.enter_context(answering(path, answer_when_all_are_asked))
        there = list(jobs.found())
        assert len(there) == all_asked.parties
        assert jobs.of_each(there, jobs.state_of) == [([], "")] * all_asked.parties
