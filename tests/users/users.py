"""Other users of the machine, as processes with real user ids that run functions of a test.

Not a test. A process is forked from the test's process, so its function has all its imports: the
interpreter's folder need not be open to that user.
"""

from __future__ import annotations

import codecs
import contextlib
import ctypes
import multiprocessing
import os
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from shutil import rmtree
from types import TracebackType
from typing import Any

import psutil
import pytest

ALICE, BOB, CAROL, DAVE = 10001, 10002, 10003, 10004
"""Ids that no machine assigns. Alice is honest in all tests."""
ATTACKERS = (BOB, CAROL, DAVE)
TIMEOUT_S = 30.0
PR_SET_DUMPABLE = 4
CLONE_NEWPID, CLONE_NEWUSER = 0x20000000, 0x10000000

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become other users")

codecs.lookup("ascii")  # imported at first use otherwise: too late for another user
_fork = multiprocessing.get_context("fork")
_libc = ctypes.CDLL(None, use_errno=True)


def become(user: int) -> None:
    """Becomes that user permanently."""
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)
    # As after exec; otherwise the kernel would protect this process like one of root's.
    _libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)


def unshare(flags: int) -> None:
    """Creates namespaces. Raises OSError if the machine refuses them."""
    if _libc.unshare(flags) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


class Say:
    """Sends messages from a process to the test that started it."""

    def __init__(self, pipe: Any) -> None:
        self._pipe = pipe

    def __call__(self, what: Any) -> None:
        self._pipe.send((False, what))

    def told_to_end(self) -> bool:
        """Returns whether the test has called end()."""
        return bool(self._pipe.poll())


def plays(say: Say, *jobs: Any) -> None:
    """Lets simulated jobs (service_client.Played) act until the test has called end()."""
    while not say.told_to_end():
        for job in jobs:
            job.turn()
        time.sleep(0.01)


class User:
    """A process of that user that runs `body` with a Say; hear() returns its messages."""

    def __init__(self, user: int, body: Callable[..., Any], *words: Any) -> None:
        self.user = user
        self.said: Any = None
        """The first message, if `together` has received it."""
        self._ours, theirs = _fork.Pipe()
        self._process = _fork.Process(target=_run, args=(user, theirs, body, words), daemon=True)
        self._process.start()
        theirs.close()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def hear(self) -> Any:
        """Returns the next message. Raises AssertionError with a failed process's traceback."""
        assert self._ours.poll(TIMEOUT_S), f"user {self.user} says nothing"
        failed, said = self._ours.recv()
        assert not failed, said
        return said

    def end(self) -> None:
        """Asks the process to end; after a failure hear() raises the reason."""
        with contextlib.suppress(BrokenPipeError):
            self._ours.send("end")

    def close(self) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in psutil.Process(self.pid).children(recursive=True):
                child.kill()
        self._process.kill()
        self._process.join(TIMEOUT_S)
        self._ours.close()

    def __enter__(self) -> User:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _run(user: int, pipe: Any, body: Callable[..., Any], words: tuple[Any, ...]) -> None:
    try:
        become(user)
        body(Say(pipe), *words)
    except BaseException:
        pipe.send((True, traceback.format_exc()))


@contextlib.contextmanager
def together(
    body: Callable[..., Any], *words: Any, users: Sequence[int] = ATTACKERS
) -> Iterator[list[User]]:
    """Starts a process of each user that runs `body`; waits for a message of each process."""
    with contextlib.ExitStack() as stack:
        people = [stack.enter_context(User(user, body, *words)) for user in users]
        for one in people:
            one.said = one.hear()
        yield people


def as_user(user: int, function: Callable[..., Any], *words: Any) -> Any:
    """Returns the result of the function for that user."""
    with User(user, lambda say: say(function(*words))) as one:
        return one.hear()


@contextlib.contextmanager
def public_folder() -> Iterator[Path]:
    """Makes a folder that all users may read; pytest's own folders are only for root."""
    folder = Path(tempfile.mkdtemp(prefix="pump-users-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        rmtree(folder, ignore_errors=True)
