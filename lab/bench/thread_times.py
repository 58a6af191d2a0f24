"""Measures how long each thread of a job ran, and how long it waited for a CPU core.

DESIGN
  A thread of this process polls the job's threads every PERIOD_S. For each thread it reads two
  files in /proc/PID/task/TID. `schedstat` has the time run, the time runnable without a CPU core,
  and the number of times it was scheduled. `status` has how often it blocked and how often it was
  preempted. All values only grow, so a thread's activity between two moments is the difference of
  its values there. Values between samples are interpolated. A process belongs to the job if its
  environment or command line names the job's folder. The list of processes is updated every SCAN_S.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from pathlib import Path

PERIOD_S = 0.04
SCAN_S = 0.4
PROC = Path("/proc")


@dataclass(frozen=True)
class Times:
    """Times of one thread, or of several with one name. `ran_s`, `delay_s`: on a CPU core, and
    runnable without one. `blocked`, `preempted`: how often it blocked, or was preempted."""

    ran_s: float = 0.0
    delay_s: float = 0.0
    blocked: float = 0.0
    preempted: float = 0.0

    def plus(self, other: Times, share: float = 1.0) -> Times:
        """Returns the sum of this and `share` of the other."""
        return Times(*(a + share * b for a, b in zip(astuple(self), astuple(other), strict=True)))


def read(task: Path) -> Times:
    """Returns the totals of the thread in that folder of /proc. Raises OSError once it ended."""
    ran, delay, _ = (task / "schedstat").read_text().split()
    fields = dict(line.split(":\t", 1) for line in (task / "status").read_text().splitlines())
    switches = (int(fields[f"{kind}_ctxt_switches"]) for kind in ("voluntary", "nonvoluntary"))
    return Times(int(ran) / 1e9, int(delay) / 1e9, *switches)


def at(samples: list[tuple[float, Times]], moment_s: float) -> Times:
    """Returns the values at a moment. Before the first sample they equal the first, because a
    thread may have been there unseen. After the last sample they equal the last."""
    earlier = samples[0]
    for later in samples:
        if later[0] >= moment_s:
            span = later[0] - earlier[0]
            share = (moment_s - earlier[0]) / span if span > 0 and moment_s > earlier[0] else 0.0
            return earlier[1].plus(later[1].plus(earlier[1], -1.0), share)
        earlier = later
    return earlier[1]


class Sampler:
    """Polls the threads of the job that works in `folder` while a block runs (sampling())."""

    def __init__(self, folder: Path) -> None:
        self._folder = os.fsencode(folder)
        self._samples: dict[tuple[str, str, int], list[tuple[float, Times]]] = defaultdict(list)

    @contextlib.contextmanager
    def sampling(self) -> Iterator[None]:
        ended = threading.Event()
        thread = threading.Thread(target=self._run, args=(ended,), name="thread-times")
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def between(self, began_s: float, ended_s: float) -> dict[str, Times]:
        """Returns the activity of threads between two moments of time.monotonic(), by process and
        name, such as "python pump-in-0". A process's first thread has only the process's name. Idle
        threads are left out."""
        found: dict[str, Times] = defaultdict(Times)
        for (process, name, _), samples in self._samples.items():
            spent = at(samples, ended_s).plus(at(samples, began_s), -1.0)
            key = process if name == process else f"{process} {name}"
            found[key] = found[key].plus(spent)
        return {key: spent for key, spent in found.items() if spent.ran_s + spent.delay_s > 0}

    def _run(self, ended: threading.Event) -> None:
        processes: list[Path] = []
        scan_s = 0.0
        while not ended.wait(PERIOD_S):
            if time.monotonic() >= scan_s:
                processes = [path for path in PROC.iterdir() if self._is_ours(path)]
                scan_s = time.monotonic() + SCAN_S
            for process in processes:
                with contextlib.suppress(OSError):
                    self._look(process)

    def _is_ours(self, process: Path) -> bool:
        if not process.name.isdigit() or int(process.name) == os.getpid():
            return False
        with contextlib.suppress(OSError):
            return any(self._folder in (process / of).read_bytes() for of in ("cmdline", "environ"))
        return False

    def _look(self, process: Path) -> None:
        name = (process / "comm").read_text().strip()
        for task in (process / "task").iterdir():
            with contextlib.suppress(OSError):
                first = task.name == process.name
                thread = name if first else (task / "comm").read_text().strip()
                key = name, thread, int(task.name)
                self._samples[key].append((time.monotonic(), read(task)))
