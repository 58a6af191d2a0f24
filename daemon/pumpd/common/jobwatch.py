"""Detects the end of the job's first process, without being its parent or child.

By pidfd (pidfd_open(2)) where the kernel has them, else by /proc at intervals, where the start
time distinguishes the process from a later one with the same number. Not by psutil: its import
takes 13 ms, a quarter of this process's start, and clients wait for that. Both count a process
as ended once all its threads have, not when its first one has.
"""

from __future__ import annotations

import os

from pump.processes import start_time

POLL_INTERVAL_S = 1.0


class JobWatch:
    """pidfd: readable once the job has ended; None: call `ended()` every POLL_INTERVAL_S."""

    def __init__(self, pid: int, pidfd: int | None = None) -> None:
        self.pid = pid
        self.pidfd = pidfd if pidfd is not None else _open_pidfd(pid)
        self._start_time = start_time(pid)

    def ended(self) -> bool:
        """Whether the process has ended or cannot be seen."""
        return self._start_time is None or start_time(self.pid) != self._start_time

    def __repr__(self) -> str:
        return f"<job {self.pid} by {'/proc' if self.pidfd is None else 'pidfd'}>"


def _open_pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except (OSError, AttributeError):  # it has ended, or there are no pidfds: see /proc
        return None
