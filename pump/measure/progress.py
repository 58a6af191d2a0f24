"""Reports which step of some work is running, and about how long the others will take."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from typing import TextIO


class Progress:
    """Prints the steps of some work to a stream. total: number of steps; callers may lower it."""

    def __init__(self, total: int, out: TextIO | None = None) -> None:
        self.total = total
        self._out = sys.stderr if out is None else out
        self._done = 0
        self._began_s = time.monotonic()

    @contextlib.contextmanager
    def step(self, what: str) -> Iterator[list[str]]:
        """Runs one step. Its line ends with the texts that the block puts into the list, else with
        the step's time, and with "failed" if the block raises."""
        began_s = time.monotonic()
        width = len(str(self.total))
        self._write(f"[{self._done + 1:{width}}/{self.total}] {what} ...")
        said: list[str] = []
        try:
            yield said
        except BaseException:
            self._write(" failed\n")
            raise
        self._done += 1
        now_s = time.monotonic()
        left_s = (now_s - self._began_s) / self._done * (self.total - self._done)
        after = f", about {_rough(left_s)} left" if self._done < self.total else ""
        self._write(f" {', '.join(said) or f'{now_s - began_s:.1f} s'}{after}\n")

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # closed, or without a reader
            self._out.write(text)
            self._out.flush()


def _rough(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
