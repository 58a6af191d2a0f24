"""The supervisor: answers clients immediately and requests a worker for each.

DESIGN
  One thread, one selector, no blocking call. The supervisor imports neither numpy nor cffi, so
  that it can answer within tens of milliseconds after its start. The warm process does these
  imports in parallel; requests for workers wait in its socket.

  For each client the supervisor keeps only its end of the worker's lifeline (worker_spawner.py),
  which closes when the worker ends. No action is needed then: the client sees its socket close and
  reconnects. The lifelines also carry the requests of control connections
  (control_server.py) and of the system service (lease_client.py).

  The supervisor ends on a signal, or when the job's first process has ended and no client is left.
  Workers end with their clients, but a stopped one (SIGSTOP) cannot, so it is continued then.
  The socket and the job's folder are removed afterwards (place.py).

  Bounds: MAX_CLIENTS workers; MAX_HANDSHAKES connections without a hello, each for at most
  HELLO_TIMEOUT_S.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import socket
import time
from collections.abc import Callable

from pump.base.processes import command_of
from pump.wire import control as wire
from pump.wire.server import peer_of
from pumpd.common import link
from pumpd.common.jobwatch import POLL_INTERVAL_S, JobWatch
from pumpd.common.settings import WorkerSettings
from pumpd.common.signals import Signals
from pumpd.job import worker_spawner
from pumpd.job.control_server import ControlServer
from pumpd.lease.lease_client import NO_SERVICE, JobFacts, LeaseClient

MAX_CLIENTS = 64
MAX_HANDSHAKES = 64
HELLO_TIMEOUT_S = 2.0
RESUME_S = 2.0
"""Time between two checks for stopped workers after the job's end."""

log = logging.getLogger("pumpd")


