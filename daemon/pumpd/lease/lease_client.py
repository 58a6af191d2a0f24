"""The job's side of its leases: reports the job's state to the service, and adopts grants.

DESIGN
  Runs in the supervisor's only thread; no call blocks. The work is done in rounds. A round asks
  the workers for their clients' states (control_server.py), sets the budgets that the leases
  require (job_usage.py), and reports changes to the service. Rounds run with every beat, after
  every grant, and every SETTLE_S while resident bytes exceed a lease.

  Without a service the job keeps its configured budget. It looks for a service every
  RETRY_UNKNOWN_S, or every RETRY_MOST_S if it had one before. When a service ends, the job keeps
  its leases, as all jobs do, and renews them with the next service. After ALONE_S without a
  service the job returns to its configured budget. Services since protocol version ANSWERS answer
  each beat. If a beat is unanswered for SILENT_S, the job continues as without a service until the
  service answers. The connection is closed only after ALONE_S.

  Leases survive the end of a worker: the client's state is reported for up to ABSENT_S, until the
  client has another worker or has ended.

  While the job waits for its turn, its clients hold launches. This request is repeated every
  HOLD_ROUND_S and expires after HOLD_MS, so the job resumes if any process in between ends or
  stops. Each of these rounds sends a beat, because the job also resumes when the service is silent.
  After HELD_MOST_S the job resumes in any case, until the service has given it a turn. While the
  job yields, equally frequent requests make its clients put gates before launches
  (shim/progress/gates.c).

  A service can only change budgets, and hold launches or make them yield within these time limits.
  Worker and shim check each budget again.
"""

from __future__ import annotations

import contextlib
import logging
import selectors
import socket
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from pump.processes import start_time
from pump.wire import control, server
from pump.wire.control import ClientState
from pump.wire.strict import FrameError
from pumpd.common import lazily
from pumpd.lease.job_usage import (
    Absent,
    Budget,
    Busy,
    Ceilings,
    adopted,
    answered,
    budgets_alone,
    budgets_for,
    by_gpu,
    report_of,
    settled,
)

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
SETTLE_S = 0.05
SETTLE_MOST_S = 10.0
"""Time after a grant in which rounds may run every SETTLE_S; later they run only with beats."""
YOUNG_S = 10.0
YOUNG_ROUND_S = 0.05
"""Time between rounds in the first YOUNG_S of a client, while a client has no device or the job's
demand grows. After any other round the time doubles."""
HOLD_ROUND_S = 1.0
HOLD_MS = 5000
"""Longer than ADOPT_S of control_worker.py, because a pending budget delays the next request."""
HELD_MOST_S = 240.0
"""Enough for eight jobs with turns of 30 s."""
SILENT_S = 2 * HOLD_ROUND_S
"""After this time without an answer to a beat, the job continues as without a service."""
ANSWERS = 2
"""First version of the protocol in which the service answers beats."""
ALONE_S = 30.0
BEAT_S = 2.0

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


