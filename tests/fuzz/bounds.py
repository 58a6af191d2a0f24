"""Limits of one input of a Python target: using more CPU time or memory is a failure."""

from __future__ import annotations

import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

SECONDS = 2.0
"""CPU time, so that a busy machine causes no failures."""
MEMORY_BYTES = 512 << 20
"""Address space beyond the size of the process before the input."""


class TooSlowError(BaseException):
    """An input took more than SECONDS. No `except Exception` of a target catches this error."""


def _too_slow(_number: int, _frame: FrameType | None) -> None:
    raise TooSlowError(f"more than {SECONDS} s for one input")


@contextmanager
def bounded() -> Iterator[None]:
    """Raises TooSlowError. An allocation beyond the limit raises MemoryError at its place."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    before = signal.signal(signal.SIGPROF, _too_slow)
    most = pages * resource.getpagesize() + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        signal.signal(signal.SIGPROF, before)
