"""What one input may cost a Python target: more processor time or memory is a failure."""

from __future__ import annotations

import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

SECONDS = 2.0
"""Of processor time: a busy machine fails nothing."""
MEMORY_BYTES = 512 << 20
"""Of address space, beyond what the process had before the input."""


class TooSlowError(BaseException):
    """An input took more than SECONDS. No `except Exception` of a target catches it."""


def _too_slow(_number: int, _frame: FrameType | None) -> None:
    raise TooSlowError(f"more than {SECONDS} s for one input")


@contextmanager
def bounded() -> Iterator[None]:
    """Raises TooSlowError; beyond the memory MemoryError is raised where it was asked for."""
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
