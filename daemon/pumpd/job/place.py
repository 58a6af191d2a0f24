"""Removes the files of a job's pumpd when it ends.

Only pump's own folders are removed, and only when they are empty. A job's folder is named
<pid>-<8 hex digits> and contains one socket and the notes of processes (pump/base/paths.py).
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from pump.base.paths import JOB_FOLDER, NOTES_NAME, SOCKET_NAME, remove_job_directory
from pump.base.processes import start_time
from pumpd.common.link import SocketFile, answers


class Place(SocketFile):
    """The socket of a job, and the job's folder."""

    @property
    def folder(self) -> str:
        """Returns the job's folder, or "" if pump did not name it."""
        own = JOB_FOLDER.fullmatch(self.path.parent.name)
        return str(self.path.parent) if own else ""

    def leave(self) -> None:
        """Removes the socket, the job's folder, and folders that killed pumpds left next to it."""
        self.remove()
        if self.folder:
            with contextlib.suppress(OSError):
                (self.path.parent / NOTES_NAME).unlink()
            remove_job_directory(str(self.path.parent))
            sweep(self.path.parent.parent)


def sweep(base: Path) -> None:
    """Removes folders of ended jobs that killed pumpds have left in `base`."""
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
    """Returns whether that process is alive and belongs to this user. In containers that share the
    folder, process IDs also start at 1, so the same ID may be another user's process here."""
    try:
        owner = Path(f"/proc/{pid}").stat().st_uid
    except OSError:
        return False
    return owner == os.geteuid() and start_time(pid) is not None
