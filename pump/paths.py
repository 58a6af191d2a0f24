"""Paths of pump's own files, sockets and folders, and the private folder of a running job.

Looks paths up and makes folders; starts no process. Uses nothing that is slow to import,
because pump-run imports it. Why sockets' folders lie there: docs/decisions/0032-who-serves.md.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

import pump
from pump import trust

if TYPE_CHECKING:  # slow to import
    import socket
    from types import ModuleType

# struct sockaddr_un holds 108 bytes, the closing zero included (unix(7)).
SOCKET_PATH_BYTES_MAX = 107
SOCKET_NAME = "socket"
NOTES_NAME = "clients"
"""What processes of the job note beside its socket (shim/life/job_end.c)."""
SERVICE_SOCKET = "/run/pump/socket"
"""Of the system service."""
USER_SERVICE_NAME = "service"
"""In the user's own folder, beside the folders of jobs."""
ACTIVATION_NAME = "jobs"
"""There, where the shim asks for pumpds (pump enable; shim/link/connect.c)."""
BASE_BYTES_MAX = 80
"""Of a folder that holds jobs' folders: their names and the socket's follow."""
SESSIONS = "/run/user"
"""Runtime folders of sessions, by user number (pam_systemd(8))."""
TEMPORARY = "/tmp"
TEMPORARY_BASE = re.compile(r"pump-[0-9a-f]{16}")
START_BASE = re.compile(r"run-[0-9a-f]{12}")
JOB_FOLDER = re.compile(r"(\d+)-[0-9a-f]{8}")
"""Of one job, named after the job's first process (make_job_directory)."""
LEDGER = "/dev/shm/pump"
"""Folder of the ledger of host memory for all users, if an administrator has made it."""

# Not blocking: a log file may be a pipe without a reader, and no thread may wait for one.
LOG_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
"""Of opening a log file; shim/base/log.c has the same."""


def open_log(path: str) -> int:
    """Opens a log file to append to it, and makes it if there is none. Raises OSError; ENXIO for
    a pipe without a reader."""
    return os.open(path, LOG_FLAGS, 0o666)


def is_pipe(path: str) -> bool:
    """Whether a log file is a named pipe. pump does not open one to test it: when it closed the
    pipe again, the reader would see the end of the file."""
    try:
        return stat.S_ISFIFO(os.stat(path).st_mode)
    except OSError:
        return False


class MissingFileError(Exception):
    """A file of the installation is not there; the text names it and the remedy."""


class UnsafeDirectoryError(Exception):
    """The runtime directory cannot be trusted or made; the text says why."""


def library(name: str, package: ModuleType = pump) -> str:
    """Absolute path of a file below a package's _lib, such as "libpump.so".

    PUMP_LIB_DIR, for developers of pump, names another pump/_lib than the installed one; the
    folders of other packages lie beside that pump. An editable installation has two folders
    called pump: both are searched. Raises MissingFileError.
    """
    folders = [os.path.join(p, "_lib") for p in package.__path__]
    if override := os.environ.get("PUMP_LIB_DIR"):
        build = os.path.dirname(os.path.dirname(os.path.abspath(override)))
        folders = [override if package is pump else f"{build}/{package.__name__}/_lib"]
    for folder in folders:
        path = os.path.abspath(os.path.join(folder, name))
        if os.path.isfile(path):
            return path
    raise MissingFileError(f"{name} is missing from {' and '.join(folders)}; reinstall pump")


def isolated(*words: str) -> list[str]:
    """The command that runs a part of pump in an interpreter of its own (pump/start.py)."""
    start = os.path.join(os.path.dirname(os.path.abspath(__file__)), "start.py")
    return [sys.executable, "-E", "-P", "-S", start, *words]


def runtime_bases() -> list[str]:
    """The user's folders for sockets of jobs, in order of preference; may be none. Not created
    here.

    The runtime folder of the user's session, also for processes outside of it (cron); then a
    folder below the user's state. Another XDG_RUNTIME_DIR is used alone.
    """
    chosen = _chosen_base()
    if chosen:
        return [chosen]
    usual = f"{SESSIONS}/{os.geteuid()}"
    return [*([f"{usual}/pump"] if _is_session(usual) else []), *_state_bases()]


