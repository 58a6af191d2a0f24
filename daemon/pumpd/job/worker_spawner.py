"""The warm process: loads a worker's imports once, and forks one worker for each client.

Only the supervisor, its parent, sends requests. A request is one datagram (the client's process
ID, number and command) with three descriptors:

    `memfd`        the client's mapping
    `connection`   the client's socket, non-blocking
    `lifeline`     one end of a socket pair, over which the supervisor sends control requests
                   (control_worker.py). End-of-file shows the supervisor that the worker has ended,
                   whatever the cause

Only the worker keeps these descriptors, so the client sees its socket close when the worker ends.

The warm process ends with its supervisor. A worker ends with its client. A worker outlives the
supervisor and the warm process, so that their end does not disturb the client.
"""

from __future__ import annotations

import dataclasses
import gc
import logging
import os
import signal
import socket
import struct
from collections.abc import Callable

from pumpd.common.process_name import name_process
from pumpd.common.settings import WorkerSettings

WorkerRun = Callable[[int, socket.socket, socket.socket, WorkerSettings], None]

REQUEST = struct.Struct("<II")  # client_pid, client_number; the client's command follows
COMMAND_BYTES_MAX = 65536
REQUEST_DESCRIPTORS = 3
READY = b"ready"

log = logging.getLogger("pumpd")


def load_worker() -> WorkerRun:
    """Returns the real worker loop. Imports numpy and cffi, which takes 0.1 s or more."""
    from pumpd.worker import worker

    return worker.run


def request_worker(
    requests: socket.socket,
    client: tuple[int, int],
    command: list[bytes],
    descriptors: tuple[int, int, int],
) -> None:
    """Requests a worker, on the supervisor's side. Never blocks. Raises OSError.

    `client`: process ID and number. `command`: the arguments, or none if they are not recorded.
    `descriptors`: memfd, connection, lifeline.
    """
    data = REQUEST.pack(*client) + b"\0".join(command)[:COMMAND_BYTES_MAX]
    flags = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL
    socket.send_fds(requests, [data], descriptors, flags)


def serve(requests: socket.socket, settings: WorkerSettings, load: Callable[[], WorkerRun]) -> int:
    """Forks workers in the warm process until the supervisor ends. Returns an exit status."""
    name_process("pumpd-warm")
    # Leave CPU cores to the job. Threads of a math library would not survive the fork either.
    for library in ("OPENBLAS", "OMP", "MKL"):
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")
    try:
        worker = load()
    except Exception:
        log.exception("cannot load the worker; clients run without prefetching")
        return 1
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps workers
    gc.collect()
    gc.freeze()  # otherwise garbage collection in a worker would copy every shared page
    try:
        requests.send(READY)
        while True:
            data, fds, _, _ = socket.recv_fds(
                requests, REQUEST.size + COMMAND_BYTES_MAX, REQUEST_DESCRIPTORS
            )
            if not data:
                return 0
            _start(worker, requests, data, fds, settings)
    except OSError as error:
        log.info("warm process ends: %s", error)
        return 0


def _start(
    worker: WorkerRun,
    requests: socket.socket,
    data: bytes,
    fds: list[int],
    settings: WorkerSettings,
) -> None:
    try:
        if len(data) < REQUEST.size or len(fds) != REQUEST_DESCRIPTORS:
            log.error("bad request: %d bytes, %d descriptors", len(data), len(fds))
            return
        client_pid, number = REQUEST.unpack_from(data)
        words = data[REQUEST.size :].split(b"\0")
        own = dataclasses.replace(
            settings,
            client_pid=client_pid,
            client_number=number,
            client_command=tuple(map(os.fsdecode, words)) if words != [b""] else (),
        )
        if os.fork() == 0:
            requests.close()
            _work(worker, fds, own)
    except OSError as error:  # too many processes or no memory: the client's socket closes
        log.error("cannot fork a worker: %s", error)
    finally:
        for fd in fds:
            os.close(fd)


def _work(worker: WorkerRun, fds: list[int], settings: WorkerSettings) -> None:
    status = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        name_process("pumpd-worker")
        memfd, *sockets = fds
        connection, lifeline = (socket.socket(fileno=fd) for fd in sockets)
        worker(memfd, connection, lifeline, settings)
        status = 0
    except (OSError, MemoryError) as error:  # the client sees its socket close and reconnects
        log.error("no worker for client %d: %s", settings.client_pid, error or "no memory")
    except BaseException:
        log.exception("worker of client %d failed", settings.client_pid)
    finally:
        logging.shutdown()
        os._exit(status)
