"""Finds and ends what a stage or a program started, wherever it went.

pumpd leaves the process tree and leads its own process group, so neither a process tree nor a group
finds everything. What is inherited by all is the environment: each program and each stage is
given a mark there. What was started with an empty environment is found otherwise: the command
adopts orphans (`adopt_orphans`), so whatever loses its parent becomes its child. Only processes
that carry the mark, and new children of our own, are ever signalled.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
import uuid
from collections.abc import Set
from pathlib import Path

PROGRAM_MARK = "GPU_ACCEPTANCE_PROGRAM"
STAGE_MARK = "GPU_ACCEPTANCE_STAGE"
CALL_MARK = "GPU_ACCEPTANCE_CALL"
"""Of a step of scripts/first_call, whose programs and stages get marks of their own as well."""
PROC = Path("/proc")
PR_SET_CHILD_SUBREAPER = 36


def new_mark() -> str:
    return uuid.uuid4().hex


def marked(name: str, mark: str) -> list[int]:
    """Process ids, but for our own, whose environment began with name=mark. Zombies do not count.

    A process that may not be looked at is not ours.
    """
    wanted = f"{name}={mark}".encode()
    found = []
    for entry in PROC.iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
    return sorted(found)


def title(pid: int) -> str:
    """Command line of a process, shortened; "" when it is gone."""
    with contextlib.suppress(OSError):
        words = (PROC / str(pid) / "cmdline").read_bytes().split(b"\0")
        return os.fsdecode(b" ".join(words).strip())[-160:]
    return ""


def memory_kills() -> int:
    """Processes that the kernel has killed for want of memory since its start; 0 if it does not
    say."""
    with contextlib.suppress(OSError, ValueError):
        for line in (PROC / "vmstat").read_text().splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0


def wait_gone(name: str, mark: str, limit_s: float) -> list[int]:
    """Waits until no marked process is left; the process ids that still are after `limit_s`."""
    deadline = time.monotonic() + limit_s
    while left := marked(name, mark):
        if time.monotonic() >= deadline:
            return left
        time.sleep(0.05)
    return []


def adopt_orphans() -> None:
    """Makes what loses its parent a child of this process. Where a kernel cannot, marks remain."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def children() -> set[int]:
    """Process ids of our children, zombies too."""
    mine = str(os.getpid())
    found = set()
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                # "pid (name) state parent ...", and a name may hold anything.
                fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
                if fields[1] == mine:
                    found.add(int(entry.name))
    return found


def kill_children(but: Set[int], limit_s: float = 10.0) -> list[int]:
    """Kills and reaps children but those, and orphans that become children; returns survivors."""
    deadline = time.monotonic() + limit_s
    while left := children() - but:
        for pid in left:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, os.WNOHANG)
        if time.monotonic() >= deadline:
            return sorted(left)
        time.sleep(0.02)
    return []


def kill_marked(name: str, mark: str, limit_s: float = 10.0) -> list[int]:
    """Kills all marked processes, those that they start meanwhile too; returns those that survived
    `limit_s`."""
    deadline = time.monotonic() + limit_s
    while left := marked(name, mark):
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() >= deadline:
            return left
        time.sleep(0.02)
    return []
