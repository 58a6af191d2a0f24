"""What says which of several steps is under way, and about how long the others will take."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import TextIO

PASSING_S = 0.2
"""Between two writings of a line that passes."""


class Progress:
    """Numbers the steps of some work on a stream. total: of steps; callers may lower it."""

    def __init__(self, total: int, out: TextIO | None = None) -> None:
        self.total = total
        self._out = sys.stderr if out is None else out
        self._done = 0
        self._began_s = time.monotonic()

    @contextlib.contextmanager
    def step(self, what: str) -> Iterator[list[str]]:
        """One step. What its block puts into the list stands behind the step's name when it ends;
        without that its time does, and "failed" where it raises."""
        began_s = time.monotonic()
        width = len(str(self.total))
        self._put(f"[{self._done + 1:{width}}/{self.total}] {what} ...")
        said: list[str] = []
        try:
            yield said
        except BaseException:
            self._put(" failed\n")
            raise
        self._done += 1
        now_s = time.monotonic()
        left_s = (now_s - self._began_s) / self._done * (self.total - self._done)
        after = f", about {_rough(left_s)} left" if self._done < self.total else ""
        self._put(f" {', '.join(said) or f'{now_s - began_s:.1f} s'}{after}\n")

    def _put(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # closed, or its reader has gone
            self._out.write(text)
            self._out.flush()


@contextlib.contextmanager
def passing(total: int, out: TextIO | None = None) -> Iterator[Callable[[], None]]:
    """A line on a terminal for steps that are too many for a line each. Call what it yields after
    each step. It says how many are done, and leaves nothing; where there is no terminal it writes
    nothing."""
    out = sys.stderr if out is None else out
    began_s = time.monotonic()
    done, written_s = 0, began_s

    def put(text: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            if out.isatty():
                out.write(f"\r\x1b[K{text}")
                out.flush()

    def step() -> None:
        nonlocal done, written_s
        done += 1
        now_s = time.monotonic()
        if now_s - written_s >= PASSING_S:
            written_s = now_s
            left_s = (now_s - began_s) / done * (total - done)
            put(f"  {done} of {total}, about {_rough(left_s)} left")

    try:
        yield step
    finally:
        put("")


def _rough(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
