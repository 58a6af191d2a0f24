"""Finds the job's command as a shell does, and executes it in place of this process."""

from __future__ import annotations

import errno
import os
import signal
import stat
from collections.abc import Mapping

from pump.cli.support.lines import BadInputError

NOT_EXECUTABLE = 126
NOT_FOUND = 127


def find(name: str, environ: Mapping[str, str]) -> str:
    """Returns the path of the program `name`. Raises BadInputError with status 126 or 127."""
    if "/" in name:
        reason = _why_not(name)
        if reason is None:
            return name
        missing = reason in (errno.ENOENT, errno.ENOTDIR)
        raise BadInputError(
            f"{name}: {os.strerror(reason)}", NOT_FOUND if missing else NOT_EXECUTABLE
        )
    refused = None
    for folder in environ.get("PATH", os.defpath).split(":"):
        path = os.path.join(folder or ".", name)
        reason = _why_not(path)
        if reason is None:
            return path
        if reason == errno.EACCES:
            refused = refused or path
    if refused:
        raise BadInputError(f"{refused}: {os.strerror(errno.EACCES)}", NOT_EXECUTABLE)
    raise BadInputError(f"{name}: command not found", NOT_FOUND)


def privileged(path: str) -> bool:
    """Returns whether the program gains privileges (setuid, setgid, capabilities). The loader then
    ignores LD_PRELOAD and removes it from the environment (ld.so(8)). Returns False if the file
    cannot be examined."""
    try:
        status = os.stat(path)
        if status.st_mode & stat.S_ISUID and status.st_uid != os.geteuid():
            return True
        if status.st_mode & stat.S_ISGID and status.st_gid != os.getegid():
            return True
        return os.geteuid() != 0 and bool(os.getxattr(path, "security.capability"))
    except OSError:
        return False


def _why_not(path: str) -> int | None:
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        return error.errno
    except ValueError:  # a zero byte in the name
        return errno.ENOENT
    if stat.S_ISDIR(mode):
        return errno.EISDIR
    return None if os.access(path, os.X_OK) else errno.EACCES


def restore_signals() -> None:
    """Undoes Python's changes to signals at start-up, so that the job does not inherit them.

    Python ignores SIGPIPE and SIGXFSZ, and an ignored signal stays ignored over exec:
    `pump-run yes | head -1` would never end.
    """
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def execute(path: str, command: list[str], environ: dict[str, str]) -> None:
    """Executes the command in place of this process. Raises BadInputError if the kernel refuses."""
    try:
        try:
            os.execve(path, command, environ)
        except OSError as error:
            if error.errno != errno.ENOEXEC:
                raise
            # A script without an interpreter line: execvp and shells run it with sh.
            os.execve("/bin/sh", ["/bin/sh", path, *command[1:]], environ)
    except OSError as error:
        if error.errno == errno.ENOENT:  # the file exists, its interpreter does not
            raise BadInputError(f"{path}: its interpreter is missing", NOT_EXECUTABLE) from None
        raise BadInputError(f"{path}: {error.strerror}", NOT_EXECUTABLE) from None
    except ValueError as error:
        raise BadInputError(f"cannot pass the command on: {error}") from None
