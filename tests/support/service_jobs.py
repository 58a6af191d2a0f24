"""Jobs on one virtual GPU under a private service."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from jobs import Job
from service_client import Service

SLOW = ("--virtual-set", "kernels.default_gbps=1.5")
"""A step of job.py on buffers of 4 MiB takes 6 ms, so that jobs keep the GPU busy."""


@contextmanager
def at_work(
    jobs: Sequence[Job],
    folder: Path,
    words: Sequence[str],
    memory_mib: int,
    options: Sequence[tuple[str, ...]],
) -> Iterator[tuple[Service, list[subprocess.Popen[str]]]]:
    """Starts a service and the jobs on a GPU of that size. options: for each pump-run."""
    service = Service(folder, "--settle", "0.2")
    started: list[subprocess.Popen[str]] = []
    try:
        for job, own in zip(jobs, options, strict=True):
            run = ("--virtual-set", "shared=card", *SLOW, *own)
            env = {
                "PUMP_VIRTUAL_CARDS": str(folder),
                "PUMP_SERVICE": str(service.socket),
                "PUMP_KEEP_LEARNED": "no",
            }
            started.append(job.start(*words, memory_mib=memory_mib, run=run, env=env))
        yield service, started
    finally:
        for process in started:
            process.kill()
            process.communicate()
        service.kill()
