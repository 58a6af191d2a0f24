"""`pumpd jobs`: starts a job's pumpd for each process of this user that a rule has made a job
(pump enable), as pump-run does for its own jobs.

A process sends the settings of its rule as lines PUMP_<NAME>=value, and gets the path of its
pumpd's socket. Only the form of the settings is checked, because the process has the same user. A
process that asks again gets the same path while that pumpd answers. Each connection ends within
ASKED_S. No call waits for a process, so a stopped process does not delay others. If more than
ASKING_MOST connections have not asked yet, the oldest one is closed.

The pumpds belong to the cgroup of this process. If systemd can start this process again, it exits
after IDLE_S without a job.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import socket
import sys
import time
from collections.abc import Collection
from pathlib import Path

from pump.base import paths
from pump.base.names import quoted
from pump.cli.support import launch
from pump.cli.support.lines import BadInputError, say
from pump.config import layers
from pump.config.settings import JobConfig
from pump.wire.server import peer_of
from pumpd.common import link
from pumpd.common.process_name import name_process
from pumpd.common.signals import Signals
from pumpd.service.sdnotify import sockets_handed_over

BACKLOG = 256
ASKED_S = 2.0
ASKING_MOST = 256
IDLE_S = 60.0
REQUEST_BYTES_MAX = 16384
"""PUMP_ACTIVATION_BYTES of shim/base/limits.h."""

log = logging.getLogger("pumpd")


class RequestError(Exception):
    """The reason why a process gets no pumpd, in one line."""


def run(path: str) -> int:
    """Serves until a signal, or until idle; returns 0. Raises BadInputError."""
    logging.basicConfig(stream=sys.stderr, format="pumpd jobs: %(message)s", level=logging.WARNING)
    handed_over = sockets_handed_over()
    if handed_over and (handed_over[0].family, handed_over[0].type) != (
        socket.AF_UNIX,
        socket.SOCK_SEQPACKET,
    ):
        raise BadInputError(
            "systemd passed the wrong kind of socket; rewrite its unit with: pump enable"
        )
    own = None
    if handed_over:
        listener = handed_over[0]
    else:
        path = path or paths.activation_socket(os.environ)
        try:
            paths.make_private(str(Path(path).parent))
            listener = link.bind_listener(path, BACKLOG)
        except paths.UnsafeDirectoryError as error:
            raise BadInputError(str(error)) from None
        except OSError as error:
            raise BadInputError(f"--socket {path}: {error.strerror or error}") from None
        own = link.SocketFile(path)
        say("pumpd", f"starting pumpds for processes that connect to {quoted(path)}, until SIGTERM")
    name_process("pumpd-jobs")
    with contextlib.suppress(paths.UnsafeDirectoryError, OSError):
        paths.ledger_folder()  # creates the folder that processes under a rule look for
    try:
        _serve(listener, idles=own is None)
    finally:
        if own is not None:
            own.remove()
    return 0


class _Asking:
    """Connections of processes that have not sent their request yet."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self._selector = selector
        self._until: dict[socket.socket, float] = {}  # -> when it is closed; oldest first

    def __len__(self) -> int:
        return len(self._until)

    def pause_s(self) -> float:
        """Returns how long to wait for events."""
        least = min(self._until.values(), default=time.monotonic() + IDLE_S)
        return max(0.0, least - time.monotonic())

    def add(self, connection: socket.socket) -> None:
        """Waits for a connection's request; closes the oldest connection if there are too many."""
        self._selector.register(connection, selectors.EVENT_READ)
        self._until[connection] = time.monotonic() + ASKED_S
        if len(self._until) > ASKING_MOST:
            self.close(next(iter(self._until)))

    def ready(self, sources: Collection[object]) -> list[socket.socket]:
        """Returns the connections among `sources`, the readable objects."""
        return [one for one in self._until if one in sources]

    def close(self, connection: socket.socket) -> None:
        """Closes a connection after its answer, or without one."""
        del self._until[connection]
        self._selector.unregister(connection)
        connection.close()

    def close_old(self) -> None:
        """Closes connections without a request within ASKED_S."""
        now = time.monotonic()
        for connection in [one for one, until in self._until.items() if now >= until]:
            self.close(connection)


def _serve(listener: socket.socket, *, idles: bool) -> None:
    jobs: dict[int, str] = {}  # a job's first process -> its pumpd's socket
    signals = Signals()
    signals.watch()
    listener.setblocking(False)
    with selectors.DefaultSelector() as selector:
        asking = _Asking(selector)
        selector.register(listener, selectors.EVENT_READ)
        selector.register(signals.fd, selectors.EVENT_READ)
        while True:
            ready = [key.fileobj for key, _ in selector.select(asking.pause_s())]
            if signals.fd in ready:
                return
            for pid in [pid for pid, path in jobs.items() if not link.answers(path)]:
                del jobs[pid]
            if not ready and idles and not jobs and not asking:
                return
            for connection in asking.ready(ready):
                _answer(connection, jobs)
                asking.close(connection)
            asking.close_old()
            connections, error = link.accept(listener)
            if error is not None:
                log.error("cannot accept: %s", error)
            for connection in connections:
                asking.add(connection)


def _answer(connection: socket.socket, jobs: dict[int, str]) -> None:
    try:
        peer = peer_of(connection)
        if peer.uid != os.geteuid() or peer.pid <= 0:
            raise RequestError(f"process {peer.pid} belongs to user {peer.uid}, not to this one")
        data = connection.recv(REQUEST_BYTES_MAX + 1)
        if not data:
            return  # the process only tested whether this socket listens
        if peer.pid not in jobs:
            jobs[peer.pid] = launch.start_pumpd(
                configuration(data, peer.pid), os.environ, other_pid=peer.pid
            )
        connection.send(os.fsencode(jobs[peer.pid]))
    except (RequestError, launch.NoPumpdError, OSError) as error:
        log.warning("cannot serve a process: %s", error)


def configuration(data: bytes, pid: int) -> JobConfig:
    """Returns the configuration in a request of process `pid`. Raises RequestError."""
    if len(data) > REQUEST_BYTES_MAX:
        raise RequestError("its settings are too long")
    lines = os.fsdecode(data).splitlines()
    settings = dict(
        line.split("=", 1) for line in lines if line.startswith("PUMP_") and "=" in line
    )
    try:
        layer = layers.environment(settings)
    except layers.ConfigInputError as error:
        raise RequestError(str(error)) from None
    try:
        name = Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
    except OSError:
        raise RequestError(f"process {pid} has ended") from None
    return JobConfig([name or "job"])._replace(**layer.values)
