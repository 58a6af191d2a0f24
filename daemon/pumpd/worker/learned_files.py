"""The files in which a user's workers keep the learned access patterns of programs.

DESIGN
  A file contains one log (daemon/core/predict/learner_log.c): the operations, allocations and
  frees at the beginning of a run. The log's *sketch* precedes it: the kinds of the program's
  first operations, which a later run compares to find its file. A hash of the sketch is the name
  of the file. So runs of a program replace each other's file by a rename, even if they end at the
  same time.

  A file is ignored if other users could have written it, or if its content exceeds the bounds of
  the contract. The content may still be wrong: then predictions fail, as they do when a program
  changes.

  A file consists of HEAD, the sketch (uint64 each) and the body. The body is compressed (zlib). It
  contains steps and accesses, each as byte planes: the first bytes of all rows, then their second
  bytes, and so on. All values are little-endian. Files of another VERSION or format are ignored.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import struct
import zlib
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pump.base import folders, inputs, outputs
from pump.model.event_log import ACCESS, STEP, EventLog, Keys
from pump.wire.abi import lib

VERSION: Final = 1
MAGIC: Final = b"\x93PUMPLN\n"
HEAD: Final = struct.Struct("<8s7I")
"""Magic; version; CRC-32 of all that follows; numbers of the sketch's keys, operations, steps and
accesses; bytes of the body."""
SUMMED: Final = 16
"""Offset of the bytes that the checksum covers."""

SKETCH_OPERATIONS: Final = 1024
"""First operations of a program whose kinds form the sketch."""
FILE_BYTES_MAX: Final = 4 << 20
FILES_MAX: Final = 64
FOLDER_BYTES_MAX: Final = 64 << 20
NAMES_MAX: Final = 1024
"""Most names of a folder that are read."""

NAME: Final = re.compile(r"[0-9a-f]{16}\.learned(\.part-[0-9a-f]{8})?")
KIND: Final = outputs.Kind("what pump learned of a program", re.escape(MAGIC))


class Entry(NamedTuple):
    """A file's name, and the facts in its header."""

    name: str
    sketch: frozenset[int]
    operations: int


def sketch(keys: Keys) -> frozenset[int]:
    """Returns the kinds of a program's first operations."""
    return frozenset(keys[:SKETCH_OPERATIONS].tolist())


def name_of(sketched: frozenset[int]) -> str:
    """Returns the name of the file for programs with this sketch."""
    import hashlib  # loads OpenSSL's libcrypto, which only learning jobs need

    return hashlib.blake2b(_packed(sketched), digest_size=8).hexdigest() + ".learned"


def _packed(sketched: frozenset[int]) -> bytes:
    return struct.pack(f"<{len(sketched)}Q", *sorted(sketched))


# ---- one file ------------------------------------------------------------------------------


