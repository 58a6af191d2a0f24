"""Writes files for people and for other programs: whole or not at all, over nothing of another
kind, never through a symbolic link.

DESIGN
  Every file that pump replaces goes this way: a draft of a random name beside it, made by
  O_EXCL and O_NOFOLLOW, which takes the file's place once it is whole. So another process
  that writes to the folder cannot lead us to another file, a draft that a killed process has
  left is in no one's way, and readers see the old file or the new one.

  What lies there already is replaced only if it is empty or of the same kind, told by how it
  begins. Standard library only: pump-run passes through here.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from collections.abc import Iterator
from typing import NamedTuple, TextIO

HEAD_BYTES = 512
"""Of a file, by which its kind is told."""
NAME_TRIES = 100


class Kind(NamedTuple):
    """What a file is: how messages call it, and a pattern of how it begins."""

    name: str
    begins: bytes

    def fits(self, head: bytes) -> bool:
        """Whether the first HEAD_BYTES of a file are such a file's."""
        return re.match(self.begins, head, re.DOTALL) is not None


TRACE_MAGIC = b"\x93PUMPTR\n"
RECORDING = Kind("a recording of pump", re.escape(TRACE_MAGIC))
TRUST = Kind("pump's list of trusted files", rb"\{")
METRICS = Kind("a textfile of pump metrics", rb"# HELP pump_")
UNIT = Kind("a file that pump install-service wrote", rb"")
"""Its callers know more of which may be replaced (service_files.is_ours)."""
PAGE = Kind("a page of pump report", rb"<!doctype html>.*<title>pump report: ")
REPORT = Kind("a report of pump", rb'\{\n "(state|file)": |[^\n]*\ncommand      ')
SIMULATED = Kind("figures of pump simulate", rb'\{\n "trace": ')
CURVE = Kind("a curve of pump simulate", rb"<svg .*slow-down by GPU memory")
EXPORT = Kind("a trace of pump trace export", rb'\{"displayTimeUnit":"ms","otherData":')
BENCHED = Kind("rows of scripts/bench", rb'\{"name": "bench\.machine", ')
COMPARED = Kind("a result of scripts/quickstart", rb'\{\n "gpu": ')
PROFILE = Kind("a profile of pump profiles", rb"# Written from a report of scripts/gpu_probe")


def check(status: os.stat_result | None, fd: int | None, kind: Kind) -> None:
    """Raises OSError where what lies in a file's place must stay: `status` by lstat, None where
    nothing is there; `fd` to read it, None where it cannot be read."""
    if status is None:
        return
    if stat.S_ISLNK(status.st_mode):
        raise OSError(errno.ELOOP, "it is a symbolic link; name the file itself")
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a regular file")
    if status.st_size and (fd is None or not kind.fits(os.pread(fd, HEAD_BYTES, 0))):
        raise OSError(
            errno.EEXIST, f"it holds something else than {kind.name}; remove it or name another"
        )


def look(name: str, kind: Kind, dir_fd: int | None = None) -> os.stat_result | None:
    """What lies at `name`, None where nothing does. Raises OSError where it must stay."""
    try:
        status = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode):  # opening a device or a pipe may do something, or wait
        check(status, None, kind)
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        fd = os.open(name, flags, dir_fd=dir_fd)
    except PermissionError:
        check(status, None, kind)
        return status
    try:
        status = os.fstat(fd)
        check(status, fd, kind)
        return status
    finally:
        os.close(fd)


def draft(name: str, dir_fd: int | None = None, mode: int | None = None) -> tuple[int, str]:
    """A new file beside `name`, NAME.part-XXXXXXXX: its descriptor and name. Raises OSError.

    mode: of the file, whatever the umask is; None: what the umask leaves.
    """
    for _ in range(NAME_TRIES):
        part = f"{name}.part-{os.urandom(4).hex()}"
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with contextlib.suppress(FileExistsError):
            fd = os.open(part, flags, 0o666 if mode is None else 0o600, dir_fd=dir_fd)
            if mode is not None:
                os.fchmod(fd, mode)
            return fd, part
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))


def may_replace(path: str, kind: Kind) -> None:
    """Raises OSError where `replacing` would refuse, to know before the work is done."""
    if _stream(path) is None:
        look(path, kind)


@contextlib.contextmanager
def replacing(path: str, kind: Kind, mode: int | None = None) -> Iterator[TextIO]:
    """A text stream whose content takes the place of the file at `path` at the end of the
    block, unless that raises. A terminal, a pipe or /dev/null is written to as it is.

    mode: of the file; None: that of the user's own file which is there, else what the umask
    leaves. Another user's file must not choose who reads this one.
    Raises OSError, and leaves what is there alone, where it is not of `kind`.
    """
    stream = _stream(path)
    if stream is not None:
        with open(os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOCTTY), "w", -1, "utf-8") as out:
            if not os.path.samestat(stream, os.fstat(out.fileno())):
                raise OSError(errno.EEXIST, "another file has come in its place")
            yield out
        return
    old = look(path, kind)
    if mode is None and old and old.st_uid == os.geteuid():
        mode = old.st_mode & 0o777
    fd, part = draft(path, mode=mode)
    try:
        with open(fd, "w", encoding="utf-8") as out:
            yield out
        look(path, kind)  # what came meanwhile
        os.rename(part, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise


def write(path: str, text: str, kind: Kind, mode: int | None = None) -> None:
    """Put `text` into the file at `path`, as `replacing` does. Raises OSError."""
    with replacing(path, kind, mode) as out:
        out.write(text)


def _stream(path: str) -> os.stat_result | None:
    """A terminal, a device or a pipe; None for what is none, and for a pipe, or a link to one,
    that another user has put there: it would keep us waiting, or read what is not its user's."""
    try:
        name, found = os.lstat(path), os.stat(path)
    except (OSError, ValueError):
        return None
    if not stat.S_ISCHR(name.st_mode) and name.st_uid not in (os.geteuid(), 0):
        return None
    return found if stat.S_ISCHR(found.st_mode) or stat.S_ISFIFO(found.st_mode) else None
