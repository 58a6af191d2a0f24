"""Sends a question over a socket of packets, and waits for its answer within a deadline.

pump/control.py asks a job's pumpd in this way, and pump/service.py the system service. A deadline
is a time of time.monotonic() and holds for all steps together, so that a peer that answers slowly
cannot delay the caller beyond it.
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
    """Keeps a connection to the socket at `path` between questions, until the end of a with-block.
    Only one thread at a time may use it."""

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
        """Closes the connection, if there is one."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def connect(path: str, deadline: float) -> socket.socket:
    """Returns a connection to the socket at `path`, if its server is trusted (server.py). Raises
    OSError (UntrustedServerError if it is not trusted), TimeoutError."""
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
    """Sends one datagram and returns the answer, cut off after most_bytes + 1.

    Raises ClosedError, OSError, TimeoutError. The caller then closes the connection, because a late
    answer would be taken for the answer to the next question.
    """
    _bound(connection, deadline)
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        connection.send(data, socket.MSG_NOSIGNAL)
    for _ in range(2):  # a peer may have sent its reason before it closed
        _bound(connection, deadline)
        with contextlib.suppress(ConnectionResetError):
            answer = connection.recv(most_bytes + 1)
            if answer:
                return answer
    raise ClosedError


def _bound(connection: socket.socket, deadline: float) -> None:
    """Limits the next step to the deadline. Raises TimeoutError if that has passed."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("timed out")
    connection.settimeout(left)
