"""The job's side of its leases: reports the job's state to the service, and adopts grants.

DESIGN
  Runs in the supervisor's only thread; no call blocks. The work is done in rounds (rounds.py). A
  round asks the workers for their clients' states (control_server.py), sets the budgets that the
  leases require (job_usage.py), and reports changes to the service.

  The client is in one of four states, each `due` at some time:

      Looking    without a connection; Greeting when a service accepts one
      Greeting   the hello is sent; Attached with the welcome, Looking after ANSWER_S
      Attached   the service answers; Silent if a beat is unanswered for SILENT_S
      Silent     as without a service; Attached with the next answer

  A lost connection leads to Looking. The job looks for a service every RETRY_UNKNOWN_S, or every
  RETRY_MOST_S if it had one before. It keeps its leases, as all jobs do, and renews them with the
  next service. After ALONE_S without a grant the job returns to its configured budget; then the
  connection to a silent service is closed. Services answer beats since protocol version ANSWERS.

  Leases survive the end of a worker: the client's state is reported for up to ABSENT_S, until the
  client has another worker or has ended.

  A service can only change budgets, and hold launches or make them yield within these time limits.
  Worker and shim check each budget again.
"""

from __future__ import annotations

import contextlib
import logging
import math
import selectors
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from pump.base.processes import start_time
from pump.wire import control, server
from pump.wire.control import ClientState
from pump.wire.strict import FrameError
from pumpd.common import lazily, link
from pumpd.lease.job_usage import (
    Absent,
    Budget,
    Busy,
    Ceilings,
    adopted,
    answered,
    budgets_alone,
    budgets_for,
    report_of,
    settled,
)
from pumpd.lease.rounds import HOLD_ROUND_S, SETTLE_MOST_S, SETTLE_S, Holds, Rounds

if TYPE_CHECKING:
    from pump.wire import service as wire
else:
    wire = lazily.module("pump.wire.service")  # imports msgspec, only for a job with a service

RETRY_LEAST_S = 0.1
RETRY_MOST_S = 0.5
RETRY_UNKNOWN_S = 5.0
"""Time between attempts of a job that has had no service."""
ANSWER_S = 3.0
"""Longest wait for the service's welcome."""
SILENT_S = 2 * HOLD_ROUND_S
"""After this time without an answer to a beat, the job continues as without a service."""
ANSWERS = 2
"""First version of the protocol in which the service answers beats."""
ALONE_S = 30.0

log = logging.getLogger("pumpd")

Inquire = Callable[[control.Request, Callable[[list[ClientState]], None]], None]


class JobFacts(NamedTuple):
    """The job's facts for the service, and the sockets of services.

    `paths`: sockets of services. The first one that answers is used; with none there are no leases.
    `budget`: the job's --budget, or "".
    """

    paths: Sequence[str] = ()
    name: str = ""
    priority: int = 0
    budget: str = ""
    socket: str = ""
    job_pid: int = 0


NO_SERVICE = JobFacts()


@dataclass
class Looking:
    """The job has no connection. `due`: the next attempt."""

    due: float = 0.0


@dataclass
class Greeting:
    """A service has accepted the connection. `due`: the end of the wait for its welcome."""

    connection: socket.socket
    path: str
    due: float


@dataclass
class Attached:
    """The service answers. `due`: SILENT_S after the oldest beat without an answer, or infinite."""

    connection: socket.socket
    version: int
    beat_due: float
    due: float = math.inf
    newest: wire.Grant | None = None
    """The newest grant, even if it contains no leases yet."""
    number: int = 0
    """Number of the newest grant with leases; 0: before the first, earlier leases stay in force."""
    adopted: int = 0
    """Number of the newest grant that the clients have adopted."""
    report: wire.Report | None = None


class Silent(Attached):
    """The service has not answered a beat for SILENT_S, but may continue. `due`: infinite."""


State = Looking | Greeting | Attached


