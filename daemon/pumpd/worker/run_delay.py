"""Measures for a recording how long a client's threads ran, and how long they waited for a core.

The file /proc/PID/task/TID/schedstat contains both times of a thread (run time and run delay, in
ns), if the kernel keeps them and the reader may see them. Unreadable values are left out. Both
times only grow: an ended thread counts with its last known times.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pump.trace import format as form
from pump.trace.records import Threads

SHARE: Final = 200
"""Sampling takes at most 1/SHARE of the time, with any number of threads."""

_GROUPS: Final = {
    "in": form.THREADS_TO_GPU,
    "out": form.THREADS_TO_HOST,
    "mark": form.THREADS_MARKERS,
    "link": form.THREADS_LINK,
}
_NAME: Final = re.compile(r"pump-(in|out|mark|link)(-\d+)?")
_NAMED_AFTER: Final = 2
"""Samples after which a thread has its name, which the parent sets soon after its start."""


@dataclass(slots=True)
class _Thread:
    reads: int = 0
    group: int = form.THREADS_PROGRAM
    ran_ns: int = 0
    delay_ns: int = 0


class Issuers:
    """Tracks how long a process's threads that issue operations have waited for a CPU core.

    `waited_ns`: the waits of all threads since each was first seen. `share`: the share of the
    machine's CPU time since then that this process and the client used. The rest of the CPU time
    may have caused waits as well.
    """

    def __init__(self, pid: int) -> None:
        """`pid`: 0 if the process is not visible."""
        self._pid = pid
        self._seen: dict[int, int] = {}
        self._spent: tuple[float, float] | None = None
        self.waited_ns = 0
        self.share = 0.0

    def refresh(self, threads: Iterable[int]) -> None:
        """Reads again how long these threads have waited. Leaves out unreadable values."""
        for thread in filter(None, threads if self._pid else ()):
            with contextlib.suppress(OSError, ValueError):
                _, delay_ns = _run_and_delay_ns(f"/proc/{self._pid}/task/{thread}/schedstat")
                self.waited_ns += max(0, delay_ns - self._seen.get(thread, delay_ns))
                self._seen[thread] = delay_ns
        if self._seen:
            with contextlib.suppress(OSError, ValueError, IndexError):
                ours_s, all_s = self._cpu_times_s()
                if self._spent is None:
                    self._spent = ours_s, all_s
                ours_s, all_s = ours_s - self._spent[0], all_s - self._spent[1]
                self.share = min(1.0, ours_s / all_s) if all_s > 0 else 0.0

    def _cpu_times_s(self) -> tuple[float, float]:
        """Returns CPU times of both processes, and of the machine (proc(5): utime, stime; cpu)."""
        client = _read_text(f"/proc/{self._pid}/stat", 1024).rpartition(")")[2].split()
        machine = _read_text("/proc/stat", 512).splitlines()[0].split()
        user, nice, system, _, _, irq, soft, *_ = map(int, machine[1:])
        ticks_s = os.sysconf("SC_CLK_TCK")
        ours_s = (int(client[11]) + int(client[12])) / ticks_s + time.process_time()
        return ours_s, (user + nice + system + irq + soft) / ticks_s


class RunDelay:
    """Samples the times of one client's threads, and of the thread that creates this object."""

    def __init__(self, client_pid: int) -> None:
        """`client_pid`: 0 if the client is not visible; then only the calling thread is sampled."""
        self._tasks = f"/proc/{client_pid}/task" if client_pid else ""
        self._own = f"/proc/self/task/{threading.get_native_id()}/schedstat"
        self._live: dict[str, _Thread] = {}
        self._ended: dict[int, list[int]] = defaultdict(lambda: [0, 0])
        self._said: dict[int, tuple[int, int]] = {}
        self._next_ns = 0

    def sample(self, *, last: bool = False) -> list[Threads]:
        """Returns the groups of threads with changed times; none if the last sample is recent,
        unless it is the `last` one of a recording."""
        began_ns = time.monotonic_ns()
        if began_ns < self._next_ns and not last:
            return []
        sums = self._sum_by_group()
        ended_ns = time.monotonic_ns()
        self._next_ns = ended_ns + SHARE * (ended_ns - began_ns)
        found = {group: (ran_ns, delay_ns) for group, (ran_ns, delay_ns) in sums.items()}
        new = [
            Threads(ended_ns, group, *times)
            for group, times in sorted(found.items())
            if self._said.get(group) != times
        ]
        self._said = found
        return new

    def _sum_by_group(self) -> dict[int, list[int]]:
        names: list[str] = []
        if self._tasks:
            with contextlib.suppress(OSError):
                names = [task.name for task in Path(self._tasks).iterdir()]
        for name in [name for name in self._live if name not in names]:
            self._keep_times(self._live.pop(name))
        for name in names:
            with contextlib.suppress(OSError, ValueError):
                self._read_thread(name)
        sums: dict[int, list[int]] = defaultdict(lambda: [0, 0])
        for group, (ran_ns, delay_ns) in self._ended.items():
            _add(sums[group], ran_ns, delay_ns)
        for thread in self._live.values():
            _add(sums[thread.group], thread.ran_ns, thread.delay_ns)
        with contextlib.suppress(OSError, ValueError):
            _add(sums[form.THREADS_WORKER], *_run_and_delay_ns(self._own))
        return sums

    def _read_thread(self, name: str) -> None:
        folder = f"{self._tasks}/{name}"
        ran_ns, delay_ns = _run_and_delay_ns(f"{folder}/schedstat")
        thread = self._live.get(name)
        if thread is None or ran_ns < thread.ran_ns:  # or another thread has its ID now
            if thread is not None:
                self._keep_times(thread)
            thread = self._live[name] = _Thread()
        if thread.reads < _NAMED_AFTER:
            thread.reads += 1
            match = _NAME.fullmatch(_read_text(f"{folder}/comm").strip())
            thread.group = _GROUPS[match[1]] if match else form.THREADS_PROGRAM
        thread.ran_ns, thread.delay_ns = ran_ns, delay_ns

    def _keep_times(self, thread: _Thread) -> None:
        _add(self._ended[thread.group], thread.ran_ns, thread.delay_ns)


def _add(to: list[int], ran_ns: int, delay_ns: int) -> None:
    to[0] += ran_ns
    to[1] += delay_ns


def _run_and_delay_ns(path: str) -> tuple[int, int]:
    """Returns run time and run delay of a thread. Raises OSError if the thread has ended,
    ValueError if the kernel uses another format."""
    ran_ns, delay_ns, *_ = _read_text(path).split()
    return int(ran_ns), int(delay_ns)


def _read_text(path: str, most: int = 128) -> str:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, most).decode("ascii", "replace")
    finally:
        os.close(fd)
