"""The files that a job's pumpd removes when it ends.

It removes pump's own folders alone, and only when they are empty: a job's folder is named
<pid>-<8 hex digits> and holds one socket (pump/paths.py).
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from pump.paths import JOB_FOLDER, SOCKET_NAME, remove_job_directory
from pumpd.common.jobwatch import start_time
from pumpd.common.link import SocketFile, answers


class Place(SocketFile):
    """The socket of a job, and its folder."""

    def leave(self) -> None:
        """Remove the socket, the folder, and what killed processes have left beside it."""
        self.remove()
        if JOB_FOLDER.fullmatch(self.path.parent.name):
            remove_job_directory(str(self.path.parent))
            sweep(self.path.parent.parent)


def sweep(base: Path) -> None:
    """Remove the folders of ended jobs that a killed pumpd has left."""
    with contextlib.suppress(OSError):
        for folder in base.iterdir():
            match = JOB_FOLDER.fullmatch(folder.name)
            if match is None or start_time(int(match[1])) is not None:
                continue
            left = folder / SOCKET_NAME
            if not answers(str(left)):
                with contextlib.suppress(OSError):
                    left.unlink(missing_ok=True)
                    folder.rmdir()
