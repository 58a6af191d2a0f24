"""Detects the end of the job's first process, without being its parent or child.

Uses a pidfd (pidfd_open(2)) if the kernel supports it. Otherwise polls /proc and compares the
start time, because a later process may have the same ID. With both methods a process ends when all
of its threads have ended, not only the first. Importing psutil instead would take 13 ms, a quarter
of this process's startup, while clients wait.
"""

from __future__ import annotations

from pump.base.processes import pidfd_of, start_time

POLL_INTERVAL_S = 1.0


class JobWatch:
    """Watches one process. `pidfd`: readable after its end; None: poll `ended()` every
    POLL_INTERVAL_S."""

    def __init__(self, pid: int, pidfd: int | None = None) -> None:
        self.pid = pid
        self.pidfd = pidfd if pidfd is not None else pidfd_of(pid)
        self._start_time = start_time(pid)

    def ended(self) -> bool:
        """Returns whether the process has ended or is not visible."""
        return self._start_time is None or start_time(self.pid) != self._start_time

    def __repr__(self) -> str:
        return f"<job {self.pid} by {'/proc' if self.pidfd is None else 'pidfd'}>"
