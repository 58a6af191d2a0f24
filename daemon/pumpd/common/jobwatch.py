"""Sees the end of the job's first process. Neither its parent nor its child.

By pidfd where there are pidfds; else by looking at /proc now and then, where the start
time tells the process from a later one with the same number. Not psutil's: its import costs
13 ms, a quarter of this process's start, for which clients wait.
"""

from __future__ import annotations

import os
from pathlib import Path

POLL_INTERVAL_S = 1.0


class JobWatch:
    """pidfd: readable once the job has ended, or None: then ask `ended()` now and then."""

    def __init__(self, pid: int, pidfd: int | None = None) -> None:
        self.pid = pid
        self.pidfd = pidfd if pidfd is not None else _open_pidfd(pid)
        self._start_time = start_time(pid)

    def ended(self) -> bool:
        return self._start_time is None or start_time(self.pid) != self._start_time

    def __repr__(self) -> str:
        return f"<job {self.pid} by {'/proc' if self.pidfd is None else 'pidfd'}>"


def _open_pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except (OSError, AttributeError):  # gone already, or no pidfds here: /proc tells which
        return None


def start_time(pid: int) -> int | None:
    """Start of process `pid` in clock ticks since boot; None if it is gone or a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
        # The name, in brackets, may hold anything; after it: state is field 3, start 22.
        fields = text[text.rindex(")") + 2 :].split()
        return None if fields[0] in "ZX" else int(fields[19])
    except (OSError, ValueError, IndexError):
        return None
