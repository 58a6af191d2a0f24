"""One connection of the service: the process and user at its other end, and its send queue.

At most one reply and one grant are queued. A peer that does not accept them is not read either,
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
"""A connection is closed if the peer accepts no data for this time."""


class Peer:
    """A connection after accept. `version`: the protocol's version; 0 before the hello."""

    def __init__(
        self, connection: socket.socket, identity: Identity, bucket: Bucket, now: float
    ) -> None:
        self.connection = connection
        self.identity = identity
        self.bucket = bucket
        self.heard = self.deadline = now
        """`deadline`: when the connection is closed, unless a frame arrives earlier."""
        self.version = 0
        self.job: Job | None = None
        self.resting = False
        """Whether the peer has exceeded a rate, and is not read until it may send again."""
        self.grant_due = False
        self.blocked_since: float | None = None
        self._reply: bytes | None = None

    def __repr__(self) -> str:
        return f"<peer: process {self.identity.pid} of user {self.identity.user}, {self.job}>"

    @property
    def seat(self) -> Seat:
        """Returns the properties that quota.admit uses to choose a connection to close."""
        leased = self.job is not None and bool(self.job.granted)
        silent = not self.version
        return Seat(self.identity.owner, self.identity.privileged, silent, leased, self.heard, self)

    @property
    def events(self) -> int:
        """Returns the events to wait for; 0: none."""
        if self.blocked_since is not None:
            return selectors.EVENT_WRITE
        return 0 if self.resting else selectors.EVENT_READ

    def reply(self, message: Any, now: float) -> None:
        """Answers a question. Only one is pending: the peer is not read until the reply is sent."""
        self._reply = wire.encode(message, self.version)
        self.flush(None, now)

    def flush(self, grant: wire.Grant | None, now: float) -> None:
        """Sends the queue, as far as the peer accepts it. Raises OSError if the peer has closed."""
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
        """Sends the reason for closing the connection, if the peer accepts it."""
        with contextlib.suppress(OSError):
            self._send(wire.encode(wire.refusal(reason), self.version))

    def _send(self, data: bytes) -> None:
        self.connection.send(data, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)


def in_turn(
    ready: Sequence[tuple[selectors.SelectorKey, int]], peers: Mapping[Any, Peer]
) -> list[tuple[selectors.SelectorKey, int]]:
    """Returns events in the order of service: events without a peer first, then one of each user in
    turn. Among users, and among a user's peers, the one that has waited longest is first.
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
