"""What the service's loop has of the world: a clock, a selector and signals.

Nothing else in the service reads a clock, waits or is interrupted, so a simulation that gives
it other surroundings runs the very same code (tests/service).
"""

from __future__ import annotations

import os
import resource
import selectors
import signal
import time
from collections.abc import Callable
from typing import Protocol


class Surroundings(Protocol):
    """selector: what the loop waits at, and the only place where it waits. descriptors: as
    many as the process may have."""

    @property
    def selector(self) -> selectors.BaseSelector: ...

    @property
    def descriptors(self) -> int: ...

    def now(self) -> float:
        """Seconds on a clock that never goes back."""

    def watch_signals(self, told: Callable[[int], None]) -> None:
        """Call `told` with the number of each signal, out of the wait at the selector."""

    def close(self) -> None:
        """Watch signals no more, and close the selector."""


class Process:
    """The surroundings of this process."""

    now = staticmethod(time.monotonic)

    def __init__(self) -> None:
        self.selector: selectors.BaseSelector = selectors.DefaultSelector()
        self.descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def watch_signals(self, told: Callable[[int], None]) -> None:
        """Watch SIGTERM, SIGINT and SIGHUP."""

        def woken(_events: int) -> None:
            for number in os.read(self._wake_read, 64):
                told(number)

        # Python runs a handler between two bytecodes and then goes on waiting; the byte
        # that it writes to the pipe is what ends the wait.
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: None)
        self.selector.register(self._wake_read, selectors.EVENT_READ, woken)

    def close(self) -> None:
        """Close what it has opened."""
        signal.set_wakeup_fd(-1)
        self.selector.close()
        for fd in (self._wake_read, self._wake_write):
            os.close(fd)
