"""Copies the current folder for each run, so that no run changes the user's files.

DESIGN
  A run works in the copy and never opens the originals for writing. So the originals need no repair
  afterwards, and killing any process of pump loses nothing. If the file system shares blocks
  (FICLONE of Btrfs, XFS and others), copies are free; otherwise their bytes are bounded. Files
  beyond the bounds are listed in `left`, and the copy has links to them. So the caller asks the
  user before runs may write to these originals.

  A link that leads out of the folder is replaced by a copy of its target: a checkpoint on another
  disk is as valuable as one here. A link that stays inside leads to the copy's own file.

Absolute names in the program's own code and settings are not redirected.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from collections import deque
from collections.abc import Callable, Collection, Iterator
from itertools import islice
from typing import NamedTuple

ENTRIES_MOST = 20_000
"""Most entries that are copied; a folder that would exceed the bound is left as a whole."""
ENVIRONMENT = ("pyvenv.cfg", "conda-meta")
"""A folder with one of these entries is a Python environment: runs share it."""
FICLONE = 0x40049409
"""Request number of ioctl_ficlone(2)."""
SEGMENT_BYTES = 1 << 30
"""Most bytes of one sendfile(2)."""
PERMISSIONS = 0o777
"""Bits of a mode that are copied: a copy by another user must not be set-user-ID."""


class Left(NamedTuple):
    """An entry too large to copy. place: its path in the folder. bytes: None for a folder."""

    place: str
    bytes: int | None


class _Entry(NamedTuple):
    """A file, folder or link. path: the original's, links resolved. place: its path in the copy."""

    path: str
    place: str
    status: os.stat_result

    def key(self) -> tuple[int, int]:
        """Returns the identity of the file, which all of its hard links share."""
        return self.status.st_dev, self.status.st_ino

    def bytes(self) -> int:
        """Returns the file's bytes without holes."""
        return min(self.status.st_size, self.status.st_blocks * 512)


