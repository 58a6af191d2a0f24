"""Processor time of all that a command starts, also of what leaves its tree, as pumpd does."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource

from harness import UnavailableError

SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER


def adopt_orphans() -> None:
    """Makes what loses its parent a child of this process, whose CPU time then counts.

    Raises UnavailableError.
    """
    if ctypes.CDLL(None, use_errno=True).prctl(SUBREAPER, 1, 0, 0, 0) != 0:
        raise UnavailableError("this kernel gives no orphans to a process (PR_SET_CHILD_SUBREAPER)")


def wait_for_orphans() -> None:
    """Returns when no child is left."""
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()


def processor_s() -> float:
    """Processor time of all children that have ended, user and system, in seconds."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