class Supervisor:
    """Serves `listener` until the job has ended. Call run() once; it closes everything.

    `settings`: settings of each worker, except client_pid and client_number.
    `load`: imports the worker loop, inside the warm process.
    `facts`: the job's facts for the system service, and the paths of service sockets.
    """

    def __init__(
        self,
        listener: socket.socket,
        job: JobWatch,
        settings: WorkerSettings,
        load: Callable[[], worker_spawner.WorkerRun] = worker_spawner.load_worker,
        facts: JobFacts = NO_SERVICE,
    ) -> None:
        self._job = job
        self._settings = settings
        self._selector = selectors.DefaultSelector()
        self._acceptor = link.Acceptor(self._selector, [listener], self._greet)
        self._handshakes: dict[socket.socket, float] = {}  # connection -> deadline
        self._lifelines: dict[socket.socket, int] = {}  # our end -> client's process ID
        self._controls = ControlServer(self._selector, self._lifelines)
        self._leases = LeaseClient(self._selector, self._controls.inquire, facts)
        self._controls.steered = self._leases.steered
        self._admitted = 0  # clients in total
        self._warm = worker_spawner.Warm(self._selector, settings, load, self._leave_child)
        self._job_ended = False
        self._resume_due: float | None = None
        self._stopped = False
        self._signals = Signals()

    def __repr__(self) -> str:
        return (
            f"<supervisor of {self._job!r}: {len(self._lifelines)} workers, "
            f"{len(self._handshakes)} handshakes, warm process {self._warm.pid}>"
        )

    def run(self) -> None:
        """Serves until the job and its last client have ended, or until a signal."""
        self._signals.watch()
        self._watch(self._signals.fd, self._signalled)
        self._acceptor.start()
        if self._job.pidfd is not None:
            self._watch(self._job.pidfd, self._job_has_ended)
        try:
            if not self._job.ended():  # `pump-run true` may end before pumpd has started
                self._warm.start()
            while not self._finished():
                for key, _ in self._selector.select(self._timeout()):
                    key.data()
                self._on_time(time.monotonic())
        finally:
            log.info("ends: %r", self)
            self._close()

    # ---- the loop's parts ----

    def _finished(self) -> bool:
        idle = not self._lifelines and not self._handshakes
        return self._stopped or (self._job_ended and idle)

    def _timeout(self) -> float | None:
        dues = [*self._handshakes.values(), self._warm.due, self._acceptor.due]
        dues += [self._controls.due(), self._leases.due(), self._resume_due]
        due = min((due for due in dues if due is not None), default=None)
        timeout = None if due is None else max(0.0, due - time.monotonic())
        if self._job.pidfd is None and not self._job_ended:
            timeout = min(POLL_INTERVAL_S, timeout if timeout is not None else POLL_INTERVAL_S)
        return timeout

    def _on_time(self, now: float) -> None:
        for connection, deadline in list(self._handshakes.items()):
            if now >= deadline:
                log.info("closed a connection without a hello after %.0f s", HELLO_TIMEOUT_S)
                self._drop(connection)
        self._controls.on_time(now)
        self._leases.on_time(now)
        self._warm.on_time(now)
        self._acceptor.on_time(now)
        if self._resume_due is not None and now >= self._resume_due:
            self._resume_due = now + RESUME_S
            self._warm.resume_workers()
        if self._job.pidfd is None and not self._job_ended and self._job.ended():
            self._job_has_ended()

    def _watch(self, source: socket.socket | int, callback: Callable[[], None]) -> None:
        self._selector.register(source, selectors.EVENT_READ, callback)

    def _signalled(self) -> None:
        log.info("ended by signal %d", self._signals.read()[0])
        self._stopped = True

    def _job_has_ended(self) -> None:
        self._job_ended = True
        self._resume_due = time.monotonic() + RESUME_S
        if self._job.pidfd is not None:
            self._selector.unregister(self._job.pidfd)
        log.info("job %d has ended; %d clients are left", self._job.pid, len(self._lifelines))

    # ---- clients ----

    def _greet(self, connection: socket.socket) -> None:
        try:
            peer = peer_of(connection)
        except OSError:
            connection.close()
            return
        if peer.uid != os.geteuid():
            self._turn_away(
                connection, link.WELCOME_REFUSED, f"user {peer.uid} is not the owner of this job"
            )
        elif len(self._handshakes) >= MAX_HANDSHAKES:
            self._turn_away(connection, link.WELCOME_BUSY, "too many unfinished handshakes")
        else:
            try:
                self._watch(connection, lambda: self._receive(connection, peer.pid))
            except OSError as error:  # no memory, or the limit of epoll watches is reached
                log.error("cannot listen to process %d: %s", peer.pid, error)
                connection.close()
                return
            self._handshakes[connection] = time.monotonic() + HELLO_TIMEOUT_S

    def _receive(self, connection: socket.socket, client_pid: int) -> None:
        if (data := link.receive(connection, link.HELLO.size + 1)) is None:
            return
        self._handshakes.pop(connection)
        self._selector.unregister(connection)
        if not data:
            connection.close()
            return
        if wire.is_hello(data):
            self._controls.admit(connection, data)
            return
        status, reason = link.check_hello(data)
        if status == link.WELCOME_OK and len(self._lifelines) >= MAX_CLIENTS:
            status, reason = link.WELCOME_BUSY, f"{MAX_CLIENTS} clients are connected already"
        if status == link.WELCOME_OK and self._warm.requests is None:
            status, reason = link.WELCOME_BUSY, "no worker can be started now"
        if status == link.WELCOME_OK:
            self._admit(connection, client_pid)
        else:
            self._turn_away(connection, status, reason)

    def _admit(self, connection: socket.socket, client_pid: int) -> None:
        """Welcomes a client and requests a worker; keeps no copy of its socket or mapping."""
        memfd = ours = theirs = None
        try:
            memfd = link.create_memfd(client_pid)
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            ours.setblocking(False)
            # Done first: if no worker starts, the end of `theirs` removes the entry.
            self._watch_worker(ours)
            self._lifelines[ours] = client_pid
            ours = None
            # Read before the welcome, because a short job may end soon after the welcome.
            recorded = self._settings.record and self._settings.record_command
            command = command_of(client_pid) if recorded else []
            link.send_welcome(connection, link.WELCOME_OK, memfd)
            self._admitted += 1
            client = (client_pid, self._admitted)
            descriptors = (memfd, connection.fileno(), theirs.fileno())
            self._warm.request_worker(client, command, descriptors)
            self._leases.client_came(time.monotonic())
            log.info("serving client %d", client_pid)
        except OSError as error:
            log.error("cannot serve client %d: %s", client_pid, error)
        finally:
            if memfd is not None:
                os.close(memfd)
            for end in (connection, ours, theirs):
                if end is not None:
                    end.close()

    def _watch_worker(self, lifeline: socket.socket) -> None:
        self._watch(lifeline, lambda: self._receive_from_worker(lifeline))

    def _receive_from_worker(self, lifeline: socket.socket) -> None:
        data = link.receive(lifeline, wire.NUMBER.size + wire.ENTRY_BYTES + 1)
        if data is None:
            return
        if data:
            self._controls.answered(lifeline, data)
            return
        self._selector.unregister(lifeline)
        lifeline.close()
        log.info("the worker of client %d has ended", self._lifelines[lifeline])
        self._controls.gone(lifeline)
        del self._lifelines[lifeline]

    def _turn_away(self, connection: socket.socket, status: int, reason: str) -> None:
        log.warning(
            "refused a client, which runs without prefetching (status %d): %s", status, reason
        )
        with contextlib.suppress(OSError):
            link.send_welcome(connection, status)
        connection.close()

    def _drop(self, connection: socket.socket) -> None:
        self._handshakes.pop(connection)
        self._selector.unregister(connection)
        connection.close()

    # ---- the end ----

    def _leave_child(self) -> None:
        """Leaves the supervisor's signals and descriptors, in a forked child."""
        self._signals.reset()
        self._close_descriptors()

    def _close_descriptors(self) -> None:
        """Closes all descriptors of the supervisor; used in a forked child as well."""
        self._selector.close()
        self._acceptor.close()
        for connection in self._handshakes:
            connection.close()
        if self._job.pidfd is not None:
            os.close(self._job.pidfd)
        for lifeline in self._lifelines:
            lifeline.close()
        self._controls.close()
        self._leases.close()
        self._signals.close()

    def _close(self) -> None:
        self._warm.end()
        self._close_descriptors()
