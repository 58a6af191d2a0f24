"""Makes folders in which pump writes, and removes what it wrote: never where another user leads.

A process with the rights of root may run with another user's HOME (sudo -E, su -m, a
container's entry point). That user's links would otherwise choose what root writes over.
Standard library only. Private folders for sockets: pump/paths.py.
"""

from __future__ import annotations

import errno
import os
import stat

from pump import trust
from pump.names import quoted


class ForeignError(PermissionError):
    """Another user decides where a path leads; `strerror` names the user and the remedy."""


def check(folder: str, below: str = "") -> None:
    """Raises ForeignError where another user decides where a write to `folder` leads: by a link
    on the way, or as the owner of the folder itself; for root, of any folder on the way.

    What is missing of an absolute `folder` is sound. below: a folder that the user has named as
    the place to write to: the way to it, and folders of its owner in it, are sound. Raises
    OSError where a component cannot be examined.
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
                _check(at, status, ours)
                continue
            if os.geteuid() == 0:
                _check(at, status, owners)
            last = at, status
    except FileNotFoundError:
        pass
    if last:
        _check(*last, owners)


def _check(at: str, status: os.stat_result, owners: set[int | None]) -> None:
    if status.st_uid not in owners:
        raise ForeignError(
            errno.EPERM,
            f"{quoted(at)} belongs to user {status.st_uid}, who could redirect the write; "
            "run it as that user, or with your own HOME",
        )


def make(folder: str, mode: int = 0o755, below: str = "") -> None:
    """Makes a folder, and those above it, unless it is there. mode: of the folder, less the
    umask. Raises OSError; ForeignError as `check`."""
    check(folder, below)
    os.makedirs(folder, mode=mode, exist_ok=True)


def opened(folder: str) -> int:
    """Opens a folder, which must be no link: its descriptor. Raises OSError."""
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def remove(path: str, below: str = "") -> None:
    """Removes a file. Raises OSError; ForeignError as `check` of its folder."""
    check(os.path.dirname(path), below)
    os.unlink(path)
