"""Stops a job's worker again and again while a benchmark runs, as on a loaded machine."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

EVERY_S, STOPPED_S = 0.2, 0.05


def workers(log: Path) -> list[int]:
    """Returns process ids of workers of the job that logs there; they have pumpd's command line."""
    found = []
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if not process.name.isdigit():
                continue
            name = (process / "comm").read_text().strip()
            if name == "pumpd-worker" and os.fsencode(log) in (process / "cmdline").read_bytes():
                found.append(int(process.name))
    return found


def _stop(found: list[int], ended: threading.Event) -> bool:
    """Stops each process for STOPPED_S, then resumes all; returns whether one was stopped."""
    stopped = []
    try:
        for worker in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker, signal.SIGSTOP)
                stopped.append(worker)
        ended.wait(STOPPED_S)
    finally:
        for worker in stopped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker, signal.SIGCONT)
    return bool(stopped)


@contextlib.contextmanager
def stopping(log: Path) -> Iterator[list[int]]:
    """Stops workers for STOPPED_S of each EVERY_S; yields a list that each stop adds one to."""
    ended, stops = threading.Event(), []

    def run() -> None:
        while not ended.wait(EVERY_S - STOPPED_S):
            if _stop(workers(log), ended):
                stops.append(1)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield stops
    finally:
        ended.set()
        thread.join()
