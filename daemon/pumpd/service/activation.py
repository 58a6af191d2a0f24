"""`pumpd jobs`: starts a job's pumpd for each process of this user that a rule has made a job
(pump enable), as pump-run does for its own.

A process sends the settings of its rule, lines PUMP_<NAME>=value, and gets the path of its
pumpd's socket; it is of the same user, so the settings are checked for form alone. One that asks
again gets the same path while that pumpd answers. Each connection is over within ASKED_S.

The pumpds belong to the cgroup of this process. It ends by itself after IDLE_S without a job, if
systemd can start it again.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import socket
import sys
from pathlib import Path

from pump import paths
from pump.cli.support import launch
from pump.cli.support.lines import BadInputError, say
from pump.config import layers
from pump.config.job import JobConfig
from pump.names import quoted
from pump.wire.server import peer_of
from pumpd.common import link
from pumpd.common.process_name import name_process
from pumpd.common.signals import Signals
from pumpd.service.sdnotify import sockets_handed_over

BACKLOG = 256
ASKED_S = 2.0
IDLE_S = 60.0
REQUEST_BYTES_MAX = 16384
"""PUMP_ACTIVATION_BYTES of shim/base/limits.h."""

log = logging.getLogger("pumpd")


class RequestError(Exception):
    """Why a process gets no pumpd, one line."""


def run(path: str) -> int:
    """Serve until SIGTERM, or until idle; return 0. Raises BadInputError."""
    logging.basicConfig(stream=sys.stderr, format="pumpd jobs: %(message)s", level=logging.WARNING)
    handed_over = sockets_handed_over()
    if handed_over and (handed_over[0].family, handed_over[0].type) != (
        socket.AF_UNIX,
        socket.SOCK_SEQPACKET,
    ):
        raise BadInputError(
            "systemd hands over another kind of socket; run pump enable, which writes its unit"
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
        say("pumpd", f"starts pumpds for processes that ask at {quoted(path)}, until SIGTERM")
    name_process("pumpd-jobs")
    with contextlib.suppress(paths.UnsafeDirectoryError, OSError):
        paths.ledger_folder()  # processes look for it where their rule serves them
    try:
        _serve(listener, idles=own is None)
    finally:
        if own is not None:
            own.remove()
    return 0


def _serve(listener: socket.socket, *, idles: bool) -> None:
    jobs: dict[int, str] = {}  # first process -> socket
    signals = Signals()
    signals.watch()
    listener.setblocking(False)
    with selectors.DefaultSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        selector.register(signals.fd, selectors.EVENT_READ)
        while True:
            ready = [key.fileobj for key, _ in selector.select(IDLE_S)]
            if signals.fd in ready:
                return
            for pid in [pid for pid, path in jobs.items() if not link.answers(path)]:
                del jobs[pid]
            if not ready and idles and not jobs:
                return
            connections, error = link.accept(listener)
            if error is not None:
                log.error("cannot accept: %s", error)
            for connection in connections:
                with connection:
                    _answer(connection, jobs)


def _answer(connection: socket.socket, jobs: dict[int, str]) -> None:
    try:
        connection.settimeout(ASKED_S)
        peer = peer_of(connection)
        if peer.uid != os.geteuid() or peer.pid <= 0:
            raise RequestError(f"process {peer.pid} of user {peer.uid} is not ours")
        data = connection.recv(REQUEST_BYTES_MAX + 1)
        if not data:
            return  # it has only looked whether this socket listens
        if peer.pid not in jobs:
            jobs[peer.pid] = launch.start_pumpd(
                configuration(data, peer.pid), os.environ, other_pid=peer.pid
            )
        connection.send(os.fsencode(jobs[peer.pid]))
    except (RequestError, launch.NoPumpdError, OSError) as error:
        log.warning("a process gets no pumpd: %s", error)


def configuration(data: bytes, pid: int) -> JobConfig:
    """The configuration in a request of process `pid`. Raises RequestError."""
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
