"""The warm process: has made a worker's imports, and forks one worker for each client.

The supervisor forks it, and alone sends it requests. A request is one datagram (the client's
pid and number) with three descriptors:

    memfd        the client's mapping
    connection   the client's socket, non-blocking
    lifeline     one end of a pair of sockets: the supervisor sends control requests over it
                 (control_worker.py), and sees the end of the worker, whatever its cause, as
                 end-of-file

The worker is the only process that keeps them, so its end closes the client's socket.

The warm process ends when its supervisor does. A worker ends when its client does; it outlives
supervisor and warm process, so that their end does not disturb the client.
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

REQUEST = struct.Struct("<II")  # client_pid, client_number; behind it the client's command
COMMAND_BYTES_MAX = 65536
REQUEST_DESCRIPTORS = 3
READY = b"ready"

log = logging.getLogger("pumpd")


def load_worker() -> WorkerRun:
    """The real worker loop. Imports numpy and cffi: a tenth of a second or more."""
    from pumpd.worker import worker

    return worker.run


def request_worker(
    requests: socket.socket,
    client: tuple[int, int],
    command: list[bytes],
    descriptors: tuple[int, int, int],
) -> None:
    """Supervisor's side: ask for a worker. Never blocks. Raises OSError.

    client: its process id and its number. command: its words, none where they are not recorded.
    descriptors: memfd, connection, lifeline.
    """
    data = REQUEST.pack(*client) + b"\0".join(command)[:COMMAND_BYTES_MAX]
    flags = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL
    socket.send_fds(requests, [data], descriptors, flags)


def serve(requests: socket.socket, settings: WorkerSettings, load: Callable[[], WorkerRun]) -> int:
    """Warm process's side: fork workers until the supervisor ends. Return an exit status."""
    name_process("pumpd-warm")
    # Leave processors to the job; and threads of a maths library do not survive a fork.
    for library in ("OPENBLAS", "OMP", "MKL"):
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")
    try:
        worker = load()
    except Exception:
        log.exception("cannot load the worker; clients run without prefetching")
        return 1
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # workers are reaped by the kernel
    gc.collect()
    gc.freeze()  # else a collection in a worker would copy every page that it shares
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
    except OSError as error:  # too many processes or too little memory: its socket closes
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
    except (OSError, MemoryError) as error:  # the client sees its socket close and tries again
        log.error("no worker for client %d: %s", settings.client_pid, error or "no memory")
    except BaseException:
        log.exception("worker of client %d failed", settings.client_pid)
    finally:
        logging.shutdown()
        os._exit(status)
