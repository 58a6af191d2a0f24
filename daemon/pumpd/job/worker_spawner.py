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

import contextlib
import dataclasses
import gc
import logging
import os
import selectors
import signal
import socket
import struct
import time
from collections.abc import Callable

from pumpd.common import link
from pumpd.common.process_name import name_process
from pumpd.common.settings import WorkerSettings

WorkerRun = Callable[[int, socket.socket, socket.socket, WorkerSettings], None]

REQUEST = struct.Struct("<II")  # client_pid, client_number; the client's command follows
COMMAND_BYTES_MAX = 65536
REQUEST_DESCRIPTORS = 3
READY = b"ready"
WARM_DELAY_MIN_S = 0.1
WARM_DELAY_MAX_S = 30.0
WARM_STEADY_S = 30.0
"""A warm process that runs longer than this resets the delay to the minimum."""

log = logging.getLogger("pumpd")


def load_worker() -> WorkerRun:
    """Returns the real worker loop. Imports numpy and cffi, which takes 0.1 s or more."""
    from pumpd.worker import worker

    return worker.run


class Warm:
    """The warm process, on the supervisor's side. The delay before it is restarted doubles each
    time it ends. `leave`: leaves the supervisor's descriptors, in the child."""

    def __init__(
        self,
        selector: selectors.BaseSelector,
        settings: WorkerSettings,
        load: Callable[[], WorkerRun],
        leave: Callable[[], None],
    ) -> None:
        self._selector, self._leave = selector, leave
        self._settings, self._load = settings, load
        self.requests: socket.socket | None = None
        """Our end of its socket; None: it does not run."""
        self.pid = 0
        self.due: float | None = None
        """When it is started again; None: it runs."""
        self._started = 0.0
        self._delay_s = WARM_DELAY_MIN_S

    def on_time(self, now: float) -> None:
        """Starts the process again when the delay is over."""
        if self.due is not None and now >= self.due:
            self.start()

    def start(self) -> None:
        """Starts the process, now or after a delay."""
        self.due, self._started = None, time.monotonic()
        ends: list[socket.socket] = []
        try:
            ends += socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            ours, theirs = ends
            self._selector.register(ours, selectors.EVENT_READ, self._receive)
            pid = os.fork()
        except OSError as error:
            log.error("cannot start the warm process: %s", error)
            for end in ends:
                with contextlib.suppress(KeyError):
                    self._selector.unregister(end)
                end.close()
            self._delay()
            return
        if pid == 0:
            self._become(ours, theirs)
        theirs.close()
        ours.setblocking(False)
        self.requests, self.pid = ours, pid

    def request_worker(
        self, client: tuple[int, int], command: list[bytes], descriptors: tuple[int, int, int]
    ) -> None:
        """Requests a worker. Never blocks. Raises OSError.

        `client`: process ID and number. `command`: the arguments, or none if they are not recorded.
        `descriptors`: memfd, connection, lifeline.
        """
        assert self.requests is not None
        data = REQUEST.pack(*client) + b"\0".join(command)[:COMMAND_BYTES_MAX]
        flags = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL
        socket.send_fds(self.requests, [data], descriptors, flags)

    def end(self) -> int:
        """Ends the process, if it is still running; returns its wait status."""
        if self.requests is None:
            return 0
        self._selector.unregister(self.requests)
        self.requests.close()
        self.requests = None
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        with contextlib.suppress(OSError):
            return os.waitpid(self.pid, 0)[1]
        return 0

    def resume_workers(self) -> None:
        """Continues workers that are stopped, so that they see that their clients have ended."""
        import psutil  # not at the start, which it would delay

        with contextlib.suppress(psutil.Error):
            for worker in psutil.Process(self.pid).children():
                if worker.status() == psutil.STATUS_STOPPED:
                    log.info("continues worker %d, which was stopped", worker.pid)
                    worker.resume()

    def _become(self, ours: socket.socket, theirs: socket.socket) -> None:
        status = 1
        try:
            ours.close()
            self._leave()
            status = serve(theirs, self._settings, self._load)
        except BaseException:
            log.exception("warm process failed")
        finally:
            logging.shutdown()
            os._exit(status)

    def _receive(self) -> None:
        assert self.requests is not None
        if (data := link.receive(self.requests, 64)) is None:
            return
        if data:
            took_s = time.monotonic() - self._started
            log.info("warm process %d is ready after %.2f s", self.pid, took_s)
            return
        status = self.end()
        log.warning("the warm process ended with status %d", status)
        self._delay()

    def _delay(self) -> None:
        now = time.monotonic()
        if now - self._started > WARM_STEADY_S:
            self._delay_s = WARM_DELAY_MIN_S
        self.due = now + self._delay_s
        self._delay_s = min(2 * self._delay_s, WARM_DELAY_MAX_S)


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
