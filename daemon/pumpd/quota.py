"""How much of the service one user, and one connection, may have. No I/O.

Everyone is untrusted: a user who floods the service waits, and nobody else does.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass


@dataclass(frozen=True)
class Quotas:
    """Bounds for each user, and of them all together. Rates: frames in a second."""

    connections: int = 1024
    user_connections: int = 512
    user_jobs: int = 256
    handshakes: int = 64
    user_handshakes: int = 32
    connection_rate: float = 50.0
    user_rate: float = 500.0
    priority_most: int = 10


class Bucket:
    """Tokens that come at `rate` a second, at most two seconds' worth."""

    def __init__(self, rate: float, now: float) -> None:
        self._rate = rate
        self._tokens = 2 * rate
        self._filled = now

    def take(self, now: float) -> bool:
        """Take a token, if there is one."""
        self._tokens = min(2 * self._rate, self._tokens + (now - self._filled) * self._rate)
        self._filled = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


class Users:
    """What each user has at the moment."""

    def __init__(self, quotas: Quotas) -> None:
        self.quotas = quotas
        self.connections: Counter[int] = Counter()
        self.jobs: Counter[int] = Counter()
        self._buckets: dict[int, Bucket] = {}

    def may_connect(self, user: int) -> bool:
        """Return whether one more connection of this user is taken."""
        room = self.connections.total() < self.quotas.connections
        return room and self.connections[user] < self.quotas.user_connections

    def may_join(self, user: int) -> bool:
        """Return whether one more job of this user is taken."""
        return self.jobs[user] < self.quotas.user_jobs

    def may_speak(self, user: int, now: float) -> bool:
        """Count one frame of this user; False if it has to wait."""
        if user not in self._buckets:
            self._buckets[user] = Bucket(self.quotas.user_rate, now)
        return self._buckets[user].take(now)

    def forget(self, user: int) -> None:
        """Drop what is kept of a user without connections."""
        if not self.connections[user]:
            del self.connections[user], self.jobs[user]
            self._buckets.pop(user, None)
