"""Limits the use of the service by one user, and by one connection. No I/O.

No user is trusted. If a user floods the service, only that user waits. If all connections are
taken, the user with the most connections loses one to a user with fewer. Subordinate IDs count as
their owner (owners.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

OWN_DESCRIPTORS = 64
"""Descriptors of the service other than admitted connections. These include connections that accept
has returned and quotas have not yet admitted."""
LEAST_CONNECTIONS = 8


@dataclass(frozen=True)
class Quotas:
    """Limits for each user, and for all users together. Rates are frames or connections per second.

    `reserved`: connections that only root, the service's own user and observers may use. The same
    share of the handshakes is reserved for them.
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
        """Returns the limits for a process with this limit on descriptors. Without a free
        descriptor accept fails, even for root."""
        most = max(LEAST_CONNECTIONS, descriptors - OWN_DESCRIPTORS)
        if self.connections <= most:
            return self
        return replace(self, connections=most, reserved=min(self.reserved, most // 4))


class Seat(NamedTuple):
    """The properties of a connection that decide which one is closed. `heard`: when its last frame
    arrived."""

    user: int
    privileged: bool
    silent: bool
    """Whether the connection has sent no hello yet."""
    leased: bool
    heard: float
    peer: Any


class Bucket:
    """A token bucket: `rate` tokens per second, with a capacity of two seconds' tokens."""

    def __init__(self, rate: float, now: float) -> None:
        self._rate = rate
        self._tokens = 2 * rate
        self._filled = now

    def take(self, now: float) -> bool:
        """Takes a token; returns False if there is none."""
        self._fill(now)
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def full(self, now: float) -> bool:
        """Returns whether the bucket is full, like a new one."""
        self._fill(now)
        return self._tokens >= 2 * self._rate

    def taken(self, now: float) -> float:
        """Returns how many tokens are missing from a full bucket."""
        self._fill(now)
        return 2 * self._rate - self._tokens

    def _fill(self, now: float) -> None:
        self._tokens = min(2 * self._rate, self._tokens + (now - self._filled) * self._rate)
        self._filled = now


class Users:
    """Counts each user's connections and jobs, and limits their rates."""

    def __init__(self, quotas: Quotas) -> None:
        self.quotas = quotas
        self.connections: Counter[int] = Counter()
        self.silent: Counter[int] = Counter()
        """Connections without a hello, by user."""
        self.jobs: Counter[int] = Counter()
        self._frames: dict[int, Bucket] = {}
        self._connects: dict[int, Bucket] = {}
        self._all_connects = Bucket(quotas.connect_rate, 0.0)

    def configure(self, quotas: Quotas) -> None:
        """Adopts other limits; rates start again with full buckets."""
        self.quotas = quotas
        self._frames.clear()
        self._connects.clear()
        self._all_connects = Bucket(quotas.connect_rate, 0.0)

    def may_join(self, user: int) -> bool:
        """Returns whether another job of this user is admitted."""
        return self.jobs[user] < self.quotas.user_jobs

    def may_send(self, user: int, now: float) -> bool:
        """Counts one frame of this user; returns False if the user must wait."""
        return _bucket_of(self._frames, user, self.quotas.user_rate, now).take(now)

    def may_connect(self, user: int, privileged: bool, now: float) -> bool:
        """Counts one connection; returns False if there are too many in a short time. The limit for
        all users together does not apply to privileged users, to users without a connection, or to
        users with at most their share of the recent connections."""
        mine = _bucket_of(self._connects, user, self.quotas.user_connect_rate, now)
        if not mine.take(now):
            return False
        part = 2 * self.quotas.connect_rate / len(self._connects)
        counted = self._all_connects.take(now) or mine.taken(now) <= part
        return counted or privileged or not self.connections[user]

    def place(self, user: int, privileged: bool) -> bool | None:
        """Returns whether the counts permit another connection; None: only if an existing one is
        closed for it (admit)."""
        quotas, mine = self.quotas, self.connections[user]
        if mine >= quotas.user_connections or self.silent[user] >= quotas.user_handshakes:
            return False
        if self.silent.total() >= quotas.handshakes - _reserved_handshakes(quotas):
            return None
        if self.connections.total() < quotas.connections - quotas.reserved:
            return True
        most = max((count for one, count in self.connections.items() if one != user), default=0)
        return None if privileged or most > mine + 1 else False

    def sweep(self, now: float) -> None:
        """Drops counts that are 0, and buckets that are full."""
        for buckets in (self._frames, self._connects):
            for user in [one for one, bucket in buckets.items() if bucket.full(now)]:
                del buckets[user]
        for counts in (self.connections, self.silent, self.jobs):
            for user in [one for one, count in counts.items() if not count]:
                del counts[user]


def _bucket_of(buckets: dict[int, Bucket], user: int, rate: float, now: float) -> Bucket:
    if user not in buckets:
        buckets[user] = Bucket(rate, now)
    return buckets[user]


def admit(
    user: int, privileged: bool, seats: Sequence[Seat], quotas: Quotas
) -> tuple[bool, Seat | None]:
    """Returns whether a new connection is admitted, and which other one is closed for it.

    A user's own limit is checked first. If all connections are taken, the user with the most
    connections loses one to a user that would have fewer. Privileged users have reserved
    connections; if these are taken too, any other user loses one to them.
    """
    mine = [seat for seat in seats if seat.user == user]
    if len(mine) >= quotas.user_connections:
        return False, None
    if sum(seat.silent for seat in mine) >= quotas.user_handshakes:
        return False, None
    silent = [seat for seat in seats if seat.silent]
    for taken, places, reserved in (
        (silent, quotas.handshakes, _reserved_handshakes(quotas)),
        (seats, quotas.connections, quotas.reserved),
    ):
        if len(taken) >= places - (0 if privileged else reserved):
            gone = _first_to_go(user, privileged, taken)
            return gone is not None, gone
    return True, None


def _reserved_handshakes(quotas: Quotas) -> int:
    return -(-quotas.handshakes * quotas.reserved // quotas.connections)


def _first_to_go(user: int, privileged: bool, seats: Sequence[Seat]) -> Seat | None:
    """Returns the longest idle seat of the user with the most seats; seats with a lease go last.
    None: every user has at most as many seats as this user would have."""
    count = Counter(seat.user for seat in seats)
    others = [seat for seat in seats if seat.user != user and not seat.privileged]
    most = max((count[seat.user] for seat in others), default=0)
    if most <= (0 if privileged else count[user] + 1):
        return None
    heavy = [seat for seat in others if count[seat.user] == most]
    return min(heavy, key=lambda seat: (seat.leased, seat.heard))
