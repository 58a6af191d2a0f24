"""Creates pump's folders and removes pump's files, but never where another user redirects a path.

A process with root's rights may run with another user's HOME (sudo -E, su -m, a container's
entry point). Without these checks, that user's links could make root overwrite any file.
Standard library only. Private folders for sockets: paths.py.
"""

from __future__ import annotations

import errno
import os
import stat

from pump.base import trust
from pump.base.names import quoted


class ForeignError(PermissionError):
    """Another user could redirect a write; `strerror` names the user and the remedy."""


def check(folder: str, below: str = "") -> None:
    """Raises ForeignError if another user could redirect a write to `folder`: as the owner of a
    link on the path or of the folder itself. For root, any folder on the path counts.

    `folder` is absolute; its missing components are safe. below: a folder that the user has named
    as the destination. The path to it is trusted, and so are the folders in it that belong to its
    owner. Raises OSError if a component cannot be examined.
    """
    ours = {0, os.geteuid(), trust.unknown_user()}
    top = os.path.realpath(below) if below else "/"
    owners = ours | {os.stat(top).st_uid} if below and os.path.exists(top) else ours
    last: tuple[str, os.stat_result] | None = None
    try:
        for at, status in trust.components(folder):
            if below and at != top and not at.startswith(os.path.join(top, "")):
                continue
            if stat.S_ISLNK(status.st_mode):
                _check_owner(at, status, ours)
                continue
            if os.geteuid() == 0:
                _check_owner(at, status, owners)
            last = at, status
    except FileNotFoundError:
        pass
    if last:
        _check_owner(*last, owners)


def _check_owner(at: str, status: os.stat_result, owners: set[int | None]) -> None:
    if status.st_uid not in owners:
        raise ForeignError(
            errno.EPERM,
            f"{quoted(at)} belongs to user {status.st_uid}, who could redirect the write; "
            "run it as that user, or with your own HOME",
        )


def make(folder: str, mode: int = 0o755, below: str = "") -> None:
    """Creates a folder and its parents unless they exist. mode: of a new folder, before the umask.
    Raises OSError; ForeignError like `check`."""
    check(folder, below)
    os.makedirs(folder, mode=mode, exist_ok=True)


def opened(folder: str) -> int:
    """Opens a folder, which must not be a link, and returns its descriptor. Raises OSError."""
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def remove(path: str, below: str = "") -> None:
    """Removes a file. Raises OSError; ForeignError like `check` of its folder."""
    check(os.path.dirname(path), below)
    os.unlink(path)
