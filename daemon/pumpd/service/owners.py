"""Which person a user id belongs to: subordinate ids count to the user that they were given to.

/etc/subuid gives users ranges of ids for their containers (subuid(5)), 65536 each as a rule. A
process in such a container has one of them at the service's socket, and one person could be as
many users as that. The file is root's; what it does not mention is a user of its own. Where
the service itself runs in a user namespace the kernel shows it all ids that are not mapped
there as one, the overflow id: they are one user to it.
"""

from __future__ import annotations

import bisect
import contextlib
import pwd
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

SUBORDINATE_IDS = "/etc/subuid"
FILE_BYTES = 4 << 20
IDS = 2**32


class Identity(NamedTuple):
    """The process at the other end of a connection, by the kernel's word. owner: the user that
    its id counts to. privileged: it sees all jobs, and has places of its own."""

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
    """The persons behind user ids. Where ranges overlap, the one that begins last counts."""

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        self._ranges = sorted(ranges)

    def __repr__(self) -> str:
        return f"<owners of {len(self._ranges)} ranges of ids>"

    def of(self, user: int) -> int:
        """Return the user that an id counts to."""
        place = bisect.bisect_right(self._ranges, (user, IDS, IDS)) - 1
        if place >= 0:
            first, ids, owner = self._ranges[place]
            if user < first + ids:
                return owner
        return user


def read_owners(path: str | None = None) -> Owners:
    """Return what the file says; lines that say nothing of this machine's users are left out."""
    try:
        with Path(path or SUBORDINATE_IDS).open("rb") as file:
            text = file.read(FILE_BYTES).decode("ascii", "replace")
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
