"""Turns the signals that end or reconfigure a process of pumpd into bytes of a pipe.

Python runs a signal handler between two bytecodes and then resumes waiting, so a handler does not
end a selector's wait. A byte in the pipe does (signal.set_wakeup_fd).
"""

from __future__ import annotations

import os
import signal

WATCHED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Signals:
    """Watches the WATCHED signals. `fd` is readable after a signal has arrived."""

    def __init__(self) -> None:
        self.fd, self._write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def watch(self) -> None:
        """Starts to write signals to the pipe."""
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in WATCHED:
            signal.signal(number, lambda *_: None)

    def read(self) -> bytes:
        """Returns up to 64 numbers of arrived signals. Raises BlockingIOError if there are none."""
        return os.read(self.fd, 64)

    def reset(self) -> None:
        """Restores default signal actions in a forked child, because its parent reads the pipe."""
        signal.set_wakeup_fd(-1)
        for number in WATCHED:
            signal.signal(number, signal.SIG_DFL)

    def close(self) -> None:
        """Closes the pipe; later signals have no effect."""
        signal.set_wakeup_fd(-1)
        os.close(self.fd)
        os.close(self._write)
