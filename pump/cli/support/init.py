"""Runs pump-run as process 1 of a container that has no init of its own.

Process 1 gets the orphans of its PID namespace as children, and its end kills the whole namespace.
If the job were process 1, pumpd would be its child, and a program that waits for its children would
wait for pumpd. The end of the job would kill pumpd before pumpd has completed a recording and
removed its socket. So process 1 starts the job as a child, forwards signals, reaps, and ends after
pumpd.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time

OWN = {
    *(signal.SIGCHLD, signal.SIGTTIN, signal.SIGTTOU),
    *(signal.SIGILL, signal.SIGTRAP, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE),
    *(signal.SIGSEGV, signal.SIGSYS),
}
"""Signals about this process itself. All other signals are forwarded to the job."""
PUMPD_MOST_S = 30.0
"""Longest wait for pumpd after the end of the job, while pumpd completes recordings. A signal, or
SIGKILL from the container's runtime, ends the wait earlier."""
POLL_S = 0.1


def stay() -> None:
    """Stays process 1 until job and pumpd have ended. Returns only in the job's process, a child
    with its own process group, which has the terminal if this process had it."""
    passed = signal.valid_signals() - OWN
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {*passed, signal.SIGCHLD})
    terminal = _has_terminal()
    job = os.fork()
    if job == 0:
        _take_group(terminal)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return
    status = _until_ended(job, passed)
    _until_pumpd_ended(job, passed)
    os._exit(status)


def _has_terminal() -> bool:
    with contextlib.suppress(OSError):
        return os.tcgetpgrp(0) == os.getpgrp()
    return False


def _take_group(terminal: bool) -> None:
    """Moves the job to its own process group, so that the terminal's signals reach it only once."""
    with contextlib.suppress(OSError):
        os.setpgid(0, 0)
    if terminal:
        before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        with contextlib.suppress(OSError):
            os.tcsetpgrp(0, os.getpgrp())
        signal.signal(signal.SIGTTOU, before)


def _until_ended(job: int, passed: set[signal.Signals]) -> int:
    """Forwards signals until the job has ended; returns its exit status like a shell."""
    while True:
        number = signal.sigwait({*passed, signal.SIGCHLD})
        if number == signal.SIGCHLD:
            if job in (ended := _reaped()):
                code = os.waitstatus_to_exitcode(ended[job])
                return code if code >= 0 else 128 - code
        else:
            with contextlib.suppress(ProcessLookupError):
                os.kill(job, number)


def _reaped() -> dict[int, int]:
    """Reaps all children that have ended; returns their statuses."""
    found = {}
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0] != 0:
            found[ended[0]] = ended[1]
    return found


def _until_pumpd_ended(job: int, passed: set[signal.Signals]) -> None:
    until = time.monotonic() + PUMPD_MOST_S
    while time.monotonic() < until and _pumpd_lives(job):
        if signal.sigtimedwait(passed, POLL_S) is not None:
            return
        _reaped()


def _pumpd_lives(job: int) -> bool:
    """Returns whether the pumpd of this job (launch.py) is still running."""
    mark = f"\0--job-pid\0{job}\0".encode()
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/cmdline", "rb") as file:
            if mark in file.read():
                return True
    return False