def _chosen_base() -> str:
    """Below an XDG_RUNTIME_DIR that is not the session's; "" for none."""
    session = os.environ.get("XDG_RUNTIME_DIR", "").rstrip("/")
    if session == f"{SESSIONS}/{os.geteuid()}" or not _is_session(session):
        return ""
    return f"{session}/pump"


def runtime_base() -> str:
    """The first of runtime_bases(). Raises UnsafeDirectoryError where there is none."""
    for base in runtime_bases():
        return base
    raise UnsafeDirectoryError(
        "there is no private folder for sockets; set XDG_RUNTIME_DIR to a folder that only "
        "you can write"
    )


def _is_session(folder: str) -> bool:
    """Whether it is a writable folder of this user, short enough for sockets."""
    if not folder.startswith("/") or len(os.fsencode(folder)) > 60:
        return False
    try:
        status = os.stat(folder)
    except OSError:
        return False
    ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
    return ours and os.access(folder, os.W_OK | os.X_OK)


def _state_bases() -> list[str]:
    """A folder below the user's state. It may lie on a network file system, so each boot of each
    machine has its own. Empty where other users could replace it."""
    state = os.environ.get("XDG_STATE_HOME", "")
    if not state.startswith("/"):
        state = os.path.join(os.path.expanduser("~"), ".local/state")
    try:
        with open("/proc/sys/kernel/random/boot_id", "rb") as file:
            start = file.read().decode().replace("-", "")[:12]
    except OSError:
        start = "0" * 12
    base = f"{state}/pump/run-{start}"
    if not base.startswith("/") or len(os.fsencode(base)) > BASE_BYTES_MAX:
        return []
    try:
        weak = trust.weakness(base, (os.geteuid(),))
    except FileNotFoundError:  # what is there of it is sound
        weak = None
    except OSError:
        return []
    return [] if weak else [base]


def job_socket(pid: int) -> str:
    """The socket of the job whose first process is `pid`, "" where there is none."""
    for base in job_bases():
        with contextlib.suppress(OSError):
            for name in os.listdir(base):
                found = JOB_FOLDER.fullmatch(name)
                if found and int(found[1]) == pid:
                    return os.path.join(base, name, SOCKET_NAME)
    return ""


def make_temporary_base() -> str:
    """A new folder below TEMPORARY for one job, where the user has no other. Raises OSError."""
    base = os.path.join(TEMPORARY, f"pump-{os.urandom(8).hex()}")
    _mkdir(base)
    return base


def job_bases() -> list[str]:
    """Existing private folders of this user that may hold jobs.

    Folders made for one job have random names; they are recognised by their owner, which
    another user cannot forge.
    """
    bases = runtime_bases()
    if not _chosen_base():
        with contextlib.suppress(OSError):
            names = sorted(filter(TEMPORARY_BASE.fullmatch, os.listdir(TEMPORARY)))
            bases += [os.path.join(TEMPORARY, name) for name in names]
    return [base for base in bases if _is_private(base)]


def _is_private(folder: str) -> bool:
    try:
        check_private(folder)
    except (UnsafeDirectoryError, OSError):
        return False
    return True


def service_sockets() -> list[str]:
    """The sockets at which a job looks for the service that shares GPUs, in order.

    PUMP_SERVICE names one socket, or is "none"; else the system's, then the user's own.
    """
    named = os.environ.get("PUMP_SERVICE", "")
    if named:
        return [] if named == "none" else [os.path.abspath(named)]
    return [SERVICE_SOCKET, *(os.path.join(base, USER_SERVICE_NAME) for base in runtime_bases())]


def user_service_socket() -> str:
    """The socket of the user's own service. Raises UnsafeDirectoryError where no folder is safe
    for it."""
    return os.path.join(runtime_base(), USER_SERVICE_NAME)


def activation_socket(environ: Mapping[str, str]) -> str:
    """Where a process of this user asks for a pumpd, as the shim finds it by its environment."""
    session = environ.get("XDG_RUNTIME_DIR", "")
    if not session.startswith("/"):
        session = f"{SESSIONS}/{os.geteuid()}"
    return f"{session}/pump/{ACTIVATION_NAME}"


def ledger_folder() -> str:
    """The folder of the ledger, in which processes under pump write how much host memory they
    claim (docs/decisions/0021-host-ledger.md).

    The machine's, where root has made one to which root alone can add; else the user's own,
    beside the folder of jobs, which is made. Raises UnsafeDirectoryError and OSError.
    """
    with contextlib.suppress(OSError):
        status = os.lstat(LEDGER)
        if stat.S_ISDIR(status.st_mode) and status.st_uid == 0 and not status.st_mode & 0o022:
            return LEDGER
    folder = f"{runtime_base()}-host"
    make_private(folder)
    return folder


