"""Manages the paths and locks of a recording, during and after writing. Reads no contents.

DESIGN
  A recording to FILE is written to a draft next to it, FILE.part-XXXXXXXX (pump/base/outputs.py),
  which is renamed to FILE when it ends. Until then the writer holds a lock on both. The lock on the
  draft shows readers that the recording is still being written, and that its writer was not killed.
  The lock on FILE, which is created empty if it does not exist, keeps two jobs from recording to
  one file. The draft of a killed writer keeps its name, and can be read.

  A folder is opened once, and all calls use its descriptor. So a writer is not redirected if the
  folder is moved, or if a link takes its place.

Standard library only, because pump-run imports it.
"""

from __future__ import annotations

import contextlib
import errno
import os

from pump.base import inputs, outputs

PARTS_MAX = 10_000
"""Most names of a folder that are searched for drafts."""
_OPENAT2 = 437
_BENEATH_WITHOUT_LINKS = 0x08 | 0x04 | 0x02
"""RESOLVE_BENEATH, RESOLVE_NO_SYMLINKS, RESOLVE_NO_MAGICLINKS of openat2(2)."""
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC


def open_folder(path: str, beneath: str = "") -> int:
    """Returns a descriptor (O_PATH) of the folder of the file at the absolute `path`.

    `beneath`: a folder that must be or contain that folder, without a symbolic link in between; ""
    for any folder. Raises OSError.
    """
    folder = os.path.dirname(path)
    if not beneath:
        return os.open(folder, _FOLDER)
    words = [word for word in folder.removeprefix(beneath).split("/") if word]
    if not path.startswith(os.path.join(beneath, "")) or ".." in words:
        raise OSError(errno.EXDEV, f"it must be in {beneath}")
    top = os.open(beneath, _FOLDER)
    try:
        return _open_beneath(top, words) if words else os.dup(top)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise OSError(error.errno, "its path contains a symbolic link or a file") from None
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
    import ctypes  # slow to import, and rarely needed
    import struct

    how = struct.pack("=QQQ", _FOLDER, 0, _BENEATH_WITHOUT_LINKS)
    call = ctypes.CDLL(None, use_errno=True).syscall
    number = ctypes.c_long(_OPENAT2)
    fd = int(call(number, top, os.fsencode(path), how, ctypes.c_size_t(len(how))))
    if fd < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return fd


def claim(name: str, folder: int) -> int:
    """Opens and locks the file `name` in the folder of descriptor `folder`; creates an empty one if
    there is none. Returns its descriptor, which holds the lock. Does not change its content.

    Raises OSError: EBUSY while another recording is written to it; as outputs.examine for a file
    that is not empty and not a recording.
    """
    if outputs.examine(name, outputs.RECORDING, folder) is None:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(name, flags, 0o600, dir_fd=folder)
        outputs.unmask(fd, 0o600)
    else:
        flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        fd = os.open(name, flags, dir_fd=folder)
    try:
        outputs.check_replaceable(os.fstat(fd), fd, outputs.RECORDING)
        lock(fd)
        if not _is_same_file(fd, name, folder):  # another recording has just been published there
            raise OSError(errno.EBUSY, BUSY)
        return fd
    except OSError:
        os.close(fd)
        raise


BUSY = "another job records to it"


def lock(fd: int) -> None:
    """Locks the file. Raises OSError; EBUSY while another process holds the lock."""
    if not outputs.lock(fd):
        raise OSError(errno.EBUSY, BUSY)


def _is_same_file(fd: int, name: str, folder: int) -> bool:
    try:
        there = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(fd), there)


class Draft:
    """A recording that is being written to `fd`. part: its name until `publish`."""

    def __init__(self, name: str, folder: int) -> None:
        """Begins a recording to `name` in the folder of descriptor `folder`, which the caller
        closes. Raises OSError as `claim` does."""
        self._name, self._folder = name, folder
        self._made = outputs.examine(name, outputs.RECORDING, folder) is None
        self._claimed = claim(name, folder)
        try:
            self.fd, self.part = outputs.draft(name, folder, 0o600)
        except OSError:
            os.close(self._claimed)
            raise
        lock(self.fd)

    def publish(self) -> None:
        """Renames the draft to the claimed file. Raises OSError, and changes nothing, if another
        file has replaced the claimed one."""
        if not _is_same_file(self._claimed, self._name, self._folder):
            raise OSError(errno.EEXIST, f"the file was replaced; the recording is in {self.part}")
        os.rename(self.part, self._name, src_dir_fd=self._folder, dst_dir_fd=self._folder)

    def discard(self) -> None:
        """Removes and closes a draft in which nothing was recorded. Also removes the empty file
        with its final name, if this draft created it."""
        with contextlib.suppress(OSError):
            os.unlink(self.part, dir_fd=self._folder)
            if self._made and _is_same_file(self._claimed, self._name, self._folder):
                os.unlink(self._name, dir_fd=self._folder)
        self.close()

    def close(self) -> None:
        """Closes the draft and the claimed file, which releases their locks."""
        os.close(self.fd)
        os.close(self._claimed)


def parts(path: str, folder: int | None = None) -> list[tuple[str, bool]]:
    """Returns the drafts of recordings to `path`, the newest last: the path of each, and whether a
    writer works on it. Only drafts of this user, the file's owner and the folder's owner count.
    folder: a descriptor of the path's folder; None: opened here."""
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
        owners = {os.geteuid(), os.fstat(fd).st_uid}
        with contextlib.suppress(OSError, ValueError):
            owners.add(os.stat(name, dir_fd=fd, follow_symlinks=False).st_uid)
        for entry in os.listdir(fd)[:PARTS_MAX]:
            word = entry.removeprefix(f"{name}.part-")
            if entry == word or len(word) != 8 or word.strip("0123456789abcdef"):
                continue
            with contextlib.suppress(OSError):
                found.append((*_inspect_draft(entry, fd, owners), os.path.join(directory, entry)))
    except OSError:
        pass
    finally:
        os.close(fd)
    return [(one, written) for _, written, one in sorted(found)]


def _inspect_draft(name: str, folder: int, owners: set[int]) -> tuple[int, bool]:
    """Returns when a draft was last written (ns), and whether a writer works on it. Raises OSError;
    EPERM for a draft of a user outside `owners`."""
    with inputs.opened(name, follow=False, folder=folder) as file:
        status = os.fstat(file.fileno())
        if status.st_uid not in owners:
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))
        return status.st_mtime_ns, not outputs.is_free(file.fileno())


def unfinished(path: str, folder: int | None = None) -> list[str]:
    """Returns the paths of drafts to `path` without a writer, the newest last: their writers were
    killed."""
    return [part for part, written in parts(path, folder) if not written]
