"""Paths of pump's own files, sockets and folders, and the private folder of a running job.

Looks up paths and creates folders; starts no process. Imports only fast modules, because pump-run
imports it. docs/decisions/0032-who-serves.md explains the choice of folders for sockets.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pump.base import trust

if TYPE_CHECKING:  # slow to import
    import socket

# struct sockaddr_un holds 108 bytes, including the terminating zero (unix(7)).
SOCKET_PATH_BYTES_MAX = 107
SOCKET_NAME = "socket"
NOTES_NAME = "clients"
"""File with notes of the job's processes, next to the job's socket (shim/life/job_end.c)."""
SERVICE_SOCKET = "/run/pump/socket"
"""Socket of the system service."""
USER_SERVICE_NAME = "service"
"""Socket of the user's own service, next to the folders of jobs."""
ACTIVATION_NAME = "jobs"
"""Socket for the shim's requests for a pumpd, next to the folders of jobs (pump enable;
shim/link/connect.c)."""
BASE_BYTES_MAX = 80
"""Longest path of a folder that holds jobs' folders: their names and the socket's are appended."""
SESSIONS = "/run/user"
"""Runtime folders of sessions, by user number (pam_systemd(8))."""
TEMPORARY = "/tmp"
TEMPORARY_BASE = re.compile(r"pump-[0-9a-f]{16}")
START_BASE = re.compile(r"run-[0-9a-f]{12}")
JOB_FOLDER = re.compile(r"(\d+)-[0-9a-f]{8}")
"""Name of a job's folder; begins with its first process's id (make_job_directory)."""
LEDGER = "/dev/shm/pump"
"""Folder of the host memory ledger for all users, if an administrator has created it."""

# O_NONBLOCK: a log file may be a pipe without a reader, and no thread may wait for one.
LOG_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
"""Flags for opening a log file, the same as in shim/base/log.c."""


def open_log(path: str) -> int:
    """Opens a log file for appending; creates the file if there is none. Raises OSError; with ENXIO
    for a pipe without a reader."""
    return os.open(path, LOG_FLAGS, 0o666)


def is_pipe(path: str) -> bool:
    """Returns whether a log file is a named pipe. The test does not open the pipe: closing it again
    would show the reader an end of file."""
    try:
        return stat.S_ISFIFO(os.stat(path).st_mode)
    except OSError:
        return False


class MissingFileError(Exception):
    """A file of the installation is missing; the text names the file and the remedy."""


class UnsafeDirectoryError(Exception):
    """The runtime directory cannot be trusted or created; the text gives the reason."""


def library(name: str, package: str = "pump") -> str:
    """Returns the absolute path of a file below an imported package's _lib, such as "libpump.so".

    PUMP_LIB_DIR, for developers of pump, replaces the installed pump/_lib; folders of other
    packages are then expected next to that pump folder. An editable installation has two folders
    called pump, and both are searched. Raises MissingFileError.
    """
    folders = [os.path.join(p, "_lib") for p in sys.modules[package].__path__]
    if override := os.environ.get("PUMP_LIB_DIR"):
        build = os.path.dirname(os.path.dirname(os.path.abspath(override)))
        folders = [override if package == "pump" else f"{build}/{package}/_lib"]
    for folder in folders:
        path = os.path.abspath(os.path.join(folder, name))
        if os.path.isfile(path):
            return path
    raise MissingFileError(f"{name} is missing from {' and '.join(folders)}; reinstall pump")


def isolated(*words: str) -> list[str]:
    """Returns the command that runs a part of pump in its own interpreter (pump/start.py)."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    start = os.path.join(package, "start.py")
    return [sys.executable, "-E", "-P", "-S", start, *words]


def runtime_bases() -> list[str]:
    """Returns the user's folders for sockets of jobs, in order of preference; may be empty. Does
    not create them.

    First comes the runtime folder of the user's session, also for processes outside the session
    (cron), then one below the user's state folder. Another XDG_RUNTIME_DIR replaces both.
    """
    chosen = _chosen_base()
    if chosen:
        return [chosen]
    usual = f"{SESSIONS}/{os.geteuid()}"
    return [*([f"{usual}/pump"] if _is_session(usual) else []), *_state_bases()]


def _chosen_base() -> str:
    """Returns the folder below an XDG_RUNTIME_DIR that is not the session's; "" for none."""
    session = os.environ.get("XDG_RUNTIME_DIR", "").rstrip("/")
    if session == f"{SESSIONS}/{os.geteuid()}" or not _is_session(session):
        return ""
    return f"{session}/pump"


def runtime_base() -> str:
    """Returns the first of runtime_bases(). Raises UnsafeDirectoryError if there is none."""
    for base in runtime_bases():
        return base
    raise UnsafeDirectoryError(
        "there is no private folder for sockets; set XDG_RUNTIME_DIR to a folder that only "
        "you can write"
    )


