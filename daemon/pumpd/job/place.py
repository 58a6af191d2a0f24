"""The socket's place in the file system: what pumpd removes when it ends.

Only pump's own folders are ever removed, and only when they are empty: a job's folder
is called <pid>-<8 hex digits> and holds one socket (pump/paths.py).
"""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

from pump.paths import SOCKET_NAME, remove_job_directory
from pumpd.common.jobwatch import start_time
from pumpd.common.link import answers

JOB_DIRECTORY = re.compile(r"(\d+)-[0-9a-f]{8}")


class Place:
    """A socket's path while this process listens there."""

    def __init__(self, path: str) -> None:
        self.path = Path(path)
        self._inode = self._look()

    def _look(self) -> tuple[int, int] | None:
        try:
            status = self.path.lstat()
        except OSError:
            return None
        return status.st_dev, status.st_ino

    def leave(self) -> None:
        """Removes the socket, unless it is another's by now, the folder, and leftovers."""
        if self._inode is not None and self._look() == self._inode:
            with contextlib.suppress(OSError):
                self.path.unlink()
        if JOB_DIRECTORY.fullmatch(self.path.parent.name):
            remove_job_directory(str(self.path.parent))
            sweep(self.path.parent.parent)


def sweep(base: Path) -> None:
    """Removes folders of jobs that have ended and whose pumpd was killed before it could."""
    with contextlib.suppress(OSError):
        for folder in base.iterdir():
            match = JOB_DIRECTORY.fullmatch(folder.name)
            if match is None or start_time(int(match[1])) is not None:
                continue
            left = folder / SOCKET_NAME
            if not answers(str(left)):
                with contextlib.suppress(OSError):
                    left.unlink(missing_ok=True)
                    folder.rmdir()
