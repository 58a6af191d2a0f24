"""Bounds on the service's use by one user, and by one connection. No I/O.

No user is trusted. A user that floods the service waits, other users do not; where all
connections are taken, the user with most of them loses one to a user with fewer. Subordinate
ids count as their owner (owners.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

OWN_DESCRIPTORS = 64
"""Descriptors of the service beside connections, with those that accept has returned and quotas
have not yet admitted."""
LEAST_CONNECTIONS = 8


@dataclass(frozen=True)
class Quotas:
    """Bounds for each user, and of them all together. Rates: frames or connections in a second.

    reserved: of the connections, for root, the service's own user and observers alone, and the
    same share of the handshakes.
    """

    connections: int = 1024
    reserved: int = 32
    user_connections: int = 512
    user_jobs: int = 256
    handshakes: int = 64
    user_handshakes: int = 32
    connection_rate: float = 50.0
    user_rate: float = 500.0
    connect_rate: float = 256.0
    user_connect_rate: float = 64.0
    priority_most: int = 10

    def within(self, descriptors: int) -> Quotas:
        """Return the bounds for a process that may have so many descriptors: without a free one
        accept fails, for root as well."""
        most = max(LEAST_CONNECTIONS, descriptors - OWN_DESCRIPTORS)
        if self.connections <= most:
            return self
        return replace(self, connections=most, reserved=min(self.reserved, most // 4))


class Seat(NamedTuple):
    """The properties of a connection by which one is chosen to be closed. heard: when its last
    frame came."""

    user: int
    privileged: bool
    silent: bool
    """It has sent no hello."""
    leased: bool
    heard: float
    peer: Any


class Bucket:
    """A token bucket: `rate` tokens a second, at most those of two seconds."""

    def __init__(self, rate: float, now: float) -> None:
        self._rate = rate
        self._tokens = 2 * rate
        self._filled = now

    def take(self, now: float) -> bool:
        """Take a token, if there is one."""
        self._fill(now)
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def full(self, now: float) -> bool:
        """Return whether it is full, as a new one is."""
        self._fill(now)
        return self._tokens >= 2 * self._rate

    def taken(self, now: float) -> float:
        """Return how many tokens are taken, less those that have come back."""
        self._fill(now)
        return 2 * self._rate - self._tokens

    def _fill(self, now: float) -> None:
        self._tokens = min(2 * self._rate, self._tokens + (now - self._filled) * self._rate)
        self._filled = now


class Users:
    """Each user's connections and jobs, and its rates."""

    def __init__(self, quotas: Quotas) -> None:
        self.quotas = quotas
        self.connections: Counter[int] = Counter()
        self.silent: Counter[int] = Counter()
        """Of the connections, those that have sent no hello."""
        self.jobs: Counter[int] = Counter()
        self._frames: dict[int, Bucket] = {}
        self._connects: dict[int, Bucket] = {}
        self._all_connects = Bucket(quotas.connect_rate, 0.0)

    def configure(self, quotas: Quotas) -> None:
        """Take other bounds; rates count from here on."""
        self.quotas = quotas
        self._frames.clear()
        self._connects.clear()
        self._all_connects = Bucket(quotas.connect_rate, 0.0)

    def may_join(self, user: int) -> bool:
        """Return whether one more job of this user is admitted."""
        return self.jobs[user] < self.quotas.user_jobs

    def may_send(self, user: int, now: float) -> bool:
        """Count one frame of this user; False if it has to wait."""
        return _of(self._frames, user, self.quotas.user_rate, now).take(now)

    def may_connect(self, user: int, privileged: bool, now: float) -> bool:
        """Count one connection; False if there are too many in too short a time. The bound
        on all of them is not for the privileged, nor for users without a connection or with no
        more than their part of all recent ones."""
        mine = _of(self._connects, user, self.quotas.user_connect_rate, now)
        if not mine.take(now):
            return False
        part = 2 * self.quotas.connect_rate / len(self._connects)
        counted = self._all_connects.take(now) or mine.taken(now) <= part
        return counted or privileged or not self.connections[user]

    def place(self, user: int, privileged: bool) -> bool | None:
        """Return whether there is a place for one more connection, by counts alone; None: another
        one may have to go for it (admit)."""
        quotas, mine = self.quotas, self.connections[user]
        if mine >= quotas.user_connections or self.silent[user] >= quotas.user_handshakes:
            return False
        if self.silent.total() >= quotas.handshakes - _part(quotas):
            return None
        if self.connections.total() < quotas.connections - quotas.reserved:
            return True
        most = max((count for one, count in self.connections.items() if one != user), default=0)
        return None if privileged or most > mine + 1 else False

    def sweep(self, now: float) -> None:
        """Drop users without connections, jobs and used rates."""
        for buckets in (self._frames, self._connects):
            for user in [one for one, bucket in buckets.items() if bucket.full(now)]:
                del buckets[user]
        for counts in (self.connections, self.silent, self.jobs):
            for user in [one for one, count in counts.items() if not count]:
                del counts[user]

    def tables(self) -> int:
        """Return how many entries are kept."""
        counts = len(self.connections) + len(self.silent) + len(self.jobs)
        return counts + len(self._frames) + len(self._connects)


def _of(buckets: dict[int, Bucket], user: int, rate: float, now: float) -> Bucket:
    if user not in buckets:
        buckets[user] = Bucket(rate, now)
    return buckets[user]


def admit(
    user: int, privileged: bool, seats: Sequence[Seat], quotas: Quotas
) -> tuple[bool, Seat | None]:
    """Return whether a new connection is admitted, and which other one is closed for it.

    A user's own bound comes first. Where all connections are taken, the user with most of them
    loses one to a user that would have fewer; privileged users have reserved connections, and
    take any other user's where those are taken.
    """
    mine = [seat for seat in seats if seat.user == user]
    if len(mine) >= quotas.user_connections:
        return False, None
    if sum(seat.silent for seat in mine) >= quotas.user_handshakes:
        return False, None
    silent = [seat for seat in seats if seat.silent]
    for taken, places, reserved in (
        (silent, quotas.handshakes, _part(quotas)),
        (seats, quotas.connections, quotas.reserved),
    ):
        if len(taken) >= places - (0 if privileged else reserved):
            gone = _first_to_go(user, privileged, taken)
            return gone is not None, gone
    return True, None


def _part(quotas: Quotas) -> int:
    return -(-quotas.handshakes * quotas.reserved // quotas.connections)


def _first_to_go(user: int, privileged: bool, seats: Sequence[Seat]) -> Seat | None:
    """The seat that has been idle longest of the user with most seats, those with a lease last;
    None: no user has more than this one would have."""
    count = Counter(seat.user for seat in seats)
    others = [seat for seat in seats if seat.user != user and not seat.privileged]
    most = max((count[seat.user] for seat in others), default=0)
    if most <= (0 if privileged else count[user] + 1):
        return None
    heavy = [seat for seat in others if count[seat.user] == most]
    return min(heavy, key=lambda seat: (seat.leased, seat.heard))