def _is_session(folder: str) -> bool:
    """Returns whether `folder` is a writable folder of this user, short enough for sockets."""
    if not folder.startswith("/") or len(os.fsencode(folder)) > 60:
        return False
    try:
        status = os.stat(folder)
    except OSError:
        return False
    ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
    return ours and os.access(folder, os.W_OK | os.X_OK)


def _state_bases() -> list[str]:
    """Returns a folder below the user's state folder; none if other users could replace it. The
    state may be on a network file system, so each boot of each machine has its own folder."""
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
    except FileNotFoundError:  # the existing part of the path is safe
        weak = None
    except OSError:
        return []
    return [] if weak else [base]


def job_socket(pid: int) -> str:
    """Returns the socket of the job whose first process is `pid`, "" if there is none."""
    return next((socket for first, socket in job_sockets() if first == pid), "")


def job_sockets() -> Iterator[tuple[int, str]]:
    """Yields the first process's id and the socket's path of each folder of a job of this user."""
    for base in job_bases():
        with contextlib.suppress(OSError):
            for name in os.listdir(base):
                if found := JOB_FOLDER.fullmatch(name):
                    yield int(found[1]), os.path.join(base, name, SOCKET_NAME)


def make_temporary_base() -> str:
    """Creates a folder below TEMPORARY for one job, for users without any other folder. Raises
    OSError."""
    base = os.path.join(TEMPORARY, f"pump-{os.urandom(8).hex()}")
    _mkdir(base)
    return base


def job_bases() -> list[str]:
    """Returns the existing private folders of this user that may hold jobs.

    Folders created for one job have random names. Their owner identifies them, because another
    user cannot forge the owner.
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
    """Returns the sockets that a job tries in order to find the service that shares GPUs.

    PUMP_SERVICE names one socket, or is "none". Without it: the system's, then the user's own.
    """
    named = os.environ.get("PUMP_SERVICE", "")
    if named:
        return [] if named == "none" else [os.path.abspath(named)]
    return [SERVICE_SOCKET, *(os.path.join(base, USER_SERVICE_NAME) for base in runtime_bases())]


def user_service_socket() -> str:
    """Returns the socket of the user's own service. Raises UnsafeDirectoryError if no folder is
    safe for the socket."""
    return os.path.join(runtime_base(), USER_SERVICE_NAME)


def activation_socket(environ: Mapping[str, str]) -> str:
    """Returns the socket for this user's requests for a pumpd. The shim derives the same path from
    its environment."""
    session = environ.get("XDG_RUNTIME_DIR", "")
    if not session.startswith("/"):
        session = f"{SESSIONS}/{os.geteuid()}"
    return f"{session}/pump/{ACTIVATION_NAME}"


def ledger_folder() -> str:
    """Returns the folder of the ledger, in which processes under pump record how much host memory
    they claim (docs/decisions/0021-host-ledger.md).

    Uses the machine's folder if root has created one that only root can write to. Otherwise creates
    the user's own, next to the folder of jobs. Raises UnsafeDirectoryError and OSError.
    """
    with contextlib.suppress(OSError):
        status = os.lstat(LEDGER)
        if stat.S_ISDIR(status.st_mode) and status.st_uid == 0 and not status.st_mode & 0o022:
            return LEDGER
    folder = f"{runtime_base()}-host"
    make_private(folder)
    return folder


def make_job_directory(base: str, job_pid: int) -> str:
    """Creates the private folder of one job (mode 0700) below `base` and returns its path.

    The name starts with the job's process id, so that folders of ended jobs can be recognised.
    Raises UnsafeDirectoryError if `base` is a symbolic link, belongs to another user or is open to
    others, and OSError if the folder cannot be created.
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
    """Removes the empty folder of a job, and its parent if that was created for this job."""
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
    """Creates a folder that only this user can access, and its parents, unless they exist. Returns
    whether the folder is new. Raises UnsafeDirectoryError if it is not private, and OSError."""
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
    """Raises UnsafeDirectoryError unless `base` is a folder that only this user can access. Raises
    OSError if `base` cannot be examined."""
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
    """Binds a socket to `path` with `mode`. Sets the mode by the process's umask, because a system
    call filter may refuse chmod; so only one thread may call this at a time. Raises OSError."""
    before = os.umask(0o777 & ~mode)
    try:
        listener.bind(path)
    finally:
        os.umask(before)


def learned_folder(environ: Mapping[str, str]) -> str:
    """Returns the folder in which a user's workers keep what they learned about programs:
    $XDG_CACHE_HOME/pump/learned, else below ~/.cache; "" if the environment names no home."""
    return users_path(environ, "XDG_CACHE_HOME", ".cache", "pump/learned")


def users_path(environ: Mapping[str, str], variable: str, usual: str, name: str) -> str:
    """Returns the path of `name` in a folder of the user: the folder that `variable` names, else
    `usual` below the home; "" if the environment names no home."""
    base = environ.get(variable, "")
    if not base.startswith("/"):
        home = environ.get("HOME", "")
        if not home.startswith("/"):
            return ""
        base = os.path.join(home, usual)
    return os.path.join(base, name)
