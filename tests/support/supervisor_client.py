"""For the supervisor's tests: a client in Python, a stand-in worker, and a supervisor with this
worker that runs as a separate process (this file as a script).

Like the real worker, the stand-in writes its process id into the header and serves until its
client's socket closes.
"""

from __future__ import annotations

import argparse
import logging
import mmap
import os
import select
import socket
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path

from pump.wire import control
from pumpd.common import link
from pumpd.common.jobwatch import JobWatch
from pumpd.common.settings import WorkerSettings
from pumpd.job import supervisor, worker_spawner

WORKER_PID_OFFSET = 28
TIMEOUT_S = 15.0


def eventually(condition: Callable[[], object], what: str) -> None:
    """Waits until `condition()` holds; fails the test after TIMEOUT_S."""
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {TIMEOUT_S:.0f} s: {what}"
        time.sleep(0.01)


def alive(pid: int) -> bool:
    """Returns False for a missing process or a zombie. Its name may be any bytes."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] not in b"ZX"
    except OSError:
        return False


class Client:
    """One connection to pumpd, after the handshake."""

    def __init__(self, path: str | Path, hello: bytes | None = None) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(TIMEOUT_S)
        self.socket.connect(str(path))
        self.socket.send(link.pack_hello(os.getpid()) if hello is None else hello)
        data, fds, _, _ = socket.recv_fds(self.socket, 256, 4)
        assert len(data) == link.WELCOME.size, f"a welcome of {len(data)} bytes"
        self.magic, self.version, self.status, self.shm_bytes, *_ = link.WELCOME.unpack(data)
        self.memfd = fds[0] if fds else None
        self.fds = fds
        self._map = mmap.mmap(fds[0], link.SHM_BYTES) if fds else None

    def word(self, offset: int) -> int:
        assert self._map is not None
        return int(struct.unpack_from("<I", self._map, offset)[0])

    def worker_pid(self) -> int:
        """Waits for this client's worker; returns its process id."""
        eventually(lambda: self.word(WORKER_PID_OFFSET), "a worker for this client")
        return self.word(WORKER_PID_OFFSET)

    def closed(self) -> bool:
        """Returns whether the other side has closed the socket."""
        return bool(select.select([self.socket], [], [], 0)[0]) and self.socket.recv(1) == b""

    def close(self) -> None:
        self.socket.close()
        if self._map is not None:
            self._map.close()
        for fd in self.fds:
            os.close(fd)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def stand_in(
    memfd: int, connection: socket.socket, lifeline: socket.socket, settings: WorkerSettings
) -> None:
    """Serves one client; only answers its requests."""
    with mmap.mmap(memfd, link.SHM_BYTES) as mapping:
        os.close(memfd)
        assert settings.client_pid > 0
        struct.pack_into("<I", mapping, WORKER_PID_OFFSET, os.getpid())
        heard = [connection, lifeline]
        while True:
            ready = select.select(heard, [], [])[0]
            if connection in ready and not connection.recv(64):
                return
            if lifeline in ready and not answer(lifeline, settings.client_pid):
                heard = [connection]  # the supervisor has exited


def answer(lifeline: socket.socket, client_pid: int) -> bool:
    """Answers one request according to the policy name in it; returns False at the end."""
    data = lifeline.recv(8192)
    if not data:
        return False
    number, frame = control.split(data)
    policy = control.decode_request(frame).policy or "window"
    if policy == "die":
        os._exit(3)
    if policy == "garble":
        lifeline.send(b"\xff" * 77)
    elif policy != "silent":
        state = control.ClientState(client_pid, None, policy)
        lifeline.send(control.numbered(number, control.encode_client(state)))
    return True


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("socket")
    parser.add_argument("job_pid", type=int)
    parser.add_argument("--log", required=True)
    parser.add_argument("--load-s", type=float, default=0.0)
    parser.add_argument("--broken", action="store_true")
    parser.add_argument("--max-clients", type=int, default=supervisor.MAX_CLIENTS)
    parser.add_argument("--max-handshakes", type=int, default=supervisor.MAX_HANDSHAKES)
    parser.add_argument("--no-pidfd", action="store_true")
    asked = parser.parse_args()
    supervisor.MAX_CLIENTS = asked.max_clients
    supervisor.MAX_HANDSHAKES = asked.max_handshakes
    if asked.no_pidfd:
        del os.pidfd_open
    logging.basicConfig(filename=asked.log, level="DEBUG", format="%(process)d %(message)s")

    def load() -> worker_spawner.WorkerRun:
        logging.info("loading")
        time.sleep(asked.load_s)
        if asked.broken:
            raise ImportError("broken on purpose")
        return stand_in

    listener = link.bind_listener(asked.socket, 64)
    settings = WorkerSettings("window", "debug", asked.log, 0)
    supervisor.Supervisor(listener, JobWatch(asked.job_pid), settings, load).run()
    Path(asked.socket).unlink()


if __name__ == "__main__":
    sys.exit(main())
