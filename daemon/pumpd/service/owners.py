"""Finds the owner of a user ID: subordinate IDs count as the user that they are assigned to.

The file /etc/subuid assigns ranges of IDs to users for their containers (subuid(5)), usually 65536
each. A process in such a container has one of these IDs at the service's socket. Without this
mapping, one person could count as that many users. Only root can change the file. An ID that is not
in the file is its own owner. In a user namespace, the kernel shows all unmapped IDs to the service
as one, the overflow ID (user_namespaces(7)): they count as one user.
"""

from __future__ import annotations

import bisect
import contextlib
import pwd
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from pump.base import inputs

SUBORDINATE_IDS = "/etc/subuid"
FILE_BYTES = 4 << 20
IDS = 2**32


class Identity(NamedTuple):
    """The process at the other end of a connection, by the kernel's credentials. `owner`: the owner
    of its user ID. `privileged`: it sees all jobs, and has reserved connections."""

    pid: int
    user: int
    owner: int
    privileged: bool = False


class Range(NamedTuple):
    """A range of `ids` IDs that starts at `first` and belongs to user `owner`."""

    first: int
    ids: int
    owner: int


class Owners:
    """The owners of user IDs. If ranges overlap, the range with the highest start counts."""

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        self._ranges = sorted(ranges)

    def __repr__(self) -> str:
        return f"<owners of {len(self._ranges)} ranges of ids>"

    def of(self, user: int) -> int:
        """Returns the owner of a user ID."""
        place = bisect.bisect_right(self._ranges, (user, IDS, IDS)) - 1
        if place >= 0:
            first, ids, owner = self._ranges[place]
            if user < first + ids:
                return owner
        return user


def read_owners(path: str | None = None) -> Owners:
    """Returns the ranges in the file; ignores lines that name no user of this machine."""
    try:
        text = inputs.start(path or SUBORDINATE_IDS, FILE_BYTES).decode("ascii", "replace")
    except OSError:
        return Owners()
    return Owners(_ranges(text))


def _ranges(text: str) -> Iterator[Range]:
    for line in text.splitlines():
        words = line.strip().split(":")
        if len(words) != 3 or not all(word.isascii() and word.isdigit() for word in words[1:]):
            continue
        name, first, ids = words[0], int(words[1][:12]), int(words[2][:12])
        with contextlib.suppress(KeyError):
            owner = int(name[:12]) if name.isdigit() else pwd.getpwnam(name).pw_uid
            if first > 0 and ids > 0 and first + ids <= IDS:
                yield Range(first, ids, owner)
