"""The service loop's clock, selector and signals.

The loop reads time, waits and takes signals only through these, so that a simulation with other
surroundings runs the same code (tests/service).
"""

from __future__ import annotations

import os
import selectors
import time
from collections.abc import Callable
from typing import Protocol

from pumpd.common.signals import Signals


class Surroundings(Protocol):
    """A clock, a selector and signals."""

    @property
    def selector(self) -> selectors.BaseSelector:
        """Returns the selector, the only object that the loop waits for."""

    @property
    def descriptors(self) -> int:
        """Returns how many descriptors the process may have."""

    def now(self) -> float:
        """Returns seconds of a clock that never goes backward."""

    def watch_signals(self, notify: Callable[[int], None]) -> None:
        """Starts to call `notify` with the number of each signal, from the selector's loop."""

    def close(self) -> None:
        """Stops watching signals, and closes the selector."""


class Process:
    """The surroundings of this process."""

    now = staticmethod(time.monotonic)

    def __init__(self) -> None:
        self.selector: selectors.BaseSelector = selectors.DefaultSelector()
        self.descriptors = os.sysconf("SC_OPEN_MAX")  # 256 if the limit cannot be read
        self._signals = Signals()

    def watch_signals(self, notify: Callable[[int], None]) -> None:
        """Watches SIGTERM, SIGINT and SIGHUP."""

        def woken(_events: int) -> None:
            for number in self._signals.read():
                notify(number)

        self._signals.watch()
        self.selector.register(self._signals.fd, selectors.EVENT_READ, woken)

    def close(self) -> None:
        """Closes the selector and the signals' pipe."""
        self.selector.close()
        self._signals.close()
