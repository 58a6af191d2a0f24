"""Finds the processes of a job's pumpd from outside."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from pump.wire.mapping import Mapping


@dataclass
class Pumpd:
    """Process ids of one job's pumpd at one moment; 0 for missing processes."""

    supervisor: int = 0
    warm: int = 0
    workers: list[int] = field(default_factory=list)
    command: list[str] = field(default_factory=list)


def of_job(job_pid: int) -> Pumpd:
    """Returns the running processes for the job whose first process is `job_pid`."""
    found: dict[int, psutil.Process] = {}
    for process in psutil.process_iter():
        try:
            command = process.cmdline()
            if "pumpd" in map(os.path.basename, command) and str(job_pid) in command:
                found[process.pid] = process
        except psutil.Error:
            continue
    seen = Pumpd()
    for pid, process in found.items():
        try:
            parent = process.ppid()
            if parent not in found:
                if "--job-pid" in process.cmdline() and not _orphan(process, found):
                    seen.supervisor, seen.command = pid, process.cmdline()
            elif found[parent].ppid() in found:
                seen.workers.append(pid)
            else:
                seen.warm = pid
        except psutil.Error:
            continue
    return seen


def _orphan(process: psutil.Process, found: dict[int, psutil.Process]) -> bool:
    """Returns whether a worker or warm process lost its supervisor and became init's child."""
    return process.name() in ("pumpd-warm", "pumpd-worker") and process.ppid() not in found


def wait_for(condition: Callable[[], bool], seconds: float = 10.0) -> bool:
    """Polls until `condition()` or a timeout; returns the last result."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return condition()


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def socket_of(pid: int) -> Path:
    """Returns PUMP_SOCKET of a running job."""
    for entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
        if entry.startswith(b"PUMP_SOCKET="):
            return Path(os.fsdecode(entry.partition(b"=")[2]))
    raise LookupError(f"process {pid} has no PUMP_SOCKET")


def _memfds(worker: int) -> list[Path]:
    """Returns the worker's memfd descriptors; during its start possibly none or two."""
    found = []
    for fd in Path(f"/proc/{worker}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # it may be closed now
            if "memfd:" in str(fd.readlink()):
                found.append(fd)
    return found


@contextlib.contextmanager
def mapping_of(worker: int) -> Iterator[Mapping]:
    """Yields the mapping that a worker shares with its client, from the worker's descriptor."""
    assert wait_for(lambda: len(_memfds(worker)) == 1), _memfds(worker)
    fd = os.open(_memfds(worker)[0], os.O_RDWR)
    mapping = Mapping(fd)
    os.close(fd)
    try:
        yield mapping
    finally:
        mapping.close()
