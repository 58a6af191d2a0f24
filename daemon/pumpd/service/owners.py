"""The owner of a user id: subordinate ids count as the user that they were given to.

/etc/subuid gives users ranges of ids for their containers (subuid(5)), usually 65536 each. A
process in such a container has one of these ids at the service's socket, so that one person could
count as that many users. The file is root's; an id that it does not mention is its own owner.
Where the service runs in a user namespace, the kernel shows it all unmapped ids as one, the
overflow id (user_namespaces(7)): they count as one user.
"""

from __future__ import annotations

import bisect
import contextlib
import pwd
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from pump import inputs

SUBORDINATE_IDS = "/etc/subuid"
FILE_BYTES = 4 << 20
IDS = 2**32


class Identity(NamedTuple):
    """The process at the other end of a connection, by the kernel's credentials. owner: of its
    user id. privileged: it sees all jobs, and has reserved connections."""

    pid: int
    user: int
    owner: int
    privileged: bool = False


class Range(NamedTuple):
    """`ids` ids from `first` on, which belong to user `owner`."""

    first: int
    ids: int
    owner: int


class Owners:
    """The owners of user ids. Where ranges overlap, the one that begins last counts."""

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        self._ranges = sorted(ranges)

    def __repr__(self) -> str:
        return f"<owners of {len(self._ranges)} ranges of ids>"

    def of(self, user: int) -> int:
        """Return the owner of a user id."""
        place = bisect.bisect_right(self._ranges, (user, IDS, IDS)) - 1
        if place >= 0:
            first, ids, owner = self._ranges[place]
            if user < first + ids:
                return owner
        return user


def read_owners(path: str | None = None) -> Owners:
    """Return the ranges of the file; lines that name no user of this machine are ignored."""
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
