"""Where pump's own files lie, and the private folder of a running job.

Only look-ups and the creation of the folder; nothing here starts a process.
Imported by pump-run, so it uses nothing that is slow to import.
"""

from __future__ import annotations

import contextlib
import os
import stat

import pump

# struct sockaddr_un holds 108 bytes, the closing zero included.
SOCKET_PATH_BYTES_MAX = 107
SOCKET_NAME = "socket"
SERVICE_SOCKET = "/run/pump/socket"
"""Of the system service."""
USER_SERVICE_NAME = "service"
"""In the user's own folder, beside the folders of jobs."""
LEDGER = "/dev/shm/pump"
"""Where the jobs of all users tell each other of host memory, if an administrator has made it."""


class MissingFileError(Exception):
    """A file of the installation is not there; the text names it and the remedy."""


class UnsafeDirectoryError(Exception):
    """The runtime directory cannot be trusted or made; the text says why."""


def library(name: str) -> str:
    """Absolute path of a file below pump/_lib, e.g. "libpump.so" or "virtual/libcuda.so.1".

    PUMP_LIB_DIR, for those who work on pump, names another folder than the installed
    one. An editable installation has two folders called pump, so all are looked at.
    Raises MissingFileError.
    """
    override = os.environ.get("PUMP_LIB_DIR")
    folders = [override] if override else [os.path.join(p, "_lib") for p in pump.__path__]
    for folder in folders:
        path = os.path.abspath(os.path.join(folder, name))
        if os.path.isfile(path):
            return path
    raise MissingFileError(
        f"{name} is missing from {' and '.join(folders)}; install pump again (pip install .)"
    )


def runtime_base() -> str:
    """The user's folder for sockets of jobs: the session's runtime folder, else below /tmp.

    Not created here. XDG_RUNTIME_DIR counts only if it is a real folder of ours that can be
    written to, and short enough for a socket's path.
    """
    session = os.environ.get("XDG_RUNTIME_DIR", "")
    if session.startswith("/") and len(session) <= 60:
        try:
            status = os.stat(session)
        except OSError:
            status = None
        ours = status and stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
        if ours and os.access(session, os.W_OK | os.X_OK):
            return os.path.join(session, "pump")
    return f"/tmp/pump-{os.geteuid()}"


def service_sockets() -> list[str]:
    """Where a job looks for a service that shares GPUs, in order.

    PUMP_SERVICE names one socket, or is "none"; else that of the system, then the user's own.
    """
    named = os.environ.get("PUMP_SERVICE", "")
    if named:
        return [] if named == "none" else [os.path.abspath(named)]
    return [SERVICE_SOCKET, user_service_socket()]


def user_service_socket() -> str:
    """Where the user's own service listens."""
    return os.path.join(runtime_base(), USER_SERVICE_NAME)


def ledger_folder() -> str:
    """The folder in which processes under pump tell each other what they claim of the host's
    memory: the machine's, where root has made one that all may write to, else the user's own,
    beside that of jobs, which is made. Raises UnsafeDirectoryError and OSError.
    """
    with contextlib.suppress(OSError):
        status = os.lstat(LEDGER)
        for_all = stat.S_ISDIR(status.st_mode) and status.st_mode & 0o1003 == 0o1003
        if for_all and status.st_uid == 0:
            return LEDGER
    folder = f"{runtime_base()}-host"
    make_private(folder)
    return folder


def make_job_directory(base: str, job_pid: int) -> str:
    """Creates the private folder of one job (mode 0700) below `base` and returns it.

    Its name starts with the job's process id, by which leftovers are recognised.
    Raises UnsafeDirectoryError when `base` is a symbolic link, another's, open to others,
    or cannot be made.
    """
    try:
        make_private(base)
        directory = os.path.join(base, f"{job_pid}-{os.urandom(4).hex()}")
        _mkdir(directory)
    except OSError as error:
        raise UnsafeDirectoryError(f"cannot make {base}: {error.strerror}") from None
    if len(os.fsencode(os.path.join(directory, SOCKET_NAME))) > SOCKET_PATH_BYTES_MAX:
        os.rmdir(directory)
        raise UnsafeDirectoryError(f"{base} is too long a path for a socket")
    return directory


def make_private(base: str) -> None:
    """Creates a folder for its user alone, unless it is there. Raises UnsafeDirectoryError
    for one that is not, and OSError."""
    with contextlib.suppress(FileExistsError):
        _mkdir(base)
    status = os.lstat(base)  # lstat: a link planted by somebody else must not lead us away
    if stat.S_ISLNK(status.st_mode):
        raise UnsafeDirectoryError(f"{base} is a symbolic link; remove it")
    if not stat.S_ISDIR(status.st_mode):
        raise UnsafeDirectoryError(f"{base} is not a folder; remove it")
    if status.st_uid != os.geteuid():
        raise UnsafeDirectoryError(f"{base} belongs to user {status.st_uid}; have it removed")
    if status.st_mode & 0o077:
        raise UnsafeDirectoryError(f"{base} is open to others; run: chmod 700 {base}")
    if status.st_mode & 0o700 != 0o700:
        raise UnsafeDirectoryError(f"{base} is closed to its owner; run: chmod 700 {base}")


def _mkdir(folder: str) -> None:
    os.mkdir(folder, 0o700)
    os.chmod(folder, 0o700)  # whatever the umask has taken away
