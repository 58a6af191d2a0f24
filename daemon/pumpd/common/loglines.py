"""Log lines of pumpd's processes: one line per message, even if it contains line breaks.

The shim writes to the same file by the same rules (shim/base/log.c). The file is opened for each
line; the line is lost if a pipe has no reader or the disk is full.
"""

from __future__ import annotations

import contextlib
import logging
import os

from pump.base import paths
from pump.base.names import one_line


class Formatter(logging.Formatter):
    """Keeps a message on one line; lines of a traceback follow and begin with "| "."""

    def format(self, record: logging.LogRecord) -> str:
        """Returns the record as lines without control characters."""
        first, *more = super().format(record).splitlines() or [""]
        return "\n".join([one_line(first), *(f"| {one_line(line)}" for line in more)])


class FileHandler(logging.Handler):
    """Appends to a file or a named pipe, with one write per record, so that lines of several
    processes do not mix."""

    def __init__(self, path: str) -> None:
        """Raises OSError if the file cannot be written to; a pipe needs no reader yet."""
        super().__init__()
        self._path = path
        if not paths.is_pipe(path):
            os.close(paths.open_log(path))

    def emit(self, record: logging.LogRecord) -> None:
        """Appends the record; the record is lost if the file cannot be written to."""
        try:
            line = self.format(record) + "\n"
        except Exception:
            self.handleError(record)
            return
        with contextlib.suppress(OSError):
            fd = paths.open_log(self._path)
            try:
                os.write(fd, line.encode(errors="backslashreplace"))
            finally:
                os.close(fd)