class LeaseClient:
    """Keeps one job's leases. `inquire`: asks the job's workers, and calls back with their
    answers."""

    def __init__(self, selector: selectors.BaseSelector, inquire: Inquire, facts: JobFacts) -> None:
        self._selector = selector
        self._inquire = inquire
        self._facts = facts
        self._ceilings = Ceilings(facts.budget)
        self._busy = Busy()
        self._absent = Absent(lambda pid: start_time(pid) is not None)
        self._connection: socket.socket | None = None
        self._version = 0
        self._deadline = 0.0
        self._retry_due = 0.0
        self._retry_s = RETRY_LEAST_S
        self._path = self._mute = ""
        """`_path`: the path of the connection. `_mute`: the path of a service that accepted the
        last connection and did not answer; it is tried last."""
        self._untrusted: set[str] = set()
        """Paths of untrusted servers; the log names each once."""
        self._known = False
        """Whether the job has had a service."""
        self._alone_due: float | None = None
        self._asked_s: float | None = None
        """When the oldest unanswered beat was sent; None: all beats are answered."""
        self._silent = False
        """Whether the service has not answered for SILENT_S."""
        self._told: wire.Grant | None = None
        """The newest grant of this connection, even if it contains no leases yet."""
        self._grant: wire.Grant | None = None
        self._acted = 0
        self._granted: dict[str, int] = {}
        """Granted bytes by GPU; kept when the service ends."""
        self._waits: dict[str, float] = {}
        """GPUs on which the job waits for its turn, and the start of each wait."""
        self._yields: set[str] = set()
        """GPUs that the job leaves to others while its launches wait for memory."""
        self._held: dict[tuple[int, int], tuple[int, int]] = {}
        """hold_ms and yield_ms of the last requests, by client and device."""
        self._hold_due = 0.0
        """When these requests are repeated."""
        self._beat_s = BEAT_S
        self._beat_due = 0.0
        self._round_due = 0.0
        self._asking = self._again = False
        self._waiting = 0
        self._settle_until = self._young_until = 0.0
        self._young_round_s = YOUNG_ROUND_S
        self._last: wire.Report | None = None
        self._tried: list[Budget] = []

    def __repr__(self) -> str:
        there = "attached" if self._version else "alone"
        return f"<lease client, {there}, {len(self._granted)} leases>"

    @property
    def _now(self) -> float:
        return time.monotonic()

    def due(self) -> float | None:
        """Returns the latest time for the next call of on_time (time.monotonic)."""
        if not self._facts.paths:
            return None
        dues = [self._alone_due] if self._alone_due is not None else []
        if self._connection is None:
            dues.append(self._retry_due)
        elif not self._version:
            dues.append(self._deadline)
        else:
            dues.append(self._beat_due if self._asking else self._round_due)
        if self._asked_s is not None and not self._silent:
            dues.append(self._asked_s + SILENT_S)
        return min(dues, default=None)

    def on_time(self, now: float) -> None:
        """Connects, sends beats, runs rounds and handles timeouts when their times have come."""
        if not self._facts.paths:
            return
        if self._connection is None:
            if now >= self._retry_due:
                self._connect(now)
        elif not self._version:
            if now >= self._deadline:
                self._mute = self._path
                self._lose("it does not answer", RETRY_UNKNOWN_S)
        elif self._asking:  # beats continue, so that a silent worker does not end leases
            if now >= self._beat_due:
                self._beat()
        elif now >= self._round_due:
            self._round()
        if self._asked_s is not None and not self._silent and now >= self._asked_s + SILENT_S:
            self._fall_silent()
        if self._alone_due is not None and now >= self._alone_due:
            self._go_alone()

    def client_came(self, now: float) -> None:
        """Schedules frequent rounds, because an admitted client will soon have a device."""
        self._young_until = now + YOUNG_S
        self._round_due = min(self._round_due, now + YOUNG_ROUND_S)

    def steered(self, request: control.Request) -> None:
        """Takes over a budget that a control connection has set, as a bound on leases."""
        if request.budget_bytes is not None:
            self._ceilings.steer(request.client_pid, request.device, request.budget_bytes)
            self._round_due = min(self._round_due, self._now + SETTLE_S)

    def close(self) -> None:
        """Closes the connection, if there is one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # ---- the connection ----

    def _connect(self, now: float) -> None:
        for path in sorted(self._facts.paths, key=lambda path: path == self._mute):
            connection = None
            try:
                connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                connection.setblocking(False)
                connection.connect(path)
                server.check(connection, path)
                connection.send(wire.pack_hello(), socket.MSG_NOSIGNAL)
                self._selector.register(connection, selectors.EVENT_READ, self._receive)
            except OSError as error:
                if isinstance(error, server.UntrustedServerError) and path not in self._untrusted:
                    self._untrusted.add(path)
                    log.warning(
                        "ignoring the untrusted service at %s: %s",
                        path,
                        error,
                    )
                if connection is not None:
                    connection.close()
                continue
            self._connection, self._path, self._version = connection, path, 0
            self._deadline = now + ANSWER_S
            return
        self._retry_later(now)

    def _retry_later(self, now: float) -> None:
        self._retry_due = now + self._retry_s
        most = RETRY_MOST_S if self._known else RETRY_UNKNOWN_S
        self._retry_s = min(2 * self._retry_s, most)

    def _lose(self, reason: str, retry_s: float = 0.0) -> None:
        if self._connection is None:
            return
        if self._version:
            log.info("lost the service (%s); the job keeps its leases", reason)
        self._selector.unregister(self._connection)
        self._connection.close()
        self._connection = self._grant = self._told = self._last = self._asked_s = None
        self._version = self._acted = 0
        self._silent = False
        self._retry_s = max(self._retry_s, retry_s)
        self._waits, self._yields = {}, set()
        self._hold([])
        self._begin_alone()
        self._retry_later(self._now)

    def _send(self, message: Any) -> None:
        if self._connection is None or not self._version:
            return
        try:
            data = wire.encode(message, self._version)
            self._connection.send(data, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except OSError as error:
            self._lose(error.strerror or "its queue is full")

    def _beat_pause_s(self) -> float:
        """Returns the longest time between two beats, which show both sides that the peer lives."""
        held = self._waits or self._yields
        return min(self._beat_s, HOLD_ROUND_S) if held else self._beat_s

    def _beat(self) -> None:
        self._beat_due = self._now + self._beat_pause_s()
        if self._asked_s is None and self._version >= ANSWERS:
            self._asked_s = self._now
        self._send(wire.Beat())

    def _fall_silent(self) -> None:
        self._silent = True
        log.warning(
            "no answer from the service for %.0f s: the job keeps its leases and skips "
            "turns until the service answers",
            SILENT_S,
        )
        self._hold([])
        self._begin_alone()

    def _answers_again(self) -> None:
        self._asked_s = self._alone_due = None
        if self._silent:
            self._silent = False
            self._round_due = self._now

    def _begin_alone(self) -> None:
        if self._granted and self._alone_due is None:
            self._alone_due = self._now + ALONE_S

    def _receive(self) -> None:
        if self._connection is None:  # lost earlier in this round of the selector
            return
        try:
            data = self._connection.recv(wire.REPLY_BYTES + 1)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        try:
            if not data:
                self._lose("the connection closed")
            elif not self._version:
                self._welcomed(wire.check_welcome(data))
            else:
                self._received(wire.decode(data, wire.FROM_SERVICE, self._version))
        except FrameError as error:
            log.warning("leaving the service, which sent an invalid frame: %s", error)
            self._lose(str(error), RETRY_UNKNOWN_S)

    def _welcomed(self, version: int) -> None:
        self._version, self._known, self._mute = version, True, ""
        self._retry_s = RETRY_LEAST_S
        self._round_due = self._now
        self._beat_due = self._now + self._beat_s
        facts = self._facts
        log.info("attached to the service, version %d", version)
        name, path = wire.fitting(facts.name), wire.fitting(facts.socket, wire.PATH_CHARACTERS)
        self._send(wire.Join(name, facts.priority, path, facts.job_pid))

    def _received(self, message: Any) -> None:
        if isinstance(message, wire.Refused):
            log.warning("the service refused this job, which keeps its budget: %s", message.reason)
            self._lose(message.reason, RETRY_UNKNOWN_S)
        elif isinstance(message, wire.Grant):
            self._answers_again()
            if message != self._told:  # otherwise it only answers a beat
                self._told = message
                self._take(message)

    def _take(self, grant: wire.Grant) -> None:
        self._beat_s = grant.beat_ms / 1e3
        if grant.number:
            self._grant = grant
            self._granted = {one.gpu: one.budget_bytes for one in grant.gpus}
            self._waits = {
                one.gpu: self._waits.get(one.gpu, self._now) for one in grant.gpus if one.waits
            }
            self._yields = {one.gpu for one in grant.gpus if one.yields}
            self._settle_until = self._now + SETTLE_MOST_S
            log.info("granted: %s", self._granted)
        self._beat_due = min(self._beat_due, self._now + self._beat_pause_s())
        self._round_due = self._now
        self._again = self._asking

    # ---- rounds ----

    def _round(self) -> None:
        self._asking, self._again = True, False
        self._inquire(control.Request(control.STATE), self._answered)

    def _answered(self, clients: list[ClientState]) -> None:
        sound = answered(clients)
        absent = self._absent.among(sound, self._now)
        there = {client.pid for client in absent}
        clients = [client for client in sound if client.pid not in there] + absent
        self._hold(clients)
        sets: list[Budget] = []
        if self._grant is not None:  # before the first grant, earlier leases stay in force
            wanted = budgets_for(clients, self._granted, self._ceilings)
            sets = [budget for budget in wanted if budget.pid not in there]
            if adopted(clients, self._granted):
                self._acted = self._grant.number
        grows = self._report(clients, there)
        if sets and sets != self._tried:
            self._tried = sets
            self._apply(sets)
        else:
            self._tried = []
            self._asking = False
            self._schedule(clients, grows)

    def _hold(self, clients: Sequence[ClientState]) -> None:
        """Asks these clients to hold launches on GPUs where the job waits, and to yield where the
        job yields; ends both for all other clients and GPUs."""
        wanted = {
            (one.pid, one.device.index): asked
            for gpu, held in by_gpu(clients).items()
            if (asked := self._asked(gpu)) != (0, 0)
            for one in held
        }
        if wanted == self._held and self._now < self._hold_due:
            return
        self._hold_due = self._now + HOLD_ROUND_S
        for pid, device in sorted(wanted.keys() | self._held.keys()):
            hold_ms, yield_ms = wanted.get((pid, device), (0, 0))
            request = control.Request(
                control.SET, pid, device=device, hold_ms=hold_ms, yield_ms=yield_ms
            )
            with contextlib.suppress(FrameError):
                self._inquire(request, lambda _clients: None)
        self._held = wanted

    def _asked(self, gpu: str) -> tuple[int, int]:
        """Returns hold_ms and yield_ms for that GPU."""
        if self._silent:
            return 0, 0
        holds = gpu in self._waits and self._now <= self._waits[gpu] + HELD_MOST_S
        return HOLD_MS * holds, HOLD_MS * (gpu in self._yields)

    def _report(self, clients: Sequence[ClientState], absent: set[int]) -> bool:
        """Reports changes to the service; returns whether the job wants more than before."""
        if not self._version:  # the service has ended during this round
            return False
        report = report_of(
            clients, self._ceilings, self._busy, self._acted, self._now, absent=absent
        )
        before = {gpu.gpu: gpu.wanted_bytes for gpu in self._last.gpus} if self._last else {}
        if report != self._last:
            self._last = report
            self._send(report)
        if self._now >= self._beat_due - self._beat_pause_s() / 4:
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
            self._asking = False
            self._round_due = self._now

    def _schedule(self, clients: Sequence[ClientState], grows: bool) -> None:
        now = self._now
        pause = self._beat_s
        if now < self._young_until:
            absent = any(not client.devices for client in clients)
            again = YOUNG_ROUND_S if grows or absent else 2 * self._young_round_s
            self._young_round_s = pause = min(pause, again)
        if now < self._settle_until and not settled(clients, self._granted):
            pause = SETTLE_S
        if self._waits or self._yields:
            pause = min(pause, HOLD_ROUND_S)
        self._round_due = now if self._again else now + pause

    # ---- without a service ----

    def _go_alone(self) -> None:
        self._alone_due = None
        self._granted = {}
        log.info("no service for %.0f s: the job returns to its configured budget", ALONE_S)
        if self._silent:
            self._lose("the service does not answer", RETRY_UNKNOWN_S)
        self._inquire(control.Request(control.STATE), self._restore)

    def _restore(self, clients: list[ClientState]) -> None:
        sound = [client for client in clients if client.error is None]
        for pid, device, budget_bytes in budgets_alone(sound, self._ceilings):
            request = control.Request(control.SET, pid, None, budget_bytes, device)
            with contextlib.suppress(FrameError):
                self._inquire(request, lambda _clients: None)
