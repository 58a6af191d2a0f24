"""Writes files atomically, never over a file of another kind, never through a symbolic link.

DESIGN
  To replace a file, pump creates a draft with a random name next to it (O_EXCL, O_NOFOLLOW).
  Once the draft is complete, pump renames it to the file. So another process that writes to the
  folder cannot redirect the write, and the draft of a killed process does not block later
  writes. Readers see either the old file or the new one.

  An existing file is replaced only if it is empty, or if its first bytes show the same kind.
  Standard library only, because pump-run imports the module.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TextIO

from pump.base.names import quoted

MODE = 0o666
"""Mode of a file that is not made from other files, before the umask."""
PRIVATE = 0o600
"""Mode of files that contain command lines, such as recordings."""
HEAD_BYTES = 512
"""Number of bytes at the start of a file that determine its kind."""
NAME_TRIES = 100
RETRY_S = 0.02
"""Interval between two attempts to take a lock."""
NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)
"""Errors of flock(2) on a file system without locks."""


class Kind(NamedTuple):
    """A kind of file. name: for messages. begins: a pattern that its first HEAD_BYTES match."""

    name: str
    begins: bytes

    def fits(self, head: bytes) -> bool:
        """Returns whether a file that begins with `head` is of this kind."""
        return re.match(self.begins, head, re.DOTALL) is not None


TRACE_MAGIC = b"\x93PUMPTR\n"
RECORDING = Kind("a recording of pump", re.escape(TRACE_MAGIC))
TRUST = Kind("pump's list of trusted files", rb"\{")
METRICS = Kind("a textfile of pump service metrics", rb"# HELP pump_")
UNIT = Kind("a file that pump service install wrote", rb"")
"""Matches any file; service_files.is_ours decides which files may be replaced."""
PAGE = Kind("a page of pump report", rb"<!doctype html>.*<title>pump report: ")
REPORT = Kind("a report of pump", rb'\{\n "schema": "pump\.report/|[^\n]*\ncommand      ')
SIMULATED = Kind("a result of pump simulate", rb'\{\n "schema": "pump\.simulate/')
CURVE = Kind("a curve of pump simulate", rb"<svg .*slow-?down by GPU memory")
EXPORT = Kind("a trace of pump trace export", rb'\{"displayTimeUnit":"ms","otherData":')
BENCHED = Kind("rows of scripts/bench", rb'\{"name": "(bench\.machine|published\.[a-z0-9_]+)", ')
COMPARED = Kind("a result of scripts/quickstart", rb'\{\n "gpu": ')
COMPARISON = Kind("a result of pump compare", rb'\{\n "schema": "pump\.compare/')
COMPARISON_PAGE = Kind("a page of pump compare", rb"# pump compare\n")
FITTED = Kind("a result of pump fit", rb'\{\n "schema": "pump\.fit/')
KERNEL = Kind("a kernel of pump install kernel", rb'\{\n "argv": .*pump-run')
COMPLETION = Kind("completions of pump", rb"(#compdef pump|# Completion of pump)")
PROFILE = Kind("a profile of pump simulate", rb"# Written from a report of scripts/gpu_probe")


def check_replaceable(status: os.stat_result | None, fd: int | None, kind: Kind) -> None:
    """Raises OSError if an existing file must not be replaced by one of `kind`
    (IsADirectoryError for a folder).

    `status`: from lstat; None if there is no file. `fd`: to read it; None if it is unreadable.
    """
    if status is None:
        return
    if stat.S_ISLNK(status.st_mode):
        raise OSError(errno.ELOOP, "it is a symbolic link; name the file itself")
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, "it is a folder; name a file in it")
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file; choose another file")
    if status.st_size and (fd is None or not kind.fits(os.pread(fd, HEAD_BYTES, 0))):
        raise OSError(errno.EEXIST, f"it is not {kind.name}; remove it or choose another file")


def examine(name: str, kind: Kind, dir_fd: int | None = None) -> os.stat_result | None:
    """Returns the status of the file at `name`, None if there is none. Raises OSError if a file of
    `kind` must not replace the existing file, or if the folder does not exist."""
    try:
        status = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    except FileNotFoundError:
        folder = os.path.dirname(name)
        if folder and dir_fd is None and not os.path.exists(folder):
            text = f"the folder {quoted(folder)} does not exist; create it first"
            raise FileNotFoundError(errno.ENOENT, text) from None
        return None
    if not stat.S_ISREG(status.st_mode):  # opening a device may block or have side effects
        check_replaceable(status, None, kind)
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        fd = os.open(name, flags, dir_fd=dir_fd)
    except PermissionError:
        check_replaceable(status, None, kind)
        return status
    try:
        status = os.fstat(fd)
        check_replaceable(status, fd, kind)
        return status
    finally:
        os.close(fd)


def draft(
    name: str, dir_fd: int | None = None, mode: int | None = None, most: int = MODE
) -> tuple[int, str]:
    """Creates a file NAME.part-XXXXXXXX next to `name`; returns its descriptor and name.

    mode: the file's mode, regardless of the umask; None: `most`, reduced by the umask. Raises
    OSError; FileExistsError if NAME_TRIES names were taken.
    """
    for _ in range(NAME_TRIES):
        part = f"{name}.part-{os.urandom(4).hex()}"
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with contextlib.suppress(FileExistsError):
            fd = os.open(part, flags, most if mode is None else mode, dir_fd=dir_fd)
            if mode is not None:
                unmask(fd, mode)
            return fd, part
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))


def unmask(fd: int, mode: int) -> None:
    """Restores the bits of `mode` that the umask removed from a file just created with that mode.
    Raises OSError."""
    if os.fstat(fd).st_mode & 0o7777 != mode:
        os.fchmod(fd, mode)


def lock(fd: int, wait_s: float = 0.0) -> bool:
    """Locks a file exclusively for this process until `fd` is closed (flock(2)).

    Waits at most wait_s seconds. Returns False if another process still holds the lock; True also
    on a file system without locks (NO_LOCKS). Raises OSError if the lock fails otherwise.
    """
    return _wait_until(wait_s, lambda: _try_lock(fd, fcntl.LOCK_EX))


def is_free(fd: int, wait_s: float = 0.0) -> bool:
    """Returns whether no process is known to hold a file's lock. Waits at most wait_s seconds."""
    with contextlib.suppress(OSError):
        if not _wait_until(wait_s, lambda: _try_lock(fd, fcntl.LOCK_SH)):
            return False
        fcntl.flock(fd, fcntl.LOCK_UN)
    return True