class Original:
    """The contents of a copy of a folder. `without`: a folder that is not copied. `shared`: places
    in the folder that the user lets runs write to.

    `left`: entries that are too large to copy. Raises OSError if the folder itself cannot be read.
    """

    def __init__(self, folder: str, without: str = "", shared: Collection[str] = ()) -> None:
        self.folder = os.path.realpath(folder)
        self.left: list[Left] = []
        self._without = os.path.realpath(without) if without else ""
        self._shared = set(shared)
        self._folders: list[_Entry] = []
        self._files: list[_Entry] = []
        self._inside: list[tuple[str, str]] = []  # links within the folder: path, place
        self._direct: list[tuple[str, str]] = []  # originals that the copy links to: path, place
        self._places = {self.folder: ""}  # path: place of each copied folder
        self._entries_left = ENTRIES_MOST
        self._waiting = deque([_Entry(self.folder, "", os.stat(self.folder))])
        os.listdir(self.folder)  # raises if the folder cannot be read
        while self._waiting:
            self._read(self._waiting.popleft())

    @property
    def count(self) -> int:
        """Returns the number of files that are copied."""
        return len(self._files)

    @property
    def bytes(self) -> int:
        """Returns the bytes that are copied if the file system does not share blocks."""
        return sum({entry.key(): entry.bytes() for entry in self._files}.values())

    def bound(self, bytes_most: int) -> None:
        """Leaves out files beyond `bytes_most` bytes in total."""
        kept: list[_Entry] = []
        seen: set[tuple[int, int]] = set()
        for entry in self._files:
            more = 0 if entry.key() in seen else entry.bytes()
            if more <= bytes_most:
                seen.add(entry.key())
                bytes_most -= more
                kept.append(entry)
            elif os.access(entry.path, os.W_OK):
                self._leave_out(entry, more)
            else:
                self._direct.append((entry.path, entry.place))
        self._files = kept

    def shares_blocks_with(self, folder: str) -> bool:
        """Returns whether files copied to `folder` share their blocks with the originals."""
        for entry in self._files:
            if entry.bytes():
                with (
                    contextlib.suppress(OSError),
                    open(entry.path, "rb") as source,
                    tempfile.TemporaryFile(dir=folder) as copy,
                ):
                    fcntl.ioctl(copy, FICLONE, source.fileno())
                    return True
                return False
        return False

    def copy(self, target: str, stopped: Callable[[], object]) -> None:
        """Makes the folder `target` a copy, or a part of one if `stopped` becomes true. Raises
        OSError."""
        first: dict[tuple[int, int], str] = {}
        for entry in self._folders:
            os.mkdir(os.path.join(target, entry.place), 0o700)
        for entry in self._files:
            if stopped():
                return
            there = os.path.join(target, entry.place)
            if entry.key() in first:
                os.link(first[entry.key()], there)
            elif _copied(entry, there):
                first[entry.key()] = there
        for path, place in self._inside:
            os.symlink(self._link_text(target, path, place), os.path.join(target, place))
        for path, place in self._direct:
            os.symlink(path, os.path.join(target, place))
        for entry in reversed(self._folders):
            _copy_status(entry, os.path.join(target, entry.place))

    def moved(self, word: str, target: str) -> str:
        """Returns a command's argument for a run in the copy at `target`: the absolute path of a
        copied entry, also after `=`, becomes its path in the copy."""
        front, equals, path = word.rpartition("=")
        place = self._place(os.path.realpath(path)) if path.startswith("/") else None
        there = os.path.normpath(os.path.join(target, place or ""))
        if place is None or not _is_below(os.path.realpath(there), os.path.realpath(target)):
            return word
        return f"{front}{equals}{there}"

    def _read(self, folder: _Entry) -> None:
        is_root = not folder.place
        most = None if is_root else self._entries_left + 1
        try:
            with os.scandir(folder.path) as entries:
                names = sorted(entry.name for entry in islice(entries, most))
        except PermissionError:
            names = []
        if not is_root and len(names) > self._entries_left:
            self._leave_out(folder, None)
            return
        self._folders.append(folder)
        for name in names:
            self._entries_left -= 1
            with contextlib.suppress(FileNotFoundError):
                path = os.path.join(folder.path, name)
                self._add(_Entry(path, os.path.join(folder.place, name), os.lstat(path)))

    def _add(self, entry: _Entry) -> None:
        mode = entry.status.st_mode
        if entry.path == self._without:
            return
        if entry.place in self._shared:
            self._direct.append((entry.path, entry.place))
        elif stat.S_ISLNK(mode):
            self._add_link(entry)
        elif stat.S_ISDIR(mode):
            self._add_folder(entry)
        elif not stat.S_ISREG(mode):  # sockets, pipes and devices connect to others
            self._direct.append((entry.path, entry.place))
        elif self._entries_left < 0:
            self._leave_out(entry, entry.bytes())
        else:
            self._files.append(entry)

    def _add_link(self, entry: _Entry) -> None:
        real = os.path.realpath(entry.path)
        if self._place(_next_target(entry.path)) is not None or self._place(real) is not None:
            self._inside.append((entry.path, entry.place))
        elif _is_below(self.folder, real):
            self._leave_out(entry, None)
        elif not os.path.exists(real) or real == self._without:
            self._direct.append((entry.path, entry.place))
        else:
            target = _Entry(real, entry.place, os.stat(real))
            if stat.S_ISDIR(target.status.st_mode):
                self._places[real] = entry.place
            self._add(target)

    def _add_folder(self, entry: _Entry) -> None:
        if any(os.path.lexists(os.path.join(entry.path, name)) for name in ENVIRONMENT):
            self._direct.append((entry.path, entry.place))
        elif os.path.ismount(entry.path) or self._entries_left <= 0:
            self._leave_out(entry, None)
        else:
            self._waiting.append(entry)

    def _leave_out(self, entry: _Entry, count: int | None) -> None:
        self._direct.append((entry.path, entry.place))
        self.left.append(Left(entry.place, count))

    def _place(self, path: str) -> str | None:
        """Returns the place of `path` in the copy; None if the copy does not contain it."""
        for above in _and_above(path):
            if above in self._places:
                below = os.path.relpath(path, above)
                return os.path.normpath(os.path.join(self._places[above], below))
        return None

    def _link_text(self, target: str, path: str, place: str) -> str:
        """Returns a link's text in the copy: the original's, if that leads to the right place."""
        there = self._place(_next_target(path)) or self._place(os.path.realpath(path)) or "."
        with contextlib.suppress(OSError):
            text = os.readlink(path)
            beside = os.path.normpath(os.path.join(os.path.dirname(place), text))
            if not text.startswith("/") and beside == there:
                return text
        return os.path.normpath(os.path.join(target, there))


