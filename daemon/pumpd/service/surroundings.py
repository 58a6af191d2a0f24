"""The service loop's clock, selector and signals.

Nothing else in the service reads a clock, waits or takes signals, so that a simulation with other
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
        """What the loop waits at, and the only place where it waits."""

    @property
    def descriptors(self) -> int:
        """How many descriptors the process may have."""

    def now(self) -> float:
        """Seconds on a clock that never goes back."""

    def watch_signals(self, notify: Callable[[int], None]) -> None:
        """Call `notify` with the number of each signal, from the selector's loop."""

    def close(self) -> None:
        """Stop watching signals, and close the selector."""


class Process:
    """The surroundings of this process."""

    now = staticmethod(time.monotonic)

    def __init__(self) -> None:
        self.selector: selectors.BaseSelector = selectors.DefaultSelector()
        self.descriptors = os.sysconf("SC_OPEN_MAX")  # 256 where the limit cannot be read
        self._signals = Signals()

    def watch_signals(self, notify: Callable[[int], None]) -> None:
        """Watch SIGTERM, SIGINT and SIGHUP."""

        def woken(_events: int) -> None:
            for number in self._signals.read():
                notify(number)

        self._signals.watch()
        self.selector.register(self._signals.fd, selectors.EVENT_READ, woken)

    def close(self) -> None:
        """Close what it has opened."""
        self.selector.close()
        self._signals.close()
