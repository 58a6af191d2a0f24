"""What systemd and a service say to each other: readiness, watchdog, sockets handed over.

By sd_notify(3) and sd_listen_fds(3), whose protocols are stable and a few lines each.
Without systemd all of it does nothing.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time

FIRST_FD = 3
SOCKETS_MOST = 16


class Manager:
    """The service manager above this process, if there is one.

    Takes what it left in the environment out of it, so that no child believes it is meant.
    """

    def __init__(self) -> None:
        self._path = os.environ.pop("NOTIFY_SOCKET", "")
        microseconds = _whole(os.environ.pop("WATCHDOG_USEC", ""))
        mine = os.environ.pop("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        self.watchdog_s = microseconds / 1e6 if microseconds and mine else 0.0
        """Longest time between two signs of life; 0: they are not waited for."""

    def tell(self, *lines: str) -> None:
        """Say lines such as READY=1. Never fails, never waits."""
        if not self._path.startswith(("/", "@")):
            return
        address = "\0" + self._path[1:] if self._path[0] == "@" else self._path
        with (
            contextlib.suppress(OSError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as voice,
        ):
            voice.setblocking(False)
            voice.sendto("\n".join(lines).encode(), address)

    def reloading(self) -> None:
        """Say that a reload has begun; `tell("READY=1")` ends it."""
        self.tell("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")


def sockets_handed_over() -> list[socket.socket]:
    """Return the sockets that systemd listens on for us, in its order; often none.

    Raises OSError for a descriptor that is no socket.
    """
    pid = os.environ.pop("LISTEN_PID", "")
    count = _whole(os.environ.pop("LISTEN_FDS", ""))
    os.environ.pop("LISTEN_FDNAMES", None)
    if pid != str(os.getpid()):
        return []
    found = []
    for fd in range(FIRST_FD, FIRST_FD + min(count, SOCKETS_MOST)):
        os.set_inheritable(fd, False)
        found.append(socket.socket(fileno=fd))
    return found


def _whole(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else 0
