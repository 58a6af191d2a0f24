"""Which users can replace what lies at a path.

Looks at each component that a look-up passes: owners, modes, sticky bits, and whether an ACL
stands behind a group's permission to write. Not at capabilities, mounts, or what a network's
file server grants beyond that. Imported by pump-run: os and stat alone.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Collection, Iterator
from typing import NamedTuple

LINKS_MOST = 40
"""Symbolic links that one look-up may pass, as in Linux."""
ACL = "system.posix_acl_access"


class Weakness(NamedTuple):
    """A component of a path that another user can replace or write to, and why."""

    path: str
    why: str


def weakness(path: str, users: Collection[int] = ()) -> Weakness | None:
    """The first component of an absolute path by which a user beside root and `users` could put
    something else there, or change it; None where there is none.

    A sticky folder that all may write to is sound on the way, as long as what lies in it
    belongs to root or `users`. A group may write where it is root's, or a user's own (of the
    user's number, as distributions make them). Raises OSError for what cannot be looked at.
    """
    trusted = {0, *users}
    last: Weakness | None = None
    for at, status in components(path):
        last = None
        if status.st_uid not in trusted:
            return Weakness(at, f"belongs to user {status.st_uid}")
        if stat.S_ISLNK(status.st_mode):
            continue
        why = _writers(at, status, users)
        if why and not (stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX):
            return Weakness(at, why)
        last = Weakness(at, why) if why else None  # sticky: sound unless it is the end
    return last


def components(path: str) -> Iterator[tuple[str, os.stat_result]]:
    """What a look-up of an absolute path passes, with its lstat: folders, links and what is at
    the end, also of links. Raises OSError."""
    at, links = "/", 0
    todo = path.split("/")[::-1]
    yield at, os.lstat(at)
    while todo:
        name = todo.pop()
        if name in ("", "."):
            continue
        if name == "..":
            at = os.path.dirname(at)
            continue
        here = os.path.join(at, name)
        status = os.lstat(here)
        yield here, status
        if not stat.S_ISLNK(status.st_mode):
            at = here
            continue
        links += 1
        if links > LINKS_MOST:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        target = os.readlink(here)
        todo += target.split("/")[::-1]
        if target.startswith("/"):
            at = "/"


def _writers(path: str, status: os.stat_result, users: Collection[int]) -> str:
    """Which others may write, in words; "" for none."""
    if status.st_mode & stat.S_IWOTH:
        return "can be written by all users"
    if not status.st_mode & stat.S_IWGRP:
        return ""
    own_group = status.st_gid == status.st_uid and status.st_uid in users
    if status.st_gid != 0 and not own_group:
        return f"can be written by group {status.st_gid}"
    try:
        acl = ACL in os.listxattr(path)
    except OSError:  # a file system without
        acl = False
    return "can be written by those whom its ACL names" if acl else ""
