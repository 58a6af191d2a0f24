"""Where a recording lies while it is written, and where afterwards. No byte of it is read here.

DESIGN
  A recording to FILE is written to a draft beside it, FILE.part-XXXXXXXX (pump/outputs.py), which
  takes FILE's place when it ends. Meanwhile the writer holds a lock on both: on the draft, so
  that readers tell one that goes on from one whose writer was killed, and on FILE, which is made
  empty where it was not there, so that two jobs never record to one file. What a killed writer
  has left keeps its name, and can be read.

  A folder is opened once, and everything below happens by its descriptor: folders that are
  moved meanwhile, or links put in their place, lead no writer away.

Standard library only: pump-run passes through here.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat

from pump import outputs

PARTS_MAX = 10_000
"""Names of a folder that are looked through for drafts."""
_OPENAT2 = 437
_BENEATH_WITHOUT_LINKS = 0x08 | 0x04 | 0x02
"""RESOLVE_BENEATH, RESOLVE_NO_SYMLINKS, RESOLVE_NO_MAGICLINKS of openat2(2)."""
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC


def open_folder(path: str, beneath: str = "") -> int:
    """A descriptor (O_PATH) of the folder that the file at the absolute `path` lies in.

    beneath: a folder that it must lie in as well, or be, without a symbolic link on the way;
    "" for none. Raises OSError.
    """
    folder = os.path.dirname(path)
    if not beneath:
        return os.open(folder, _FOLDER)
    words = [word for word in folder.removeprefix(beneath).split("/") if word]
    if not path.startswith(os.path.join(beneath, "")) or ".." in words:
        raise OSError(errno.EXDEV, f"it does not lie beneath {beneath}")
    top = os.open(beneath, _FOLDER)
    try:
        return _open_beneath(top, words) if words else os.dup(top)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise OSError(error.errno, "a symbolic link or a file is on the way to it") from None
        raise
    finally:
        os.close(top)


def _open_beneath(top: int, words: list[str]) -> int:
    try:
        return _openat2(top, "/".join(words))
    except OSError as error:  # before Linux 5.6, or a sandbox that does not know the call
        if error.errno not in (errno.ENOSYS, errno.EPERM):
            raise
    at = os.dup(top)
    for word in words:
        below = -1
        try:
            below = os.open(word, _FOLDER | os.O_NOFOLLOW, dir_fd=at)
        finally:
            os.close(at)
        at = below
    return at


def _openat2(top: int, path: str) -> int:
    import ctypes  # slow to import; only for what a folder's own file asks for
    import struct

    how = struct.pack("=QQQ", _FOLDER, 0, _BENEATH_WITHOUT_LINKS)
    call = ctypes.CDLL(None, use_errno=True).syscall
    number = ctypes.c_long(_OPENAT2)
    fd = int(call(number, top, os.fsencode(path), how, ctypes.c_size_t(len(how))))
    if fd < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return fd


def claim(name: str, folder: int) -> int:
    """The file `name` in the folder of that descriptor, made empty where it was not there: a
    descriptor that holds its lock. Nothing in it changes.

    Raises OSError: EBUSY while another recording is written to it; what is neither a recording
    nor empty must stay.
    """
    if outputs.look(name, outputs.RECORDING, folder) is None:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(name, flags, 0o600, dir_fd=folder)
        os.fchmod(fd, 0o600)
    else:
        flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        fd = os.open(name, flags, dir_fd=folder)
    try:
        outputs.check(os.fstat(fd), fd, outputs.RECORDING)
        lock(fd)
        if not _is(fd, name, folder):  # the one that was written to it has just been published
            raise OSError(errno.EBUSY, BUSY)
        return fd
    except OSError:
        os.close(fd)
        raise


BUSY = "another recording is being written to it"


def lock(fd: int) -> None:
    """Raises OSError, EBUSY, while another holds the file. Some file systems know no locks."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise OSError(errno.EBUSY, BUSY) from None
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS):
            raise


def _is(fd: int, name: str, folder: int) -> bool:
    try:
        there = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(fd), there)


class Draft:
    """A recording that is being written: `fd` takes it, `part` is its name until `publish`."""

    def __init__(self, name: str, folder: int) -> None:
        """Begin a recording to `name` in the folder of that descriptor, which stays the
        caller's. Raises OSError as `claim` does."""
        self._name, self._folder = name, folder
        self._claimed = claim(name, folder)
        try:
            self.fd, self.part = outputs.draft(name, folder, 0o600)
        except OSError:
            os.close(self._claimed)
            raise
        lock(self.fd)

    def publish(self) -> None:
        """Put it in the place of the file that was claimed. Raises OSError, and leaves both
        alone, where another file is there by now."""
        if not _is(self._claimed, self._name, self._folder):
            raise OSError(errno.EEXIST, f"the file has been replaced; it stays in {self.part}")
        os.rename(self.part, self._name, src_dir_fd=self._folder, dst_dir_fd=self._folder)

    def discard(self) -> None:
        """Remove it, before anything was recorded."""
        with contextlib.suppress(OSError):
            os.unlink(self.part, dir_fd=self._folder)
        self.close()

    def close(self) -> None:
        """Let go of it, wherever it lies."""
        os.close(self.fd)
        os.close(self._claimed)


def parts(path: str, folder: int | None = None) -> list[tuple[str, bool]]:
    """Drafts of recordings to `path`, the newest last: the path of each, and whether it is
    being written. folder: a descriptor of the path's folder, where there is one."""
    directory, name = os.path.split(path)
    found = []
    try:
        fd = os.open(
            (directory or ".") if folder is None else ".",
            os.O_RDONLY | os.O_DIRECTORY,
            dir_fd=folder,
        )
    except (OSError, ValueError):
        return []
    try:
        for entry in os.listdir(fd)[:PARTS_MAX]:
            word = entry.removeprefix(f"{name}.part-")
            if entry == word or len(word) != 8 or word.strip("0123456789abcdef"):
                continue
            with contextlib.suppress(OSError):
                found.append((*_look_at(entry, fd), os.path.join(directory, entry)))
    except OSError:
        pass
    finally:
        os.close(fd)
    return [(one, written) for _, written, one in sorted(found)]


def _look_at(name: str, folder: int) -> tuple[int, bool]:
    """When a draft was last written (ns), and whether its writer is at it."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    fd = os.open(name, flags, dir_fd=folder)
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return status.st_mtime_ns, False
        except BlockingIOError:
            return status.st_mtime_ns, True
        except OSError:
            return status.st_mtime_ns, False
    finally:
        os.close(fd)


def unfinished(path: str, folder: int | None = None) -> list[str]:
    """Drafts of recordings to `path` whose writers were killed, the newest last."""
    return [part for part, written in parts(path, folder) if not written]
