"""Reads /proc about other processes, also of a process whose first thread has ended.

A program whose first thread calls pthread_exit() continues in its other threads. Then /proc/PID
describes a zombie without command line and environment; the entries of the other threads are
complete (proc(5)). Imports little, because the start of a job's pumpd includes these imports.
"""

from __future__ import annotations

import os
import time

FILE_BYTES_MAX = 4 << 20
"""Most bytes to read of a file; a process sets the length of its command and environment."""

_STATE, _THREADS, _START = 0, 17, 19
"""Fields of /proc/PID/stat, counted from the one after the name."""


def start_time(pid: int) -> int | None:
    """Returns the start of process `pid` in clock ticks since boot; None if all its threads have
    ended or the process is not visible."""
    try:
        # The name, in brackets, may contain any character.
        fields = _read(f"{pid}/stat").rpartition(b")")[2].split()
        ended = fields[_STATE] in (b"Z", b"X") and int(fields[_THREADS]) <= 1
        return None if ended else int(fields[_START])
    except (OSError, ValueError, IndexError):
        return None


def pidfd_of(pid: int) -> int | None:
    """Returns a new descriptor that is readable after the end of a process (pidfd_open(2)); None if
    the process has ended or the kernel is too old."""
    try:
        return os.pidfd_open(pid)
    except (OSError, AttributeError):
        return None


def command_of(pid: int) -> list[bytes]:
    """Returns the arguments of a process's command; [] if they cannot be read."""
    return _words(pid, "cmdline")


def environment_of(pid: int) -> dict[str, str]:
    """Returns the environment that a process was started with; {} if it cannot be read."""
    pairs = (os.fsdecode(word).partition("=") for word in _words(pid, "environ"))
    return {name: value for name, _, value in pairs}


def _words(pid: int, name: str) -> list[bytes]:
    """Returns the zero-terminated strings of a /proc file, from the first thread that has them."""
    try:
        for thread in sorted(os.listdir(f"/proc/{pid}/task"), key=int):
            try:
                if data := _read(f"{pid}/task/{thread}/{name}"):
                    return data.removesuffix(b"\0").split(b"\0")
            except (FileNotFoundError, ProcessLookupError):  # the thread has ended
                continue
    except OSError:
        pass
    return []


def _read(rest: str) -> bytes:
    with open(f"/proc/{rest}", "rb") as file:
        return file.read(FILE_BYTES_MAX)


def age_s(pid: int) -> float:
    """Returns the seconds since a process began; 1 if its start cannot be read."""
    import psutil

    try:
        return max(1e-3, time.time() - float(psutil.Process(pid).create_time()))
    except psutil.Error:
        return 1.0
