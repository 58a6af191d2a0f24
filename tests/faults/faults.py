"""Tools for the fault campaigns: a job of a tenth of a second, and processes whose calls fail.

Not a test. `Injector` runs a command under inject.c; `WHAT_FAILS` lists the injected errors of each
system call.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

import psutil

HERE = Path(__file__).resolve().parent
BIN = Path(sys.executable).parent
MEMORY_MIB = 24
"""The job uses 32 MiB."""
BOUND_S = 30.0
"""Time limit for the end of every process, even on a busy machine."""

ANSWER_S = 15.0
"""Time limit for the return to the initial state."""

_MEMORY = (errno.ENOMEM,)
_DESCRIPTORS = (errno.EMFILE, errno.ENOMEM)
_FILE = (errno.EINTR, errno.EIO, errno.ENOSPC)
_PROCESS = (errno.EAGAIN, errno.ENOMEM)
WHAT_FAILS: dict[str, tuple[int, ...]] = {
    "accept4": (errno.EINTR, errno.EMFILE, errno.ENOMEM, errno.ECONNABORTED),
    "bind": (errno.ENOMEM, errno.ENOSPC),
    "chmod": (errno.EPERM, errno.EIO),
    "clone": _PROCESS,
    "clone3": (*_PROCESS, errno.ENOSYS),
    "connect": (errno.EINTR, errno.EAGAIN, errno.ENOMEM, errno.EPERM),
    "epoll_create1": _DESCRIPTORS,
    "epoll_ctl": (errno.ENOMEM, errno.ENOSPC),
    "epoll_wait": (errno.EINTR,),
    "eventfd2": _DESCRIPTORS,
    "fcntl": (errno.EMFILE, errno.ENOMEM),
    "fdatasync": _FILE,
    "flock": (errno.EINTR, errno.ENOLCK, errno.ENOSYS),
    "fork": _PROCESS,
    "fsync": _FILE,
    "ftruncate": (*_FILE, errno.EPERM),
    "futex": (errno.EINTR,),
    "getdents64": (errno.ENOMEM, errno.EIO),
    "getrandom": (errno.EINTR, errno.ENOSYS),
    "getsockopt": (errno.ENOMEM,),
    "link": (errno.ENOSPC, errno.EPERM),
    "listen": (errno.ENOMEM,),
    "memfd_create": (*_DESCRIPTORS, errno.ENOSYS),
    "mkdir": (errno.ENOMEM, errno.ENOSPC),
    "mmap": _MEMORY,
    "openat": (errno.EINTR, errno.EMFILE, errno.ENOMEM, errno.ENOSPC),
    "pidfd_open": (*_DESCRIPTORS, errno.ENOSYS),
    "pipe2": _DESCRIPTORS,
    "poll": (errno.EINTR,),
    "prlimit64": (errno.EPERM,),
    "pread64": (errno.EINTR, errno.EIO),
    "pwrite64": _FILE,
    "read": (errno.EINTR, errno.EIO),
    "recvfrom": (errno.EINTR, errno.ENOMEM),
    "recvmsg": (errno.EINTR, errno.EMFILE, errno.ENOMEM),
    "rename": (errno.EIO, errno.ENOSPC),
    "sched_setaffinity": (errno.EINVAL, errno.EPERM),
    "sendmsg": (errno.EINTR, errno.ENOMEM, errno.EMFILE),
    "sendto": (errno.EINTR, errno.ENOMEM, errno.EAGAIN),
    "setpriority": (errno.EACCES, errno.EPERM),
    "setsockopt": (errno.ENOMEM,),
    "socket": _DESCRIPTORS,
    "socketpair": _DESCRIPTORS,
    "unlink": (errno.EIO,),
    "wait4": (errno.EINTR, errno.ECHILD),
    "unshare": (errno.ENOMEM, errno.EPERM, errno.ENOSYS),
    "write": _FILE,
    "close_range": (errno.ENOSYS, errno.EMFILE, errno.ENOMEM),
}
"""Errors by call, from the manual pages. Left out are calls that only read state (fstat), calls
whose errors cannot be handled (close, munmap), and calls that every C library relies on."""

PASSING = (errno.EINTR, errno.EAGAIN, errno.ECONNABORTED)
"""Transient errors, which a call does not return every time."""

FOR_GOOD = 1 << 30
"""A value of `many`: all calls after the first failure fail too."""

RESOURCES = (
    *("ioprio_set", "mbind", "migrate_pages", "move_pages", "prlimit64", "sched_setaffinity"),
    *("sched_setattr", "sched_setparam", "sched_setscheduler", "set_mempolicy", "setpriority"),
    "setrlimit",
)
"""The calls that SystemCallFilter=~@resources refuses (systemd.exec(5)), and prlimit64."""


@dataclass(frozen=True)
class Fault:
    """Fails call number `first` and the `many` - 1 calls after it in processes named `task`."""

    task: str
    call: str
    first: int
    error: int
    many: int = 1

    def __str__(self) -> str:
        lasting = "" if self.many == 1 else "+"
        return f"{self.task}:{self.call}:{self.first}{lasting}:{errno.errorcode[self.error]}"


class Counted(NamedTuple):
    """calls: how often each task made each call. failed: the number of injected failures."""

    calls: dict[tuple[str, str], int]
    failed: int


REFUSED = Fault("*", "*", 1, errno.EPERM, FOR_GOOD)
"""Refuses the injector's calls in all processes from the start, like the system call filter of a
container, Snap or systemd."""


def warnings_in(lines: Iterable[str]) -> list[str]:
    """Returns all lines except the job's last line."""
    return [line for line in lines if not re.match(r"pump: (ran|lost) .*x the budget", line)]