class Search:
    """Connects to the first of the services at `paths` that accepts, with a growing pause between
    attempts."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths
        self.mute = ""
        """Path of a service that accepted the last connection and did not answer; tried last."""
        self._untrusted: set[str] = set()
        """Paths of untrusted servers; the log names each once."""
        self._known = False
        """Whether the job has had a service."""
        self._pause_s = RETRY_LEAST_S

    def attempt(self, listen: Callable[[socket.socket], None]) -> tuple[socket.socket, str] | None:
        """Returns a connection, after its hello and `listen`, and its path; None: no service."""
        for path in sorted(self._paths, key=lambda path: path == self.mute):
            connection = None
            try:
                connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                connection.setblocking(False)
                connection.connect(path)
                server.check(connection, path)
                connection.send(wire.pack_hello(), socket.MSG_NOSIGNAL)
                listen(connection)
            except OSError as error:
                if isinstance(error, server.UntrustedServerError) and path not in self._untrusted:
                    self._untrusted.add(path)
                    log.warning("ignoring the untrusted service at %s: %s", path, error)
                if connection is not None:
                    connection.close()
                continue
            return connection, path
        return None

    def found(self) -> None:
        """Notes that the service has answered."""
        self._known, self.mute, self._pause_s = True, "", RETRY_LEAST_S

    def pause_s(self, least_s: float = 0.0) -> float:
        """Returns the time until the next attempt, and doubles the one after it."""
        pause_s = max(self._pause_s, least_s)
        self._pause_s = min(2 * pause_s, RETRY_MOST_S if self._known else RETRY_UNKNOWN_S)
        return pause_s


class LeaseClient:
    """Keeps one job's leases. `inquire`: asks the job's workers, and calls back with their
    answers."""

    def __init__(self, selector: selectors.BaseSelector, inquire: Inquire, facts: JobFacts) -> None:
        self._selector = selector
        self._inquire = inquire
        self._facts = facts
        self._state: State = Looking()
        self._search = Search(facts.paths)
        self._granted: dict[str, int] = {}
        """Granted bytes by GPU; kept when the service ends, until `_leases_end`."""
        self._leases_end = math.inf
        self._rounds = Rounds()
        self._holds = Holds()
        self._ceilings = Ceilings(facts.budget)
        self._busy = Busy()
        self._absent = Absent(lambda pid: start_time(pid) is not None)
        self._waiting = 0
        self._tried: list[Budget] = []

    def __repr__(self) -> str:
        there = "attached" if isinstance(self._state, Attached) else "alone"
        return f"<lease client, {there}, {len(self._granted)} leases>"

    @property
    def _now(self) -> float:
        return time.monotonic()

    def due(self) -> float | None:
        """Returns the latest time for the next call of on_time (time.monotonic)."""
        if not self._facts.paths:
            return None
        state, dues = self._state, [self._state.due, self._leases_end]
        if isinstance(state, Attached):
            dues.append(state.beat_due if self._rounds.asking else self._rounds.due)
        return min(dues)

    def on_time(self, now: float) -> None:
        """Connects, sends beats, runs rounds and handles timeouts when their times have come."""
        if not self._facts.paths:
            return
        if isinstance(self._state, Attached):
            if self._rounds.asking:  # beats continue, so that a silent worker does not end leases
                if now >= self._state.beat_due:
                    self._beat()
            elif now >= self._rounds.due:
                self._begin_round()
        if now >= self._state.due:
            self._leave_state(now)
        if now >= self._leases_end:
            self._go_alone()

    def client_came(self, now: float) -> None:
        """Schedules frequent rounds, because an admitted client will soon have a device."""
        self._rounds.client_came(now)

    def steered(self, request: control.Request) -> None:
        """Takes over a budget that a control connection has set, as a bound on leases."""
        if request.budget_bytes is not None:
            self._ceilings.steer(request.client_pid, request.device, request.budget_bytes)
            self._rounds.due = min(self._rounds.due, self._now + SETTLE_S)

    def close(self) -> None:
        """Closes the connection, if there is one."""
        if not isinstance(self._state, Looking):
            self._state.connection.close()
            self._state = Looking()

    # ---- the states ----

    def _enter(self, state: State) -> None:
        """Changes the state. Without a service that answers, launches are released, and the leases
        end after ALONE_S."""
        self._state = state
        if isinstance(state, Looking | Silent):
            self._request_holds([])
            if self._granted:
                self._leases_end = min(self._leases_end, self._now + ALONE_S)

    def _leave_state(self, now: float) -> None:
        state = self._state
        if isinstance(state, Looking):
            if found := self._search.attempt(self._listen):
                self._enter(Greeting(*found, now + ANSWER_S))
            else:
                state.due = now + self._search.pause_s()
        elif isinstance(state, Greeting):
            self._search.mute = state.path
            self._disconnect("it does not answer", RETRY_UNKNOWN_S)
        else:
            log.warning(
                "no answer from the service for %.0f s: the job keeps its leases and skips "
                "turns until the service answers",
                SILENT_S,
            )
            self._enter(Silent(**{**vars(state), "due": math.inf}))

    def _welcomed(self, connection: socket.socket, version: int) -> None:
        self._search.found()
        self._rounds.due = self._now
        self._enter(Attached(connection, version, self._now + self._rounds.beat_s))
        facts = self._facts
        log.info("attached to the service, version %d", version)
        name, path = wire.fitting(facts.name), wire.fitting(facts.socket, wire.PATH_CHARACTERS)
        self._send(wire.Join(name, facts.priority, path, facts.job_pid))

    def _received(self, state: Attached, message: Any) -> None:
        if isinstance(message, wire.Refused):
            log.warning("the service refused this job, which keeps its budget: %s", message.reason)
            self._disconnect(message.reason, RETRY_UNKNOWN_S)
        elif isinstance(message, wire.Grant):
            self._leases_end = state.due = math.inf
            if isinstance(state, Silent):
                self._rounds.due = self._now
                self._enter(state := Attached(**vars(state)))
            if message != state.newest:  # otherwise it only answers a beat
                state.newest = message
                self._adopt_grant(state, message)

    def _disconnect(self, reason: str, retry_s: float = 0.0) -> None:
        state = self._state
        if isinstance(state, Looking):
            return
        if isinstance(state, Attached):
            log.info("lost the service (%s); the job keeps its leases", reason)
        self._selector.unregister(state.connection)
        state.connection.close()
        self._holds.take((), self._now)
        self._enter(Looking(self._now + self._search.pause_s(retry_s)))

    def _go_alone(self) -> None:
        self._leases_end, self._granted = math.inf, {}
        log.info("no service for %.0f s: the job returns to its configured budget", ALONE_S)
        if isinstance(self._state, Silent):
            self._disconnect("the service does not answer", RETRY_UNKNOWN_S)
        self._inquire(control.Request(control.STATE), self._restore)

    def _restore(self, clients: list[ClientState]) -> None:
        sound = [client for client in clients if client.error is None]
        for pid, device, budget_bytes in budgets_alone(sound, self._ceilings):
            self._request(control.Request(control.SET, pid, None, budget_bytes, device))

    # ---- frames ----

    def _listen(self, connection: socket.socket) -> None:
        self._selector.register(connection, selectors.EVENT_READ, self._receive)

    def _receive(self) -> None:
        state = self._state
        if isinstance(state, Looking):  # lost earlier in this round of the selector
            return
        if (data := link.receive(state.connection, wire.REPLY_BYTES + 1)) is None:
            return
        try:
            if not data:
                self._disconnect("the connection closed")
            elif isinstance(state, Greeting):
                self._welcomed(state.connection, wire.check_welcome(data))
            else:
                self._received(state, wire.decode(data, wire.FROM_SERVICE, state.version))
        except FrameError as error:
            log.warning("leaving the service, which sent an invalid frame: %s", error)
            self._disconnect(str(error), RETRY_UNKNOWN_S)

    def _send(self, message: Any) -> None:
        state = self._state
        if not isinstance(state, Attached):
            return
        try:
            data = wire.encode(message, state.version)
            state.connection.send(data, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except OSError as error:
            self._disconnect(error.strerror or "its queue is full")

    def _beat_pause_s(self) -> float:
        """Returns the longest time between two beats, which show both sides that the peer lives."""
        beat_s = self._rounds.beat_s
        return min(beat_s, HOLD_ROUND_S) if self._holds else beat_s

    def _beat(self) -> None:
        state, now = self._state, self._now
        if isinstance(state, Attached):
            state.beat_due = now + self._beat_pause_s()
            if state.version >= ANSWERS and not isinstance(state, Silent):
                state.due = min(state.due, now + SILENT_S)
            self._send(wire.Beat())

    def _adopt_grant(self, state: Attached, grant: wire.Grant) -> None:
        now, rounds = self._now, self._rounds
        rounds.beat_s = grant.beat_ms / 1e3
        if grant.number:
            state.number = grant.number
            self._granted = {one.gpu: one.budget_bytes for one in grant.gpus}
            self._holds.take(grant.gpus, now)
            rounds.settle_until = now + SETTLE_MOST_S
            log.info("granted: %s", self._granted)
        state.beat_due = min(state.beat_due, now + self._beat_pause_s())
        rounds.due, rounds.again = now, rounds.asking

    # ---- rounds ----

    def _begin_round(self) -> None:
        self._rounds.asking, self._rounds.again = True, False
        self._inquire(control.Request(control.STATE), self._answered)

    def _answered(self, clients: list[ClientState]) -> None:
        sound = answered(clients)
        absent = self._absent.among(sound, self._now)
        there = {client.pid for client in absent}
        clients = [client for client in sound if client.pid not in there] + absent
        self._request_holds(clients)
        sets: list[Budget] = []
        state = self._state
        if isinstance(state, Attached) and state.number:
            wanted = budgets_for(clients, self._granted, self._ceilings)
            sets = [budget for budget in wanted if budget.pid not in there]
            if adopted(clients, self._granted):
                state.adopted = state.number
        grows = self._report(clients, there)
        if sets and sets != self._tried:
            self._tried = sets
            self._apply(sets)
        else:
            self._tried = []
            self._rounds.asking = False
            unsettled = not settled(clients, self._granted)
            grows = grows or any(not client.devices for client in clients)
            self._rounds.schedule(self._now, grows, unsettled, bool(self._holds))

    def _request_holds(self, clients: Sequence[ClientState]) -> None:
        """Asks these clients to hold launches and to yield, and ends both for all others."""
        there = () if isinstance(self._state, Silent) else clients
        for request in self._holds.requests(there, self._now):
            self._request(request)

    def _request(self, request: control.Request) -> None:
        with contextlib.suppress(FrameError):
            self._inquire(request, lambda _clients: None)

    def _report(self, clients: Sequence[ClientState], absent: set[int]) -> bool:
        """Reports changes to the service; returns whether the job wants more than before."""
        state = self._state
        if not isinstance(state, Attached):  # the service has ended during this round
            return False
        report = report_of(
            clients, self._ceilings, self._busy, state.adopted, self._now, absent=absent
        )
        last, state.report = state.report, report
        before = {gpu.gpu: gpu.wanted_bytes for gpu in last.gpus} if last else {}
        if report != last:
            self._send(report)
        if self._now >= state.beat_due - self._beat_pause_s() / 4:
            self._beat()
        return any(gpu.wanted_bytes > before.get(gpu.gpu, 0) for gpu in report.gpus)

    def _apply(self, sets: Sequence[Budget]) -> None:
        self._waiting = len(sets)
        for pid, device, budget_bytes in sets:
            request = control.Request(control.SET, pid, None, budget_bytes, device)
            self._inquire(request, self._applied)

    def _applied(self, clients: list[ClientState]) -> None:
        for client in clients:
            if client.error is not None:
                log.info("client %d keeps its budget: %s", client.pid, client.error)
        self._waiting -= 1
        if self._waiting == 0:
            self._rounds.asking, self._rounds.due = False, self._now