def make_job_directory(base: str, job_pid: int) -> str:
    """Create the private folder of one job (mode 0700) below `base` and return it.

    Its name starts with the process id of the job, so that folders of ended jobs are recognised.
    Raises UnsafeDirectoryError when `base` is a symbolic link, another user's or open to other
    users, and OSError when it cannot be made.
    """
    if make_private(base):
        _remove_earlier_starts(base)
    directory = os.path.join(base, f"{job_pid}-{os.urandom(4).hex()}")
    _mkdir(directory)
    if len(os.fsencode(os.path.join(directory, SOCKET_NAME))) > SOCKET_PATH_BYTES_MAX:
        os.rmdir(directory)
        raise UnsafeDirectoryError(f"{base} is too long for a socket's path")
    return directory


def remove_job_directory(directory: str) -> None:
    """Remove the empty folder of a job, and the one above it if it was made for this job."""
    base = os.path.dirname(directory)
    with contextlib.suppress(OSError):
        os.rmdir(directory)
        if os.path.dirname(base) == TEMPORARY and TEMPORARY_BASE.fullmatch(os.path.basename(base)):
            os.rmdir(base)


def _remove_earlier_starts(base: str) -> None:
    """Removes the empty folders of earlier boots, if `base` is the folder of this boot."""
    if START_BASE.fullmatch(os.path.basename(base)):
        above = os.path.dirname(base)
        for name in filter(START_BASE.fullmatch, os.listdir(above)):
            if name != os.path.basename(base):
                with contextlib.suppress(OSError):
                    os.rmdir(os.path.join(above, name))


def make_private(base: str) -> bool:
    """Create a folder for this user alone, unless it exists, and those above it. Returns whether
    it was made. Raises UnsafeDirectoryError for a folder that is not private, and OSError."""
    missing = [base]
    while not os.path.lexists(os.path.dirname(missing[-1])):
        missing.append(os.path.dirname(missing[-1]))
    made = False
    for folder in reversed(missing):
        try:
            _mkdir(folder)
            made = True
        except FileExistsError:
            made = False
    check_private(base)
    return made


def check_private(base: str) -> None:
    """Raises UnsafeDirectoryError unless it is a folder of this user alone, and OSError."""
    status = os.lstat(base)  # lstat: never follow a link that another user has put there
    if stat.S_ISLNK(status.st_mode):
        raise UnsafeDirectoryError(f"{base} is a symbolic link; remove it")
    if not stat.S_ISDIR(status.st_mode):
        raise UnsafeDirectoryError(f"{base} is not a folder; remove it")
    if status.st_uid != os.geteuid():
        raise UnsafeDirectoryError(f"{base} belongs to user {status.st_uid}; have it removed")
    if status.st_mode & 0o077:
        raise UnsafeDirectoryError(f"{base} is open to others; run: chmod 700 {base}")
    if status.st_mode & 0o700 != 0o700:
        raise UnsafeDirectoryError(f"{base} is not accessible to its owner; run: chmod 700 {base}")


def _mkdir(folder: str) -> None:
    os.mkdir(folder, 0o700)
    if os.stat(folder).st_mode & 0o700 != 0o700:  # mkdir masks the mode by the umask
        os.chmod(folder, 0o700)


def bind(listener: socket.socket, path: str, mode: int) -> None:
    """Bind a socket to `path` with that mode. By the umask, for a filter of system calls may refuse
    chmod; of one thread alone. Raises OSError."""
    before = os.umask(0o777 & ~mode)
    try:
        listener.bind(path)
    finally:
        os.umask(before)


def learned_folder(environ: Mapping[str, str]) -> str:
    """The folder in which a user's workers keep what they learned of programs:
    $XDG_CACHE_HOME/pump/learned, else below ~/.cache; "" where the environment names no home."""
    base = environ.get("XDG_CACHE_HOME", "")
    if not base.startswith("/"):
        home = environ.get("HOME", "")
        if not home.startswith("/"):
            return ""
        base = os.path.join(home, ".cache")
    return os.path.join(base, "pump", "learned")
