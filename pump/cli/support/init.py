"""pump-run as process 1 of a container, where the kernel has put no init in front of it.

Process 1 gets the orphans of its PID namespace as children, and ends all of it when it ends.
Were the job process 1, pumpd would be its child: a program that waits for its children would
wait for pumpd, and pumpd would be killed before it has written the end of a recording and
removed its socket. So process 1 starts the job as a child, passes signals on, reaps, and ends
after pumpd.
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
"""Signals about this process itself; every other one is meant for the job."""
PUMPD_MOST_S = 30.0
"""How long pumpd may take after the job: it writes the ends of recordings. A second signal, or
SIGKILL from the container's runtime, ends it earlier."""
LOOK_S = 0.1


def stay() -> None:
    """In process 1. Returns in the job's process alone, a child in a process group of its own that
    has the terminal if this process had it."""
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
    """So that what the terminal sends reaches the job once."""
    with contextlib.suppress(OSError):
        os.setpgid(0, 0)
    if terminal:
        before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        with contextlib.suppress(OSError):
            os.tcsetpgrp(0, os.getpgrp())
        signal.signal(signal.SIGTTOU, before)


def _until_ended(job: int, passed: set[signal.Signals]) -> int:
    """Passes signals on until the job has ended; returns its status as a shell would."""
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
    """The statuses of all children that have ended."""
    found = {}
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0] != 0:
            found[ended[0]] = ended[1]
    return found


def _until_pumpd_ended(job: int, passed: set[signal.Signals]) -> None:
    until = time.monotonic() + PUMPD_MOST_S
    while time.monotonic() < until and _pumpd_lives(job):
        if signal.sigtimedwait(passed, LOOK_S) is not None:
            return
        _reaped()


def _pumpd_lives(job: int) -> bool:
    """Whether the pumpd of that job (launch.py) has not ended."""
    mark = f"\0--job-pid\0{job}\0".encode()
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/cmdline", "rb") as file:
            if mark in file.read():
                return True
    return False
