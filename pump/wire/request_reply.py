"""One question and its answer over a socket of packets, within a deadline.

Used to ask a job's pumpd (pump/control.py) and the system service (pump/service.py). A
deadline is a moment of time.monotonic() and holds for all steps together, so that a peer that
answers slowly cannot delay the caller beyond it.
"""

from __future__ import annotations

import contextlib
import socket
import time
from types import TracebackType
from typing import Self

from pump.wire import server

RETRY_S = 0.02


class ClosedError(Exception):
    """The peer has closed the connection."""


class Client:
    """Keeps a connection to the socket at `path` between questions, until the end of a
    with-block. One thread at a time."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._socket: socket.socket | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def connect(path: str, deadline: float) -> socket.socket:
    """Return a connection to the socket at `path`, if its server is trusted (server.py). Raises
    OSError (UntrustedServerError where it is not trusted), TimeoutError."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        while True:
            _bound(connection, deadline)
            try:
                connection.connect(path)
                server.check(connection, path)
                return connection
            except BlockingIOError:  # its backlog is full
                time.sleep(RETRY_S)
    except BaseException:
        connection.close()
        raise


def exchange(connection: socket.socket, data: bytes, most_bytes: int, deadline: float) -> bytes:
    """Send one datagram and return the answer, cut off after most_bytes + 1.

    Raises ClosedError, OSError, TimeoutError. Close the connection after each of them: an
    answer that arrives late would be taken for that of the next question.
    """
    _bound(connection, deadline)
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        connection.send(data, socket.MSG_NOSIGNAL)
    for _ in range(2):  # a peer that has closed may have sent its reason before the error
        _bound(connection, deadline)
        with contextlib.suppress(ConnectionResetError):
            answer = connection.recv(most_bytes + 1)
            if answer:
                return answer
    raise ClosedError


def _bound(connection: socket.socket, deadline: float) -> None:
    """Let the next step end at the deadline. Raises TimeoutError when that is past."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("timed out")
    connection.settimeout(left)
