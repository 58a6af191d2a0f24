"""Whether a client may believe the process that serves a socket of pump.

By the kernel's word on the peer (SO_PEERCRED: the user that called listen) and by who can put
a socket there; never by what is said over it. docs/decisions/0032-who-serves.md.
"""

from __future__ import annotations

import os
import socket
import struct

from pump import trust

CREDENTIALS = struct.Struct("iII")
ALL_USERS = [b"0", b"0", b"4294967295"]
"""The map of a namespace that is no user namespace of its own."""


class StrangeServerError(OSError):
    """Another user serves the socket than a client believes; the text says which, and why."""


def user_of(connection: socket.socket) -> int:
    """The user at the other end. Raises OSError."""
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    return int(CREDENTIALS.unpack(data)[1])


def check(connection: socket.socket, path: str) -> None:
    """Raises StrangeServerError unless the peer is root, this process's own user, or the owner
    of the socket in a folder that only root can change; OSError when it cannot be looked at.

    In a user namespace the users that it does not know, root of the machine among them, all
    have one number. There such a peer is believed on a read-only mount alone: no process in
    the namespace can have put its socket there.
    """
    user = user_of(connection)
    if user == _unknown_user():
        if os.statvfs(path).f_flag & os.ST_RDONLY:
            return
        # This process may have that number itself; a folder closed to others lets in its owner.
        folder = os.path.dirname(os.path.abspath(path))
        if user == os.geteuid() and not os.stat(folder).st_mode & 0o077:
            return
        raise StrangeServerError(
            "a user serves it whom this user namespace does not know; mount the folder of "
            "the service's socket read-only"
        )
    if user in (0, os.geteuid()):
        return
    real = os.path.realpath(path)
    weak = trust.weakness(os.path.dirname(os.path.abspath(path))) or trust.weakness(
        os.path.dirname(real)
    )
    if weak is None and os.lstat(real).st_uid == user:
        return
    reason = f"{weak.path} {weak.why}" if weak else "the socket is another's"
    raise StrangeServerError(
        f"user {user} serves it, who is neither root nor this user, and {reason}"
    )


def _unknown_user() -> int | None:
    """The number of users that this user namespace does not know; None where it knows all."""
    try:
        with open("/proc/self/uid_map", "rb") as file:
            if file.read().split() == ALL_USERS:
                return None
        with open("/proc/sys/kernel/overflowuid", "rb") as file:
            return int(file.read())
    except (OSError, ValueError):
        return 65534
