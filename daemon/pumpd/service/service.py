"""The system service: shares GPUs between jobs by leases on their budgets.

DESIGN
  One thread, one selector, no blocking call, no privileges. The service knows a job by the reports
  of its pumpd (registry.py), and its user by the kernel's credentials. It maps no memory, receives
  no descriptors, and opens no path that a peer names. A frame is one bounded datagram, and is
  decoded strictly. Users are served in turn, one frame each, and after SLICE_S the loop polls for
  new events. Quotas limit users and connections (quota.py); each peer's queue is bounded
  (peers.py).

  A lease ends with its connection, or after BEATS_MISSED beats without a frame. Jobs do not
  depend on the service: when it ends, they keep their budgets, and register with the next one.
  The service wakes for frames, and every CHECK_S only while there are connections.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pump
from pump.wire import service as wire
from pump.wire.server import peer_of
from pump.wire.strict import FrameError
from pumpd.common import link
from pumpd.service.cards import Cards
from pumpd.service.owners import Identity
from pumpd.service.peers import SLOW_S, Peer, Peers, in_turn
from pumpd.service.quota import Bucket, Users, admit
from pumpd.service.registry import Registry
from pumpd.service.sdnotify import Manager
from pumpd.service.settings import ServiceSettings
from pumpd.service.surroundings import Surroundings

BEATS_MISSED = 3
HELLO_TIMEOUT_S = 2.0
IDLE_S = 60.0
"""A connection without a job is closed after this time without a question."""
CHECK_S = 0.5
SLICE_S = 0.005
"""Longest time between two polls for events."""
REARRANGE_PAUSE_S = 0.01
"""Least pause between two decisions on leases; the pause is at least as long as the last decision
took. Reports that arrive together are thus decided together."""
COUNTS = ("frames", "refused_connections", "refused_frames", "slowed_down")
"""Numbers of wire.ServiceState that the service counts itself."""
BUSY = wire.pack_welcome(wire.BUSY, 0)
"""Built at import, which also loads `wire`: without free descriptors, a later load would fail."""

log = logging.getLogger("pumpd")


class RefusedError(Exception):
    """The reason for closing a peer's connection, in one line."""


