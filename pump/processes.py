"""What /proc says of other processes, one of which the first thread may have left.

A program whose first thread ends by pthread_exit() runs on in its other threads. /proc/PID is
then that of a zombie without a command line and without an environment; those of the other
threads are whole (proc(5)). Imports little, because a job's pumpd waits for it at its start.
"""

from __future__ import annotations

import os
import time

FILE_BYTES_MAX = 4 << 20
"""What is read of a file; a process sets the length of its command and environment."""

_STATE, _THREADS, _START = 0, 17, 19
"""Fields of /proc/PID/stat, counted from the one after the name."""


def start_time(pid: int) -> int | None:
    """Return the start of process `pid` in clock ticks since boot; None if all its threads have
    ended or it cannot be seen."""
    try:
        # The name, in brackets, may hold anything.
        fields = _read(f"{pid}/stat").rpartition(b")")[2].split()
        ended = fields[_STATE] in (b"Z", b"X") and int(fields[_THREADS]) <= 1
        return None if ended else int(fields[_START])
    except (OSError, ValueError, IndexError):
        return None


def command_of(pid: int) -> list[bytes]:
    """Return the words of a process's command; none where they cannot be read."""
    return _words(pid, "cmdline")


def environment_of(pid: int) -> dict[str, str]:
    """Return the environment that a process was started with; none where it cannot be read."""
    pairs = (os.fsdecode(word).partition("=") for word in _words(pid, "environ"))
    return {name: value for name, _, value in pairs}


def _words(pid: int, name: str) -> list[bytes]:
    """The zero-ended words of a file of the process, from the first thread that has it."""
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
    """Return the seconds since a process began; 1 if that cannot be read."""
    import psutil

    try:
        return max(1e-3, time.time() - float(psutil.Process(pid).create_time()))
    except psutil.Error:
        return 1.0
