"""CPU time of all processes that a command starts, including processes that leave its tree, like
pumpd."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource

from harness import UnavailableError

SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER


def adopt_orphans() -> None:
    """Makes orphans children of this process (prctl(2), PR_SET_CHILD_SUBREAPER), so that their CPU
    time counts as its children's. Raises UnavailableError."""
    if ctypes.CDLL(None, use_errno=True).prctl(SUBREAPER, 1, 0, 0, 0) != 0:
        raise UnavailableError("this kernel gives no orphans to a process (PR_SET_CHILD_SUBREAPER)")


def wait_for_orphans() -> None:
    """Waits for all children."""
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()


def processor_s() -> float:
    """Returns the CPU time of all children that have ended, user and system, in seconds."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
