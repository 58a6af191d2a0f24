"""Signals that end a process of pumpd, or have it read its configuration, as bytes of a pipe.

For loops that wait at a selector: Python runs a handler between two bytecodes and then goes on
waiting; the byte that arrives in the pipe ends the wait (signal.set_wakeup_fd).
"""

from __future__ import annotations

import os
import signal

WATCHED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Signals:
    """WATCHED signals. `fd` can be read once one has come."""

    def __init__(self) -> None:
        self.fd, self._write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def watch(self) -> None:
        """From here on signals go to the pipe."""
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in WATCHED:
            signal.signal(number, lambda *_: None)

    def read(self) -> bytes:
        """The numbers of signals that have come, 64 at most. Raises BlockingIOError for none."""
        return os.read(self.fd, 64)

    def reset(self) -> None:
        """Leave signals to their defaults, in a forked child: its parent reads the pipe."""
        signal.set_wakeup_fd(-1)
        for number in WATCHED:
            signal.signal(number, signal.SIG_DFL)

    def close(self) -> None:
        """Close the pipe; signals are ignored from here on."""
        signal.set_wakeup_fd(-1)
        os.close(self.fd)
        os.close(self._write)
