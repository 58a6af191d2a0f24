"""Decides whether a client trusts the process that serves a socket of pump.

The decision depends on the peer's user (SO_PEERCRED: the user that called listen) and on the users
that can put a socket there, never on the peer's messages. docs/decisions/0032-who-serves.md.
"""

from __future__ import annotations

import os
import socket
import struct
from typing import NamedTuple

from pump.base import trust

CREDENTIALS = struct.Struct("iII")


class UntrustedServerError(OSError):
    """A client does not trust the user that serves the socket; the text names user and reason."""


class Peer(NamedTuple):
    """The process at the other end of a connection; pid 0: it is not visible here."""

    pid: int
    uid: int


def peer_of(connection: socket.socket) -> Peer:
    """Returns the peer by SO_PEERCRED (unix(7)). Raises OSError."""
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    pid, uid, _gid = CREDENTIALS.unpack(data)
    return Peer(pid, uid)


def check(connection: socket.socket, path: str) -> None:
    """Raises UntrustedServerError unless the peer is root, this process's own user, or the owner of
    the socket in a folder that only root can change. Raises OSError if that cannot be examined.

    In a user namespace all users that are not mapped, including root of the machine, have one
    number. Such a peer is trusted only on a read-only mount: no process in the namespace can have
    put its socket there.
    """
    user = peer_of(connection).uid
    if user == trust.unknown_user():
        if os.statvfs(path).f_flag & os.ST_RDONLY:
            return
        if user == os.geteuid() and _in_own_closed_folder(path):
            return  # this process has that number itself
        raise UntrustedServerError(
            "its owner is outside this user namespace; mount the folder of the service's "
            "socket read-only"
        )
    if user in (0, os.geteuid()):
        return
    real = os.path.realpath(path)
    weak = trust.weakness(os.path.dirname(os.path.abspath(path))) or trust.weakness(
        os.path.dirname(real)
    )
    if weak is None and os.lstat(real).st_uid == user:
        return
    reason = f"{weak.path} {weak.why}" if weak else "another user owns the socket"
    raise UntrustedServerError(f"user {user} serves it, not root or this user, and {reason}")


def _in_own_closed_folder(path: str) -> bool:
    """Returns whether only this user can have put a socket there. Only its owner can open a folder
    with O_NOATIME; the kernel compares the owners' numbers outside of user namespaces."""
    folder = os.path.dirname(os.path.abspath(path))
    try:
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOATIME)
    except PermissionError:
        return False
    try:
        return not os.fstat(opened).st_mode & 0o077
    finally:
        os.close(opened)
