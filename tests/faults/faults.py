"""For the fault campaigns: a job of a tenth of a second, and processes whose calls fail.

Not a test. `Injector` runs a command under inject.c; `WHAT_FAILS` says which errors each
system call is given.
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
"""Within which every process ends, on a machine with other work as well."""

ANSWER_S = 15.0
"""Within which it is as it was before."""

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
"""Errors that the manual pages know of each call; a call that only looks (fstat), that nothing
can be done about (close, munmap) or that every C library takes for granted has none."""

PASSING = (errno.EINTR, errno.EAGAIN, errno.ECONNABORTED)
"""Errors of a moment, which no call has again and again."""

FOR_GOOD = 1 << 30
"""As `many`: the first failure does not pass."""

RESOURCES = (
    *("ioprio_set", "mbind", "migrate_pages", "move_pages", "prlimit64", "sched_setaffinity"),
    *("sched_setattr", "sched_setparam", "sched_setscheduler", "set_mempolicy", "setpriority"),
    "setrlimit",
)
"""What SystemCallFilter=~@resources refuses (systemd.exec(5)), and prlimit64."""


@dataclass(frozen=True)
class Fault:
    """The `first`-th call and `many` - 1 after it fail in processes of that name."""

    task: str
    call: str
    first: int
    error: int
    many: int = 1

    def __str__(self) -> str:
        lasting = "" if self.many == 1 else "+"
        return f"{self.task}:{self.call}:{self.first}{lasting}:{errno.errorcode[self.error]}"


class Counted(NamedTuple):
    """calls: how often each task made each call. failed: how many of them were made to fail."""

    calls: dict[tuple[str, str], int]
    failed: int


REFUSED = Fault("*", "*", 1, errno.EPERM, FOR_GOOD)
"""All calls that an injector is given, in all processes, from the first on: as a filter of system
calls that a container, Snap or systemd sets."""


def warnings_in(lines: Iterable[str]) -> list[str]:
    """What is said but for the job's last line."""
    return [line for line in lines if not re.match(r"pump: (ran|lost) .*x the budget", line)]


def faults_of(counts: dict[tuple[str, str], int], most: int = 1 << 30) -> list[Fault]:
    """Each error at each of the counted calls; of calls made over and over the first `most`.
    The errors of a resource that is used up are there twice: passing, and for good."""
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
    """A command, and all that it starts, whose named system calls can be made to fail.

    MARK: in the environment of all of them, each injector's own: pumpd leaves the process tree.
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
        """Start the command with this fault armed."""
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
        """Count anew; let this fault happen, or none."""
        one = fault or Fault("-", "read", 0, 0, 0)
        self._control.send(
            f"arm {one.task} {one.call} {one.first} {one.many} {one.error}\n".encode()
        )
        assert self._answers.readline() == "armed\n"

    def counts(self) -> Counted:
        """Calls since the last time; ask while the command is there."""
        self._control.send(b"counts\n")
        return self._heard()

    def ended(self) -> Counted:
        """Wait for the end of the command and of all that it started; calls since `arm`.
        What has not ended within BOUND_S is killed."""
        try:
            counted = self._heard()
            self.process.wait(BOUND_S)
        except BaseException:
            self.kill()
            raise
        self._close()
        return counted

    def kill(self) -> None:
        """End the command and all that it started, however they are."""
        self.process.kill()  # calls that it is asked about fail from now on
        self.process.wait()
        self._close()
        eventually(lambda: not self._kill_started(), "the end of what was killed")

    def _kill_started(self) -> bool:
        """Whether there was something to kill."""
        found = False
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):  # it may end meanwhile
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
    """Goes through faults, all of them whatever fails, and says at the end which did.

    reached: how many calls were made to fail; a campaign of which hardly any did is no campaign.
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
    """Processes of that name with `words` in their command line."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):  # it may end meanwhile
            if process.name() == name and words in process.cmdline():
                found.append(process)
    return found


def workers_of(socket_path: str) -> list[psutil.Process]:
    """Of the job that has this socket; they have its pumpd's command line."""
    return named("pumpd-worker", socket_path)