def remove(folder: str) -> None:
    """Removes a folder with its contents, even if a run has removed its owner's permissions."""
    if os.path.islink(folder):
        return
    for here, names, _ in os.walk(folder):
        for name in names:
            path = os.path.join(here, name)
            if not os.path.islink(path):
                with contextlib.suppress(OSError):
                    os.chmod(path, 0o700)
    shutil.rmtree(folder, ignore_errors=True)


def _copied(entry: _Entry, there: str) -> bool:
    """Copies a file with its mode and times. An unreadable file becomes an unreadable empty file.
    Returns False for a file that was removed or replaced: the copy lacks it. Raises OSError."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        source = os.open(entry.path, flags)
    except PermissionError:
        os.close(os.open(there, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0))
        return True
    except OSError:
        return False
    try:
        if not os.path.samestat(os.fstat(source), entry.status):
            return False
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        copy = os.open(there, flags, 0o600)
        try:
            _fill(copy, source)
        finally:
            os.close(copy)
    finally:
        os.close(source)
    _copy_status(entry, there)
    return True


def _fill(copy: int, source: int) -> None:
    """Copies the data of a file, and keeps its holes."""
    with contextlib.suppress(OSError):
        fcntl.ioctl(copy, FICLONE, source)
        return
    size = os.fstat(source).st_size
    end = 0
    for begin, end in _data(source, size):
        at = os.lseek(copy, begin, os.SEEK_SET)
        while at < end:
            moved = os.sendfile(copy, source, at, min(end - at, SEGMENT_BYTES))
            if not moved:  # the file has become shorter
                return
            at += moved
    if end < size:
        os.truncate(copy, size)


def _data(source: int, size: int) -> Iterator[tuple[int, int]]:
    """Yields the begin and end of each part of a file that holds data."""
    end = 0
    while end < size:
        try:
            begin = os.lseek(source, end, os.SEEK_DATA)
            end = min(os.lseek(source, begin, os.SEEK_HOLE), size)
        except OSError:  # ENXIO: only a hole follows
            return
        yield begin, end


def _copy_status(entry: _Entry, there: str) -> None:
    with contextlib.suppress(OSError):
        os.utime(there, ns=(entry.status.st_atime_ns, entry.status.st_mtime_ns))
        os.chmod(there, entry.status.st_mode & PERMISSIONS)


def _next_target(link: str) -> str:
    """Returns a link's target after one step, its folders resolved; it may be another link."""
    head, tail = os.path.split(os.path.join(os.path.dirname(link), os.readlink(link)))
    if tail in ("", ".", ".."):
        return os.path.realpath(link)
    return os.path.join(os.path.realpath(head), tail)


def _is_below(path: str, folder: str) -> bool:
    return folder in _and_above(path)


def _and_above(path: str) -> Iterator[str]:
    while True:
        yield path
        above = os.path.dirname(path)
        if above == path:
            return
        path = above
