"""The protocol between systemd and a service: readiness, watchdog, passed sockets.

Implements sd_notify(3) and sd_listen_fds(3): both protocols are stable and take a few lines each.
Without systemd the calls do nothing.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time

FIRST_FD = 3
SOCKETS_MOST = 16


class Manager:
    """The service manager of this process, if there is one.

    Removes systemd's variables from the environment, so that no child process uses them.
    """

    def __init__(self) -> None:
        self._path = os.environ.pop("NOTIFY_SOCKET", "")
        microseconds = _whole(os.environ.pop("WATCHDOG_USEC", ""))
        mine = os.environ.pop("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        self._watchdog_s = microseconds / 1e6 if mine else 0.0
        """Longest time between two WATCHDOG=1 messages; 0: there is no watchdog."""
        self.due = 0.0 if self._watchdog_s else None
        """When the next one is sent."""

    def on_time(self, now: float) -> None:
        """Sends WATCHDOG=1 when it is time."""
        if self.due is not None and now >= self.due:
            self.due = now + self._watchdog_s / 3
            self.notify("WATCHDOG=1")

    def notify(self, *lines: str) -> None:
        """Sends lines such as READY=1. Never raises, never waits."""
        if not self._path.startswith(("/", "@")):
            return
        address = "\0" + self._path[1:] if self._path[0] == "@" else self._path
        with (
            contextlib.suppress(OSError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender,
        ):
            sender.setblocking(False)
            sender.sendto("\n".join(lines).encode(), address)

    def reloading(self) -> None:
        """Reports the start of a reload, which ends when READY=1 is sent."""
        self.notify("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")


def sockets_handed_over() -> list[socket.socket]:
    """Returns the listening sockets that systemd passes to this process, in its order.

    Raises OSError for a descriptor that is not a socket.
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
