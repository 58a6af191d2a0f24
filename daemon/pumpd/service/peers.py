"""One connection of the service: the process and user at its other end, and its queue.

At most one reply and one grant are queued. A peer that does not take them is not read either,
and its connection is closed after SLOW_S. So a slow reader costs little.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from pump.wire import service as wire
from pumpd.service.jobs import Job
from pumpd.service.owners import Identity
from pumpd.service.quota import Bucket, Seat

SLOW_S = 5.0
"""The connection of a peer that takes nothing for so long is closed."""


class Peer:
    """A connection after accept. version: of the protocol; 0 before its hello."""

    def __init__(
        self, connection: socket.socket, identity: Identity, bucket: Bucket, now: float
    ) -> None:
        self.connection = connection
        self.identity = identity
        self.bucket = bucket
        self.heard = self.deadline = now
        """deadline: the connection is closed then, unless a frame arrives before."""
        self.version = 0
        self.job: Job | None = None
        self.resting = False
        """It has exceeded a rate, and is not read until it may send again."""
        self.grant_due = False
        self.blocked_since: float | None = None
        self._reply: bytes | None = None

    def __repr__(self) -> str:
        return f"<peer: process {self.identity.pid} of user {self.identity.user}, {self.job}>"

    @property
    def seat(self) -> Seat:
        """The properties by which quota.admit chooses a connection to close."""
        leased = self.job is not None and bool(self.job.granted)
        silent = not self.version
        return Seat(self.identity.owner, self.identity.privileged, silent, leased, self.heard, self)

    @property
    def events(self) -> int:
        """Events to wait for; 0: none."""
        if self.blocked_since is not None:
            return selectors.EVENT_WRITE
        return 0 if self.resting else selectors.EVENT_READ

    def reply(self, message: Any, now: float) -> None:
        """Answer a question. There is one at a time: the peer is not read meanwhile."""
        self._reply = wire.encode(message, self.version)
        self.flush(None, now)

    def flush(self, grant: wire.Grant | None, now: float) -> None:
        """Send what is queued, as far as the peer takes it. Raises OSError when it has closed."""
        try:
            if self._reply is not None:
                self._send(self._reply)
                self._reply = None
            if grant is not None:
                self._send(wire.encode(grant, self.version))
                self.grant_due = False
            self.blocked_since = None
        except BlockingIOError:
            if self.blocked_since is None:
                self.blocked_since = now

    def refuse(self, reason: str) -> None:
        """Send the reason for which the connection is closed, if the peer takes it."""
        with contextlib.suppress(OSError):
            self._send(wire.encode(wire.refusal(reason), self.version))

    def _send(self, data: bytes) -> None:
        self.connection.send(data, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)


def in_turn(
    ready: Sequence[tuple[selectors.SelectorKey, int]], peers: Mapping[Any, Peer]
) -> list[tuple[selectors.SelectorKey, int]]:
    """Return events in the order in which they are served: what is no peer's first, then one of
    each user in turn. Of a user's peers, and of users, those come first that have waited longest.
    """
    others = [event for event in ready if event[0].fileobj not in peers]
    theirs = [(peers[event[0].fileobj], event) for event in ready if event[0].fileobj in peers]
    theirs.sort(key=lambda one: one[0].heard)
    rounds: list[list[tuple[selectors.SelectorKey, int]]] = []
    served = Counter[int]()
    for peer, event in theirs:
        user = peer.identity.owner
        if served[user] == len(rounds):
            rounds.append([])
        rounds[served[user]].append(event)
        served[user] += 1
    return [*others, *(event for one in rounds for event in one)]