def faults_of(counts: dict[tuple[str, str], int], most: int = 1 << 30) -> list[Fault]:
    """Returns each error of each counted call, but only for the first `most` calls. Errors outside
    of PASSING appear twice: for one call, and for this call and all later ones."""
    return [
        Fault(task, call, first, error, many)
        for (task, call), times in sorted(counts.items())
        for error in WHAT_FAILS.get(call, ())
        for first in range(1, min(times, most) + 1)
        for many in ((1,) if error in PASSING else (1, FOR_GOOD))
    ]


def eventually(condition: Callable[[], bool], what: str, seconds: float = ANSWER_S) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, f"not within {seconds} s: {what}"
        time.sleep(0.005)


class Injector:
    """Runs a command; named system calls of the command and its descendants can fail.

    MARK: the environment variable that identifies the descendants, even outside the process tree.
    """

    MARK = "PUMP_TEST_INJECTOR"
    _numbers = itertools.count()

    def __init__(
        self,
        program: Path,
        calls: Iterable[str],
        command: list[str],
        fault: Fault | None = None,
        **popen: Any,
    ) -> None:
        """Starts the command with this fault armed."""
        ours, theirs = socket.socketpair()
        self._mark = f"{os.getpid()}.{next(self._numbers)}"
        popen["env"] = {**popen.get("env", os.environ), self.MARK: self._mark}
        with theirs:
            words = [str(program), str(theirs.fileno()), ",".join(calls), *command]
            self.process = subprocess.Popen(words, pass_fds=[theirs.fileno()], **popen)
        ours.settimeout(BOUND_S)
        self._control = ours
        self._answers = ours.makefile("r")
        self.arm(fault)

    def arm(self, fault: Fault | None) -> None:
        """Resets the counts and arms this fault, or none."""
        one = fault or Fault("-", "read", 0, 0, 0)
        self._control.send(
            f"arm {one.task} {one.call} {one.first} {one.many} {one.error}\n".encode()
        )
        assert self._answers.readline() == "armed\n"

    def counts(self) -> Counted:
        """Returns the calls since the last reset; the command must still run."""
        self._control.send(b"counts\n")
        return self._heard()

    def ended(self) -> Counted:
        """Waits for the command and its descendants; returns the calls since `arm`. Kills processes
        that still run after BOUND_S."""
        try:
            counted = self._heard()
            self.process.wait(BOUND_S)
        except BaseException:
            self.kill()
            raise
        self._close()
        return counted

    def kill(self) -> None:
        """Kills the command and its descendants in any state."""
        self.process.kill()  # the command's calls that wait for an answer fail
        self.process.wait()
        self._close()
        eventually(lambda: not self._kill_started(), "the end of what was killed")

    def _kill_started(self) -> bool:
        """Kills the marked processes; returns whether there were any."""
        found = False
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):  # it may have exited
                if process.environ().get(self.MARK) == self._mark:
                    process.kill()
                    found = True
        return found

    def _close(self) -> None:
        self._answers.close()
        self._control.close()

    def _heard(self) -> Counted:
        words = self._answers.readline().removeprefix(". ").split()
        triples = zip(words[0:-2:3], words[1:-2:3], words[2:-2:3], strict=True)
        calls = {(task, call): int(count) for task, call, count in triples}
        return Counted(calls, int(words[-1]))


class Tally:
    """Iterates over all faults, even after failures; lists the failed ones at the end.

    reached: number of faults whose error occurred; this must be more than half.
    """

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.faults = faults
        self.reached = 0
        self.failures: list[str] = []
        self.failed_now = False

    def __enter__(self) -> Self:
        return self

    def __iter__(self) -> Iterator[Fault]:
        for fault in self.faults:
            self._now, self.failed_now = fault, False
            yield fault

    @contextlib.contextmanager
    def one(self) -> Iterator[None]:
        try:
            yield
        except (AssertionError, OSError, subprocess.SubprocessError, ValueError) as error:
            self.failed_now = True
            self.failures.append(f"{self._now}: {error}")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            assert not self.failures, "\n".join(self.failures)
            assert self.reached * 2 > len(self.faults), f"{self.reached} of {len(self.faults)}"


def named(name: str, words: str) -> list[psutil.Process]:
    """Returns the processes of that name with `words` in their command line."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):  # it may have exited
            if process.name() == name and words in process.cmdline():
                found.append(process)
    return found


def workers_of(socket_path: str) -> list[psutil.Process]:
    """Returns the workers of the job with this socket; they share its pumpd's command line."""
    return named("pumpd-worker", socket_path)
