"""Reads files that others name or write: never blocks on a foreign pipe, never without a limit.

All code that reads files named by users, files in users' folders, or files shipped with pump uses
this module. The kernel's own files (/proc, /sys, /dev) need no such care. Standard library only,
because pump-run imports the module. outputs.py and folders.py write files.
"""

from __future__ import annotations

import errno
import io
import os
import re
import stat
from typing import BinaryIO, cast

_HANDED_OVER = re.compile(r"/dev/(stdin|fd/\d+)|/proc/self/fd/\d+")
"""Names of descriptors that the user's shell has opened, so their writers are known."""
TEXT_BYTES_MOST = 1 << 20
"""Size limit of files shipped with pump, and of other files that are always short."""
PIECE_BYTES = 1 << 16


def opened(path: str, *, follow: bool = True, folder: int | None = None) -> BinaryIO:
    """Opens the regular file at `path`, or the stream at a name such as /dev/stdin.

    Refuses any other pipe, device or socket, because its other end could block the reader forever.
    `follow`: whether `path` may be a symbolic link. `folder`: a descriptor that a relative `path`
    starts from. Raises OSError (IsADirectoryError for a folder) with the path in `filename`.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
    try:
        fd = os.open(path, flags if follow else flags | os.O_NOFOLLOW, dir_fd=folder)
    except ValueError:
        raise OSError(errno.EINVAL, "its name has a zero byte", path) from None
    try:
        mode = os.fstat(fd).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if not stat.S_ISREG(mode):
            if not _HANDED_OVER.fullmatch(path):
                raise OSError(errno.EINVAL, "not a regular file", path)
            os.set_blocking(fd, True)
        return os.fdopen(fd, "rb")
    except BaseException:
        os.close(fd)
        raise


def read(
    path: str, bytes_most: int = TEXT_BYTES_MOST, *, follow: bool = True, folder: int | None = None
) -> bytes:
    """Opens a file like `opened` and reads all of it. Raises OSError; with EFBIG if the file is
    longer than bytes_most."""
    with opened(path, follow=follow, folder=folder) as file:
        data = all_of(file, bytes_most + 1)
    if len(data) > bytes_most:
        raise OSError(errno.EFBIG, f"longer than {_size(bytes_most)}", path)
    return data


def all_of(file: BinaryIO, bytes_most: int) -> bytes:
    """Reads a file up to its end, but at most bytes_most bytes.

    Python handles signals after each piece. In one long read of a pipe, a signal between two system
    calls would not stop the wait for the writer, so Ctrl-C would have no effect.
    """
    pieces = []
    read1 = cast(io.BufferedReader, file).read1  # at most one system call
    while bytes_most and (piece := read1(min(bytes_most, PIECE_BYTES))):
        pieces.append(piece)
        bytes_most -= len(piece)
    return b"".join(pieces)


def start(path: str, bytes_most: int) -> bytes:
    """Opens a file like `opened` and reads its first bytes. Raises OSError."""
    with opened(path) as file:
        return file.read(bytes_most)


def text(path: str, bytes_most: int = TEXT_BYTES_MOST) -> str:
    """Reads a UTF-8 text; invalid bytes become surrogates. Raises OSError."""
    return read(path, bytes_most).decode("utf-8", "surrogateescape")


def _size(length_bytes: int) -> str:
    mib, kib = length_bytes >> 20, length_bytes >> 10
    return f"{mib} MiB" if mib else f"{kib} KiB"
