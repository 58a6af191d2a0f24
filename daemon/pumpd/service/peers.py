"""One connection of the service: the process and user at its other end, and its send queue.

At most one reply and one grant are queued. A peer that does not accept them is not read either,
and its connection is closed after SLOW_S. So a slow reader costs little.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pump.wire import service as wire
from pumpd.service.jobs import Job
from pumpd.service.owners import Identity
from pumpd.service.quota import Bucket, Seat

SLOW_S = 5.0
"""A connection is closed if the peer accepts no data for this time."""
REST_S = 0.05


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


class Peers(dict[socket.socket, Peer]):
    """The service's peers by their connections, and groups of them."""

    def __init__(self) -> None:
        super().__init__()
        self.by_job: dict[int, Peer] = {}
        self.granted: dict[Peer, None] = {}
        """Peers with a new grant."""
        self.resting: dict[Peer, None] = {}
        self.rest_due = 0.0
        """When resting peers are looked at again."""
        self.check_due = 0.0
        """When the deadlines of all peers are checked."""

    def rest(self, peer: Peer, now: float) -> None:
        """Stops reading a peer that has exceeded a rate."""
        peer.resting = True
        if not self.resting:
            self.rest_due = now + REST_S
        self.resting[peer] = None

    def rested(self, now: float, may_send: Callable[[Peer], bool]) -> list[Peer]:
        """Returns the resting peers that may send again, and will be read."""
        if not self.resting or now < self.rest_due:
            return []
        self.rest_due = now + REST_S
        found = [peer for peer in self.resting if may_send(peer)]
        for peer in found:
            del self.resting[peer]
            peer.resting = False
        return found

    def drop(self, peer: Peer) -> bool:
        """Removes a peer from all groups; returns False if it is not there."""
        self.granted.pop(peer, None)
        self.resting.pop(peer, None)
        if peer.job is not None:
            self.by_job.pop(peer.job.number, None)
        return self.pop(peer.connection, None) is not None


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
