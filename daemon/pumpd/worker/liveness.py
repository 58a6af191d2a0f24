"""Detects the end of a worker's client."""

from __future__ import annotations

import logging
import os
import select
import socket
from typing import Final

LIVENESS_NS: Final = 100_000_000
"""Time between two checks of the client's socket and process."""

log = logging.getLogger("pumpd.worker")


class Liveness:
    """Detects the client's end: the socket has closed, or the process has ended."""

    def __init__(self, connection: socket.socket, client_pid: int) -> None:
        self._poll = select.poll()
        self._poll.register(connection, select.POLLIN | select.POLLHUP)
        self._connection = connection
        self._pidfd = -1
        self._next_check_ns = 0
        if client_pid > 0:
            try:
                # A forked child of the client may keep the socket open, so watching
                # only the socket would not suffice.
                self._pidfd = os.pidfd_open(client_pid)
                self._poll.register(self._pidfd, select.POLLIN)
            except OSError:
                log.info("no pidfd for client %d: its socket shows its end", client_pid)

    def gone(self, now_ns: int) -> bool:
        """Returns whether the client has left; checks at most once per LIVENESS_NS."""
        if now_ns < self._next_check_ns:
            return False
        self._next_check_ns = now_ns + LIVENESS_NS
        for fd, _ in self._poll.poll(0):
            if fd == self._pidfd:
                return True
            try:
                if not self._connection.recv(4096, socket.MSG_DONTWAIT):
                    return True
            except BlockingIOError:
                continue
            except OSError:
                return True
        return False
