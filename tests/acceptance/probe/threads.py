"""Threads that call the driver with the context current."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any

from probe.driver import call
from probe.figures import now
from probe.gpu import Gpu


class Worker(threading.Thread):
    """A thread with the context current; finish() returns its result or raises its error."""

    def __init__(self, gpu: Gpu, work: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self.gpu, self.work = gpu, work
        self.result: Any = None
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            call("cuCtxSetCurrent", self.gpu.context)
            self.result = self.work()
        except BaseException as error:  # finish() raises it
            self.error = error

    def finish(self, limit_s: float = 30.0) -> Any:
        self.join(limit_s)
        if self.is_alive():
            raise TimeoutError(f"a thread did not end within {limit_s} s")
        if self.error is not None:
            raise self.error
        return self.result


def together(gpu: Gpu, jobs: Sequence[Callable[[], None]]) -> list[tuple[int, int]]:
    """Runs jobs in threads that start at once; returns (start, end) of each in nanoseconds."""
    barrier = threading.Barrier(len(jobs))

    def timed_job(job: Callable[[], None]) -> tuple[int, int]:
        barrier.wait(10)
        start = now()
        job()
        return start, now()

    workers = [Worker(gpu, functools.partial(timed_job, job)) for job in jobs]
    return [worker.finish() for worker in workers]