def _try_lock(fd: int, kind: int) -> bool:
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
    return True


def _wait_until(wait_s: float, done: Callable[[], bool]) -> bool:
    until_s = time.monotonic() + wait_s
    while not done():
        if time.monotonic() >= until_s:
            return False
        time.sleep(RETRY_S)
    return True


def may_replace(path: str, kind: Kind) -> None:
    """Raises OSError if `replacing` would, so that callers can check before they start to work."""
    if _stream(path) is None:
        examine(path, kind)
        if not os.access(os.path.dirname(path) or ".", os.W_OK):
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))


def mode_most(sources: Iterable[str]) -> int:
    """Returns the mode of a file made from the files `sources`: the permissions that all of them
    grant. A stream, or a source that cannot be examined, grants access only to its reader."""
    most = MODE
    for source in sources:
        try:
            status = os.stat(source)
        except (OSError, ValueError):
            return 0o600
        most &= status.st_mode if stat.S_ISREG(status.st_mode) else 0o600
        if status.st_gid != os.getegid():  # the new file will have another group
            most &= ~0o060
    return most | 0o600


@contextlib.contextmanager
def replacing(
    path: str, kind: Kind, mode: int | None = None, sources: Iterable[str] = ()
) -> Iterator[TextIO]:
    """Yields a text stream. Its text replaces the file at `path` at the end of the block, unless
    the block raises. Writes directly to a terminal, a pipe or /dev/null.

    `mode`: the mode of the file. None: the mode of an existing file of this user, else the default
    under the umask, in both cases limited to the mode of `sources`. Another user's file must not
    decide who can read this one. `sources`: the files that this one is made from.
    Raises OSError, and changes nothing, if the existing file is not of `kind`.
    """
    stream = _stream(path)
    if stream is not None:
        with open(_open_stream(path), "w", -1, "utf-8") as out:
            if not os.path.samestat(stream, os.fstat(out.fileno())):
                raise OSError(errno.EEXIST, "another file has replaced it")
            yield out
        return
    old, most = examine(path, kind), mode_most(sources)
    if mode is None and old and old.st_uid == os.geteuid():
        mode = old.st_mode & most
    fd, part = draft(path, mode=mode, most=most)
    try:
        with open(fd, "w", encoding="utf-8") as out:
            yield out
        examine(path, kind)  # another process may have put a file there
        os.rename(part, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise


def write(
    path: str, text: str, kind: Kind, mode: int | None = None, sources: Iterable[str] = ()
) -> None:
    """Writes `text` to the file at `path` with `replacing`. Raises OSError."""
    with replacing(path, kind, mode, sources) as out:
        out.write(text)


def _open_stream(path: str) -> int:
    """Opens a terminal, a device, or a pipe that already has a reader; never waits for one."""
    flags = os.O_WRONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
    try:
        fd = os.open(path, flags)
    except OSError as error:
        if error.errno == errno.ENXIO:
            raise OSError(errno.ENXIO, "nothing reads from this pipe") from None
        raise
    os.set_blocking(fd, True)
    return fd


def _stream(path: str) -> os.stat_result | None:
    """Returns the status of a terminal, a device or a pipe; None for anything else. Also None for
    another user's pipe, or link to one: its reader could block the write, or read the output."""
    try:
        name, found = os.lstat(path), os.stat(path)
    except (OSError, ValueError):
        return None
    if not stat.S_ISCHR(name.st_mode) and name.st_uid not in (os.geteuid(), 0):
        return None
    return found if stat.S_ISCHR(found.st_mode) or stat.S_ISFIFO(found.st_mode) else None