def encode(event_log: EventLog) -> bytes:
    """Returns the content of a file."""
    keys = event_log.keys()
    sketched = _packed(sketch(keys))
    body = zlib.compress(_to_planes(event_log.steps) + _to_planes(event_log.accesses), 1)
    counts = len(keys), len(event_log.steps), len(event_log.accesses), len(body)
    rest = struct.pack("<5I", len(sketched) // 8, *counts) + sketched + body
    return MAGIC + struct.pack("<2I", VERSION, zlib.crc32(rest)) + rest


def decode(data: bytes) -> EventLog:
    """Returns the event log in a file's content. Raises ValueError, with one line, for content that
    `encode` does not write."""
    keys, operations, steps, accesses, body_bytes = _unpack_head(data)
    begin = HEAD.size + 8 * keys
    if len(data) != begin + body_bytes:
        raise ValueError("it is truncated or too long")
    if zlib.crc32(data[SUMMED:]) != HEAD.unpack_from(data)[2]:
        raise ValueError("its checksum is wrong")
    if steps > lib.PUMP_LEARNER_STEPS or accesses > lib.PUMP_LEARNER_LOG_ACCESSES:
        raise ValueError("it has too many operations")
    plain_bytes = steps * STEP.itemsize + accesses * ACCESS.itemsize
    try:
        inflate = zlib.decompressobj()
        plain = inflate.decompress(data[begin:], plain_bytes + 1)
    except zlib.error:
        raise ValueError("it cannot be decompressed") from None
    if len(plain) != plain_bytes or not inflate.eof or inflate.unused_data:
        raise ValueError("its length does not match its header")
    cut = steps * STEP.itemsize
    event_log = EventLog(_from_planes(plain[:cut], STEP), _from_planes(plain[cut:], ACCESS))
    _check_bounds(event_log, operations)
    return event_log


def _unpack_head(data: bytes) -> tuple[int, int, int, int, int]:
    if len(data) < HEAD.size:
        raise ValueError("it is truncated")
    magic, version, _, keys, *rest = HEAD.unpack_from(data)
    if magic != MAGIC or version != VERSION:
        raise ValueError("it is from another version of pump, or another program")
    if keys > SKETCH_OPERATIONS or len(data) < HEAD.size + 8 * keys:
        raise ValueError("its sketch is truncated or too long")
    operations, steps, accesses, body_bytes = rest
    return keys, operations, steps, accesses, body_bytes


def _check_bounds(event_log: EventLog, operations: int) -> None:
    steps, accesses = event_log
    is_operation = steps["what"] == lib.PUMP_LEARNER_OPERATION
    sound = (
        np.count_nonzero(is_operation) == operations <= lib.PUMP_LEARNER_LOG_OPERATIONS
        and np.all(steps["what"] <= lib.PUMP_LEARNER_LOST)
        and np.all(steps["stream"] < lib.PUMP_MAX_STREAMS)
        and np.all(steps["count"] <= np.where(is_operation, lib.PUMP_MAX_EXTENTS, 0))
        and int(steps["count"].sum(dtype=np.uint64)) == len(accesses)
        and np.all(steps["slot"] < lib.PUMP_MAX_RANGES)
        and np.all(accesses["slot"] < lib.PUMP_MAX_RANGES)
        and not np.any(accesses["missing"])
    )
    if not sound:
        raise ValueError("one of its numbers is out of range")


def _to_planes(rows: NDArray[Any]) -> bytes:
    whole = np.ascontiguousarray(rows).view(np.uint8).reshape(len(rows), rows.dtype.itemsize)
    return whole.T.tobytes()


def _from_planes(planes: bytes, dtype: np.dtype[Any]) -> NDArray[Any]:
    whole = np.frombuffer(planes, np.uint8).reshape(dtype.itemsize, -1)
    return np.ascontiguousarray(whole.T).view(dtype).reshape(-1)


# ---- the folder ----------------------------------------------------------------------------


class Folder:
    """The open folder of learned patterns. Every call may raise OSError."""

    def __init__(self, path: str) -> None:
        """Creates the folder if it does not exist. Raises OSError; EPERM if other users can access
        the folder, or if it would be created in another user's folder."""
        folders.make(path, 0o700)
        self._fd = folders.opened(path)
        status = os.fstat(self._fd)
        if not _is_ours(status):
            self.close()
            raise OSError(errno.EPERM, "other users can change it")

    def close(self) -> None:
        """Closes the folder's descriptor."""
        os.close(self._fd)

    def entries(self) -> list[Entry]:
        """Returns the entries of all files; skips invalid files, and files that other users can
        access."""
        found = []
        for name in self._names():
            if not name.endswith(".learned"):
                continue
            with contextlib.suppress(OSError, ValueError):
                data = self._content(name, HEAD.size + 8 * SKETCH_OPERATIONS)
                keys, operations, *_ = _unpack_head(data)
                sketched = struct.unpack_from(f"<{keys}Q", data, HEAD.size)
                found.append(Entry(name, frozenset(sketched), operations))
        return found

    def read(self, name: str) -> EventLog:
        """Returns the log in a file, and makes the file the newest. Raises ValueError if the file
        contains none."""
        event_log = decode(self._content(name, FILE_BYTES_MAX))
        self.touch(name)
        return event_log

    def touch(self, name: str) -> None:
        """Makes a file the newest, so that it is removed last."""
        os.utime(name, dir_fd=self._fd, follow_symlinks=False)

    def write(self, name: str, data: bytes) -> None:
        """Writes a file atomically, then removes the oldest files beyond the limits. Raises
        OSError; EFBIG for more than FILE_BYTES_MAX."""
        if len(data) > FILE_BYTES_MAX:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        outputs.examine(name, KIND, self._fd)
        fd, part = outputs.draft(name, self._fd, 0o600)
        try:
            with os.fdopen(fd, "wb", 0) as file:
                view = memoryview(data)
                while view:
                    view = view[file.write(view) :]
            os.rename(part, name, src_dir_fd=self._fd, dst_dir_fd=self._fd)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(part, dir_fd=self._fd)
            raise
        self._bound()

    def _bound(self) -> None:
        """Removes the oldest files beyond the limits, including drafts of killed workers."""
        files = []
        for name in self._names():
            with contextlib.suppress(FileNotFoundError):
                status = os.stat(name, dir_fd=self._fd, follow_symlinks=False)
                files.append((status.st_mtime_ns, status.st_size, name))
        total_bytes = 0
        for count, (_, size, name) in enumerate(sorted(files, reverse=True), 1):
            total_bytes += size
            if count > FILES_MAX or total_bytes > FOLDER_BYTES_MAX:
                with contextlib.suppress(FileNotFoundError, IsADirectoryError):
                    os.unlink(name, dir_fd=self._fd)

    def _names(self) -> Iterator[str]:
        with os.scandir(self._fd) as found:
            for entry, _ in zip(found, range(NAMES_MAX), strict=False):
                if NAME.fullmatch(entry.name):
                    yield entry.name

    def _content(self, name: str, most: int) -> bytes:
        """Returns at most `most` bytes of a file. Raises ValueError if other users can access the
        file, or if it is too large."""
        with inputs.opened(name, follow=False, folder=self._fd) as file:
            status = os.fstat(file.fileno())
            alone = _is_ours(status) and status.st_nlink <= 1
            if not alone or status.st_size > FILE_BYTES_MAX:
                raise ValueError("other users can change it, or it is too large")
            return file.read(most)


def _is_ours(status: os.stat_result) -> bool:
    return status.st_uid == os.geteuid() and not status.st_mode & 0o077
