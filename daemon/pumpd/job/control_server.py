"""Control connections of the supervisor (pump/control.py).

DESIGN
  Runs in the supervisor's only thread; no call blocks. A request is checked and sent to the
  workers that it concerns, and their answers form the reply. The reply contains an error for each
  worker that cannot take the request, misses the deadline of ANSWER_S, or ends before it answers.
  After a worker has missed a deadline, its next deadlines are only SILENT_ANSWER_S, until it
  answers again. The workers carry requests out (control_worker.py).

  Bounds: at most MAX_CONTROLS connections. A connection is closed after IDLE_S without a request,
  and only one of its requests is in progress; the others wait in its socket. All connections share
  a rate of one request per REQUEST_PAUSE_S, so that requests do not keep workers from their work.
"""

from __future__ import annotations

import contextlib
import logging
import selectors
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pump.wire import control as wire

MAX_CONTROLS = 16
IDLE_S = 60.0
ANSWER_S = 4.0
"""Longer than a worker waits for its client (control_worker.ADOPT_S)."""
SILENT_ANSWER_S = 0.3
"""Short, so that a stopped worker delays neither other requests nor rounds of the job's leases."""
REQUEST_PAUSE_S = 0.005

log = logging.getLogger("pumpd")


@dataclass
class _Question:
    """A request that some workers have not answered."""

    connection: socket.socket | None
    """None: the request is from pumpd itself."""
    done: Callable[[list[wire.ClientState]], None]
    waiting: dict[socket.socket, int]
    """Maps the lifeline of each worker that has not answered to its client's process ID."""
    deadline: float
    clients: list[wire.ClientState] = field(default_factory=list)