class Service:
    """Serves `listeners` until SIGTERM. Call run() once; it closes everything.

    `settings`: reads the configuration, at the start and on SIGHUP; raises ValueError with a text
    of one line. `cards`: the GPUs by NVML.
    """

    def __init__(
        self,
        listeners: Sequence[socket.socket],
        settings: Callable[[], ServiceSettings],
        cards: Cards,
        manager: Manager,
        surroundings: Surroundings,
    ) -> None:
        self._surroundings = surroundings
        self._selector = surroundings.selector
        self._now = surroundings.now
        self._acceptor = link.Acceptor(self._selector, listeners, self._greet, self._now)
        self._read_settings = settings
        self._settings = settings()
        self._manager = manager
        self._cards = cards
        self._registry = Registry(cards.total_bytes)
        self._users = Users(self._settings.quotas)
        self._peers = Peers()
        self._configure()
        self._stopped = False
        self._arrange_due = self._settled = 0.0
        self._counts = dict.fromkeys(COUNTS, 0)

    def __repr__(self) -> str:
        return f"<service: {self._registry!r}, {len(self._peers)} connections>"

    def run(self) -> None:
        """Serves until SIGTERM or SIGINT."""
        self._settled = self._now() + self._settings.settle_s
        self._registry.settling = True
        self._surroundings.watch_signals(self._signalled)
        self._cards.watch(self._selector, self._measured)
        self._acceptor.start()
        self._manager.notify("READY=1", f"STATUS={self._registry!r}")
        log.info("serves")
        try:
            while not self._stopped:
                ready = self._selector.select(self._timeout(self._now()))
                until = self._now() + SLICE_S
                for key, events in in_turn(ready, self._peers):
                    if key.data is not None:
                        key.data(events)
                    if self._now() >= until:
                        break
                self._on_time(self._now())
        finally:
            self._manager.notify("STOPPING=1")
            log.info("ends: %r", self)
            self._close()

    # ---- time ----

    def _timeout(self, now: float) -> float | None:
        dues = [
            self._peers.check_due if self._peers else None,
            self._peers.rest_due if self._peers.resting else None,
            now if self._peers.granted else None,
            self._arrange_due if self._registry.stale else None,
            self._settled if self._registry.settling else None,
            *(one.due for one in (self._acceptor, self._manager, self._cards)),
        ]
        due = min((due for due in dues if due is not None), default=None)
        return None if due is None else max(0.0, due - now)

    def _on_time(self, now: float) -> None:
        self._manager.on_time(now)
        for peer in self._peers.rested(now, lambda peer: self._may_send(peer, now)):
            self._watch(peer)
        self._acceptor.on_time(now)
        if self._peers and now >= self._peers.check_due:
            self._check(now)
        if self._registry.settling and now >= self._settled:
            self._registry.settling, self._registry.stale = False, True
        if self._registry.stale and now >= self._arrange_due:
            self._rearrange(now)
        self._send_grants(now)
        self._cards.on_time(now, self._settings.beat_s, bool(self._registry.jobs))

    def _measured(self, used_bytes: Mapping[str, int]) -> None:
        self._registry.measured(used_bytes, self._now())

    def _check(self, now: float) -> None:
        """Closes connections without frames or with a blocked queue, and checks for changes by
        time."""
        self._peers.check_due = now + CHECK_S
        for peer in list(self._peers.values()):
            if now >= peer.deadline:
                job = peer.job
                self._close_peer(peer, "it sent no frame for too long", expired=job is not None)
            elif peer.blocked_since is not None and now - peer.blocked_since > SLOW_S:
                self._close_peer(peer, f"it stopped reading for {SLOW_S:.0f} s")
        self._registry.on_time(now)
        self._users.sweep(now)

    def _rearrange(self, now: float) -> None:
        for job in self._registry.rearrange(now):
            peer = self._peers.by_job[job.number]
            peer.grant_due = True
            self._peers.granted[peer] = None
        done = self._now()
        self._arrange_due = done + max(REARRANGE_PAUSE_S, done - now)

    def _send_grants(self, now: float) -> None:
        until = now + SLICE_S
        while self._peers.granted and self._now() <= until:
            peer = next(iter(self._peers.granted))
            del self._peers.granted[peer]
            self._flush(peer, now)

    # ---- connections ----

    def _greet(self, connection: socket.socket) -> None:
        now = self._now()
        try:
            found = peer_of(connection)
        except OSError:
            connection.close()
            return
        identity = self._identity(found.pid, found.uid)
        if not self._admit_connection(identity, now):
            self._counts["refused_connections"] += 1
            with contextlib.suppress(OSError):
                connection.send(BUSY, socket.MSG_NOSIGNAL)
            connection.close()
            return
        self._users.connections[identity.owner] += 1
        self._users.silent[identity.owner] += 1
        bucket = Bucket(self._settings.quotas.connection_rate, now)
        peer = Peer(connection, identity, bucket, now)
        peer.deadline = now + HELLO_TIMEOUT_S
        if not self._peers:
            self._peers.check_due = now + CHECK_S
        self._peers[connection] = peer
        self._watch(peer)

    def _identity(self, pid: int, user: int) -> Identity:
        trusted = self._settings.table.root_sees_all and user in (0, os.geteuid())
        privileged = trusted or user in self._settings.observers
        return Identity(pid, user, self._settings.owners.of(user), privileged)

    def _admit_connection(self, identity: Identity, now: float) -> bool:
        """Returns whether another connection is admitted; may close one for it."""
        if not self._users.may_connect(identity.owner, identity.privileged, now):
            return False
        place = self._users.place(identity.owner, identity.privileged)
        if place is not None:
            return place
        seats = [peer.seat for peer in self._peers.values()]
        taken, goes = admit(identity.owner, identity.privileged, seats, self._users.quotas)
        if goes is not None:
            self._close_peer(goes.peer, "its user has most connections, another user needs one")
        return taken

    def _watch(self, peer: Peer) -> None:
        """Registers the peer's events with the selector."""
        known = self._selector.get_map().get(peer.connection)
        if not peer.events:
            if known:
                self._selector.unregister(peer.connection)
            return
        try:
            if known is None:
                self._selector.register(
                    peer.connection, peer.events, lambda events: self._serve(peer, events)
                )
            elif known.events != peer.events:
                self._selector.modify(peer.connection, peer.events, known.data)
        except OSError as error:  # no memory, or the limit of epoll watches is reached
            log.error("cannot listen to %r: %s", peer, error)
            self._close_peer(peer, "")

    def _serve(self, peer: Peer, events: int) -> None:
        if peer.connection not in self._peers:  # closed earlier in this round
            return
        now = self._now()
        if events & selectors.EVENT_WRITE:
            self._flush(peer, now)
        if events & selectors.EVENT_READ:
            self._receive(peer, now)

    def _flush(self, peer: Peer, now: float) -> None:
        grant = None
        if peer.grant_due and peer.job is not None:
            grant = self._registry.grant_of(peer.job, int(self._settings.beat_s * 1e3))
        try:
            peer.flush(grant, now)
        except OSError:
            self._close_peer(peer, "")
            return
        self._watch(peer)

    def _close_peer(self, peer: Peer, reason: str, *, expired: bool = False) -> None:
        if not self._peers.drop(peer):
            return
        if reason:
            log.info("closing the connection of %r: %s", peer, reason)
            if peer.version:
                peer.refuse(reason)
        if self._selector.get_map().get(peer.connection):
            self._selector.unregister(peer.connection)
        peer.connection.close()
        self._users.connections[peer.identity.owner] -= 1
        self._users.silent[peer.identity.owner] -= not peer.version
        if peer.job is not None:
            self._users.jobs[peer.identity.owner] -= 1
            self._registry.remove(peer.job, expired=expired)

    # ---- frames ----

    def _receive(self, peer: Peer, now: float) -> None:
        if (data := link.receive(peer.connection, wire.FRAME_BYTES + 1)) is None:
            return
        if not data:
            self._close_peer(peer, "")
            return
        self._counts["frames"] += 1
        peer.heard = now
        try:
            if not peer.version:
                self._welcome(peer, data, now)
            else:
                self._answer(peer, wire.decode(data, wire.FROM_CLIENTS, peer.version), now)
        except (FrameError, RefusedError) as error:
            self._counts["refused_frames"] += 1
            self._close_peer(peer, str(error))
        except OSError:
            self._close_peer(peer, "")
        if peer.connection not in self._peers:
            return
        # Both buckets count every frame. While either is empty, the peer is not read.
        if not (peer.bucket.take(now) & self._users.may_send(peer.identity.owner, now)):
            self._counts["slowed_down"] += 1
            self._peers.rest(peer, now)
            self._watch(peer)

    def _may_send(self, peer: Peer, now: float) -> bool:
        return peer.bucket.take(now) and self._users.may_send(peer.identity.owner, now)

    def _welcome(self, peer: Peer, data: bytes, now: float) -> None:
        status, version = wire.check_hello(data)
        peer.connection.send(
            wire.pack_welcome(status, version), socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL
        )
        if status != wire.OK:
            raise RefusedError("its hello is malformed or has an unsupported version")
        peer.version = version
        self._users.silent[peer.identity.owner] -= 1
        peer.deadline = now + IDLE_S

    def _answer(self, peer: Peer, message: Any, now: float) -> None:
        if isinstance(message, wire.Join):
            self._join(peer, message, now)
            return
        peer.deadline = now + (BEATS_MISSED * self._settings.beat_s if peer.job else IDLE_S)
        if isinstance(message, wire.AskJobs):
            peer.reply(self._jobs(peer, message.after, now), now)
        elif isinstance(message, wire.AskService):
            peer.reply(self._state(now), now)
        elif peer.job is None:
            raise RefusedError("it sent a report before joining")
        elif isinstance(message, wire.Report):
            self._registry.take_report(peer.job, message, now)
            self._arrange_due = max(self._arrange_due, now)
        else:  # a beat: the answer shows the job that the service is alive
            peer.job.heard = now
            peer.grant_due = True
            self._flush(peer, now)
            return
        self._watch(peer)

    def _join(self, peer: Peer, join: wire.Join, now: float) -> None:
        if peer.job is not None:
            raise RefusedError("it joined twice")
        owner = peer.identity.owner
        if not self._users.may_join(owner):
            raise RefusedError(f"user {owner} already has {self._users.jobs[owner]} jobs")
        most = self._settings.quotas.priority_most
        job = self._registry.add(peer.identity, join, most, now)
        self._users.jobs[owner] += 1
        peer.job = job
        self._peers.by_job[job.number] = peer
        peer.deadline = now + BEATS_MISSED * self._settings.beat_s
        # The first grant contains the time between beats.
        peer.flush(self._registry.grant_of(job, int(self._settings.beat_s * 1e3)), now)

    def _jobs(self, asker: Peer, after: int, now: float) -> wire.Jobs:
        registry, who = self._registry, asker.identity
        jobs = registry.jobs.values() if who.privileged else registry.jobs_of(who.owner)
        visible = [
            job
            for job in jobs
            if job.number > after and (who.privileged or who.user == job.identity.user)
        ]
        shown: list[wire.JobState] = []
        room = wire.REPLY_BYTES - 64
        for job in visible[: wire.JOBS_SHOWN]:
            state = self._registry.state_of(job, now)
            room -= len(wire.encode(wire.Jobs(0, (state,)), asker.version))
            if room < 0:
                break
            shown.append(state)
        return wire.Jobs(int(len(shown) < len(visible)), tuple(shown))

    def _state(self, now: float) -> wire.ServiceState:
        registry = self._registry
        return wire.ServiceState(
            release=pump.__version__,
            pid=os.getpid(),
            jobs=len(registry.jobs),
            connections=len(self._peers),
            memory_bytes=min(wire.BYTES_MOST, sum(registry.memory_bytes().values())),
            held_bytes=min(wire.BYTES_MOST, registry.held_bytes()),
            jobs_joined=registry.joined,
            jobs_left=registry.left,
            jobs_expired=registry.expired,
            grants=registry.grants,
            **self._counts,
        )

    # ---- signals and the end ----

    def _signalled(self, number: int) -> None:
        if number == signal.SIGHUP:
            self._reload()
        else:
            self._stopped = True

    def _configure(self) -> None:
        self._users.configure(self._settings.quotas.within(self._surroundings.descriptors))
        self._registry.weights = self._settings.weights
        self._registry.reserve = self._settings.table.reserve
        self._registry.turns = self._settings.table.turns
        # /etc/subuid may have changed: count all users again.
        for counts in (self._users.connections, self._users.silent, self._users.jobs):
            counts.clear()
        for peer in self._peers.values():
            peer.identity = self._identity(peer.identity.pid, peer.identity.user)
            self._users.connections[peer.identity.owner] += 1
            self._users.silent[peer.identity.owner] += not peer.version
            if peer.job is not None:
                self._registry.own(peer.job, peer.identity)
                self._users.jobs[peer.identity.owner] += 1

    def _reload(self) -> None:
        self._manager.reloading()
        try:
            self._settings = self._read_settings()
            self._configure()
            log.setLevel(self._settings.table.log_level.upper())
            log.info("reloaded the configuration")
        except ValueError as error:
            log.error("cannot reload the configuration, keeping the old one: %s", error)
        for job in self._registry.jobs.values():
            job.priority = min(job.join.priority, self._settings.quotas.priority_most)
        for peer in list(self._peers.by_job.values()):
            peer.grant_due = True  # a grant contains the time between beats
            self._flush(peer, self._now())
        self._registry.stale = bool(self._registry.jobs)
        self._manager.notify("READY=1")

    def _close(self) -> None:
        self._cards.close()
        self._surroundings.close()
        self._acceptor.close()
        for connection in self._peers:
            connection.close()
