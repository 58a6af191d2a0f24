"""Finds and kills everything that a stage or a program started, wherever it is.

Pumpd leaves the process tree and leads its own process group, so neither tree nor group finds every
process. Children inherit the environment, so each program and each stage gets a mark there. A
process that was started with an empty environment is found in another way: the command adopts
orphans (`adopt_orphans`), so a process that loses its parent becomes its child. Only marked
processes and new children of this process are ever signalled.
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
"""Mark of a step of scripts/first_call; its programs and stages also get their own marks."""
PROC = Path("/proc")
PR_SET_CHILD_SUBREAPER = 36


def new_mark() -> str:
    return uuid.uuid4().hex


def marked(name: str, mark: str) -> list[int]:
    """Returns the ids of other processes whose environment began with name=mark, without zombies.

    Processes with an unreadable environment belong to other users and are skipped.
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
    """Returns the end of a process's command line; "" if the process is gone."""
    with contextlib.suppress(OSError):
        words = (PROC / str(pid) / "cmdline").read_bytes().split(b"\0")
        return os.fsdecode(b" ".join(words).strip())[-160:]
    return ""


def memory_kills() -> int:
    """Returns the number of out-of-memory kills by the kernel since boot; 0 if unknown."""
    with contextlib.suppress(OSError, ValueError):
        for line in (PROC / "vmstat").read_text().splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0


def wait_gone(name: str, mark: str, limit_s: float) -> list[int]:
    """Waits until no marked process is left; returns the ids of those left after `limit_s`."""
    deadline = time.monotonic() + limit_s
    while left := marked(name, mark):
        if time.monotonic() >= deadline:
            return left
        time.sleep(0.05)
    return []


def adopt_orphans() -> None:
    """Makes orphaned descendants children of this process, if the kernel supports it."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def children() -> set[int]:
    """Returns the process ids of our children, including zombies."""
    mine = str(os.getpid())
    found = set()
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                # Format: "pid (name) state parent ..."; the name may contain any character.
                fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
                if fields[1] == mine:
                    found.add(int(entry.name))
    return found


def kill_children(but: Set[int], limit_s: float = 10.0) -> list[int]:
    """Kills and reaps all children except `but`, including new orphans; returns survivors."""
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
    """Kills all marked processes, also new ones that they start during the kill. Returns the
    processes that are left after `limit_s`."""
    deadline = time.monotonic() + limit_s
    while left := marked(name, mark):
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() >= deadline:
            return left
        time.sleep(0.02)
    return []