class ControlServer:
    """Serves the control connections of one supervisor.

    `workers`: the supervisor's lifelines with their clients' process IDs; only read here.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        workers: Mapping[socket.socket, int],
    ) -> None:
        self.steered: Callable[[wire.Request], None] = lambda _request: None
        """Called with each request that sets something."""
        self._selector = selector
        self._workers = workers
        self._listening: dict[socket.socket, float] = {}  # -> when it is closed if idle
        self._resting: dict[socket.socket, float] = {}  # -> when it is read again
        self._questions: dict[int, _Question] = {}
        self._silent: set[socket.socket] = set()
        """Workers that missed a deadline and have not answered since."""
        self._number = 0
        self._next_request = 0.0

    def admit(self, connection: socket.socket, hello: bytes) -> None:
        """Takes over a connection that began with this hello."""
        status, reason = wire.check_hello(hello)
        if status == wire.OK and self._count() >= MAX_CONTROLS:
            status, reason = wire.BUSY, f"{MAX_CONTROLS} control connections are open already"
        if not _send(connection, wire.pack_welcome(status)) or status != wire.OK:
            log.warning("refused a control connection: %s", reason)
            connection.close()
            return
        self._listen(connection)

    def answered(self, worker: socket.socket, data: bytes) -> None:
        """Processes a datagram from a worker."""
        try:
            number, frame = wire.split(data)
            client = wire.decode_client(frame)
        except wire.FrameError as error:
            log.warning("the worker of client %d: %s", self._workers[worker], error)
            return
        self._silent.discard(worker)
        question = self._questions.get(number)
        if question is None or worker not in question.waiting:
            return  # the question has timed out
        pid = question.waiting.pop(worker)
        question.clients.append(
            client
            if client.pid == pid
            else wire.failed(pid, "its worker answered for another client")
        )
        self._finish_if_complete(number)

    def gone(self, worker: socket.socket) -> None:
        """Replaces the missing answers of an ended worker by errors."""
        self._silent.discard(worker)
        for number, question in list(self._questions.items()):
            if worker in question.waiting:
                pid = question.waiting.pop(worker)
                question.clients.append(wire.failed(pid, "its worker has ended; ask again"))
                self._finish_if_complete(number)

    def due(self) -> float | None:
        """Returns the latest time for the next call of on_time (time.monotonic)."""
        deadlines = (question.deadline for question in self._questions.values())
        return min((*self._listening.values(), *self._resting.values(), *deadlines), default=None)

    def on_time(self, now: float) -> None:
        """Closes idle connections, resumes resting ones, and ends overdue questions."""
        for connection, until in list(self._listening.items()):
            if now >= until:
                self._selector.unregister(connection)
                del self._listening[connection]
                connection.close()
        for connection, begin in list(self._resting.items()):
            if now >= begin:
                del self._resting[connection]
                self._listen(connection)
        for number, question in list(self._questions.items()):
            if now >= question.deadline:
                reason = f"its worker did not answer within {ANSWER_S:.0f} s"
                question.clients += [wire.failed(pid, reason) for pid in question.waiting.values()]
                self._silent.update(question.waiting)
                question.waiting.clear()
                self._finish_if_complete(number)

    def close(self) -> None:
        """Closes all connections."""
        asking = (question.connection for question in self._questions.values())
        for connection in (*self._listening, *self._resting, *asking):
            if connection is not None:
                connection.close()

    # ---- internal ----

    def _count(self) -> int:
        asking = sum(question.connection is not None for question in self._questions.values())
        return len(self._listening) + len(self._resting) + asking

    def _listen(self, connection: socket.socket) -> None:
        try:
            self._selector.register(
                connection,
                selectors.EVENT_READ,
                lambda: self._receive(connection, time.monotonic()),
            )
        except OSError as error:
            log.warning("cannot listen to a control connection: %s", error)
            connection.close()
            return
        self._listening[connection] = time.monotonic() + IDLE_S

    def _receive(self, connection: socket.socket, now: float) -> None:
        self._selector.unregister(connection)
        del self._listening[connection]
        if now < self._next_request:
            self._resting[connection] = self._next_request
            return
        try:
            data = connection.recv(wire.REQUEST_BYTES + 1)
        except OSError:  # never BlockingIOError: the socket is readable, and only we read
            data = b""
        if not data:
            connection.close()
            return
        self._next_request = now + REQUEST_PAUSE_S
        try:
            self._ask(connection, wire.decode_request(data))
        except wire.FrameError as error:
            self._reply(connection, wire.encode_error(str(error)))

    def inquire(
        self, request: wire.Request, done: Callable[[list[wire.ClientState]], None]
    ) -> None:
        """Asks the workers on behalf of pumpd itself; calls `done` once, with their answers."""
        self._put(_Question(None, done, {}, time.monotonic() + ANSWER_S), request)

    def _ask(self, connection: socket.socket, request: wire.Request) -> None:
        def done(clients: list[wire.ClientState]) -> None:
            self._reply(connection, wire.encode_reply(clients))

        if request.ask == wire.SET:
            log.info("request: %s", request)
            self.steered(request)
        self._put(_Question(connection, done, {}, time.monotonic() + ANSWER_S), request)

    def _put(self, question: _Question, request: wire.Request) -> None:
        data = wire.encode_request(request)
        self._number += 1
        for worker, pid in self._workers.items():
            if request.client_pid not in (None, pid):
                continue
            if _send(worker, wire.numbered(self._number, data)):
                question.waiting[worker] = pid
            else:
                question.clients.append(wire.failed(pid, "its worker accepts no requests"))
        self._questions[self._number] = question
        self._finish_if_complete(self._number)

    def _finish_if_complete(self, number: int) -> None:
        question = self._questions[number]
        if question.waiting:
            if question.waiting.keys() <= self._silent:
                soon = time.monotonic() + SILENT_ANSWER_S
                question.deadline = min(question.deadline, soon)
            return
        del self._questions[number]
        question.done(question.clients)

    def _reply(self, connection: socket.socket, data: bytes) -> None:
        if _send(connection, data):
            self._listen(connection)
        else:
            connection.close()


def _send(connection: socket.socket, data: bytes) -> bool:
    """Sends without waiting; returns False if the socket does not accept the data."""
    with contextlib.suppress(OSError):
        connection.send(data, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        return True
    return False
