"""The files that a job's pumpd removes when it ends.

It removes pump's own folders alone, and only when they are empty: a job's folder is named
<pid>-<8 hex digits> and holds one socket and the notes of processes (pump/paths.py).
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from pump.paths import JOB_FOLDER, NOTES_NAME, SOCKET_NAME, remove_job_directory
from pump.processes import start_time
from pumpd.common.link import SocketFile, answers


class Place(SocketFile):
    """The socket of a job, and its folder."""

    @property
    def folder(self) -> str:
        """The job's folder, "" where it is not one of pump's own."""
        own = JOB_FOLDER.fullmatch(self.path.parent.name)
        return str(self.path.parent) if own else ""

    def leave(self) -> None:
        """Remove the socket, the folder, and what killed processes have left beside it."""
        self.remove()
        if self.folder:
            with contextlib.suppress(OSError):
                (self.path.parent / NOTES_NAME).unlink()
            remove_job_directory(str(self.path.parent))
            sweep(self.path.parent.parent)


def sweep(base: Path) -> None:
    """Remove the folders of ended jobs that a killed pumpd has left."""
    with contextlib.suppress(OSError):
        for folder in base.iterdir():
            match = JOB_FOLDER.fullmatch(folder.name)
            if match is None or _may_be_the_job(int(match[1])):
                continue
            left = folder / SOCKET_NAME
            if not answers(str(left)):
                with contextlib.suppress(OSError):
                    left.unlink(missing_ok=True)
                    (folder / NOTES_NAME).unlink(missing_ok=True)
                    folder.rmdir()


def _may_be_the_job(pid: int) -> bool:
    """Whether that process lives and is this user's. Containers that share the folder count
    processes from 1, as the host does, where those are other users'."""
    try:
        owner = Path(f"/proc/{pid}").stat().st_uid
    except OSError:
        return False
    return owner == os.geteuid() and start_time(pid) is not None
