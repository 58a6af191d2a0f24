"""Checks whether another user can replace the file at a path.

Checks the owner, the mode and the sticky bit of each component of the path. If a group may write,
checks for an ACL (acl(5)). Ignores capabilities, mounts, and further permissions that a network
file server grants. Imports only basic modules, because pump-run imports this one.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Collection, Iterator
from typing import NamedTuple

LINKS_MOST = 40
"""Most symbolic links that one look-up follows, as in Linux."""
ACL = "system.posix_acl_access"
ALL_USERS = [b"0", b"0", b"4294967295"]
"""Contents of /proc/PID/uid_map outside of user namespaces (user_namespaces(7))."""


class Weakness(NamedTuple):
    """A component of a path that another user can replace or write to, and why."""

    path: str
    why: str


def weakness(path: str, users: Collection[int] = ()) -> Weakness | None:
    """Returns the first component of an absolute path through which a user other than root and
    `users` could replace or change the file; None if there is none.

    A sticky folder that all users may write to is safe within the path if the next component
    belongs to root or `users`. Write permission is safe for root's group, and for the private
    group of one of `users` (same number). Raises OSError if a component cannot be examined.
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
        last = Weakness(at, why) if why else None  # sticky: safe unless it is the last component
    return last


def components(path: str) -> Iterator[tuple[str, os.stat_result]]:
    """Yields the components of an absolute path with their lstat: folders, links, the components
    of links' targets, and the file at the end (path_resolution(7)). Raises OSError."""
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
    """Returns a phrase that names the other users who may write; "" for none."""
    if status.st_mode & stat.S_IWOTH:
        return "can be written by all users"
    if not status.st_mode & stat.S_IWGRP:
        return ""
    own_group = status.st_gid == status.st_uid and status.st_uid in users
    if status.st_gid != 0 and not own_group:
        return f"can be written by group {status.st_gid}"
    try:
        acl = ACL in os.listxattr(path)
    except OSError:  # the file system has no ACLs
        acl = False
    return "can be written by users that its ACL names" if acl else ""


def unknown_user() -> int | None:
    """Returns the user number that represents all users outside this user namespace; None if the
    namespace maps every user."""
    try:
        with open("/proc/self/uid_map", "rb") as file:
            if file.read().split() == ALL_USERS:
                return None
        with open("/proc/sys/kernel/overflowuid", "rb") as file:
            return int(file.read())
    except (OSError, ValueError):
        return 65534
