"""One connection of the service: the process and user at its other end, and what waits for it.

At most one reply and one grant wait; a peer that does not take them is not read either,
and is hung up on in the end. So a slow reader costs no more than that.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
from typing import Any

from pump.wire import service as wire
from pumpd.service.owners import Identity
from pumpd.service.quota import Bucket, Seat
from pumpd.service.registry import Job

SLOW_S = 5.0
"""A peer that takes nothing for so long is hung up on."""


class Peer:
    """A connection after accept. `version` 0: it has not said hello."""

    def __init__(
        self, connection: socket.socket, who: Identity, bucket: Bucket, now: float
    ) -> None:
        self.connection = connection
        self.who = who
        self.bucket = bucket
        self.heard = self.deadline = now
        """deadline: hung up on then, unless it is heard before."""
        self.version = 0
        self.job: Job | None = None
        self.resting = False
        """It has spoken too much and is not read at the moment."""
        self.grant_due = False
        self.blocked_since: float | None = None
        self._reply: bytes | None = None

    def __repr__(self) -> str:
        return f"<peer: process {self.who.pid} of user {self.who.user}, {self.job}>"

    @property
    def seat(self) -> Seat:
        """What decides which connection ends when all places are taken."""
        leased = self.job is not None and bool(self.job.granted)
        silent = not self.version
        return Seat(self.who.owner, self.who.privileged, silent, leased, self.heard, self)

    @property
    def events(self) -> int:
        """What to wait for on it; 0: nothing."""
        if self.blocked_since is not None:
            return selectors.EVENT_WRITE
        return 0 if self.resting else selectors.EVENT_READ

    def reply(self, message: Any, now: float) -> None:
        """Answer a question; there is only one at a time, for it is not read meanwhile."""
        self._reply = wire.encode(message, self.version)
        self.flush(None, now)

    def flush(self, grant: wire.Grant | None, now: float) -> None:
        """Send what waits, as far as the peer takes it. Raises OSError when it is gone."""
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

    def farewell(self, reason: str) -> None:
        """Say why it is hung up on, if it can still be told."""
        with contextlib.suppress(OSError):
            self._send(wire.encode(wire.refusal(reason), self.version))

    def _send(self, data: bytes) -> None:
        self.connection.send(data, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
