"""The handshake between a client and pumpd: hello in, welcome and a sealed memfd out.

The layouts repeat shim/include/pump_abi.h with `struct`, so that the supervisor can answer while
another process imports numpy and cffi. A test compares both definitions. Clients are untrusted:
`check_hello` accepts any bytes. No function here blocks.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import selectors
import socket
import struct
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from pump.base import paths

ABI_MAGIC = 0x314D4853504D5550
ACCEPTS_AT_ONCE = 16
ACCEPT_PAUSE_S = 0.5

log = logging.getLogger("pumpd")

HELLO_MAGIC = 0x4F4C4C45484D5550
ABI_VERSION = 14
HEADER_BYTES = 448
SHM_BYTES = 19783680

WELCOME_OK = 0
WELCOME_VERSION = 1
WELCOME_REFUSED = 2
WELCOME_BUSY = 3

# magic, abi_version, client_pid or status, shm_bytes, reserved[5]
HELLO = struct.Struct("<QIIQ5Q")
WELCOME = HELLO
# magic, abi_version, header_bytes, shm_bytes, client_pid; the rest of the header is zero
HEADER_START = struct.Struct("<QIIQI")


def check_hello(data: bytes) -> tuple[int, str]:
    """Returns the welcome's status for a client's first datagram, and the reason for the log.

    The status is WELCOME_REFUSED for a malformed hello, and WELCOME_VERSION for another protocol
    version or another size of the mapping.
    """
    if len(data) != HELLO.size:
        return WELCOME_REFUSED, f"hello of {len(data)} bytes, not {HELLO.size}"
    magic, abi_version, _pid, shm_bytes, *reserved = HELLO.unpack(data)
    if magic != HELLO_MAGIC:
        return WELCOME_REFUSED, f"hello with magic {magic:#x}"
    if abi_version != ABI_VERSION:
        return WELCOME_VERSION, (
            f"its libpump.so has protocol version {abi_version}, this pumpd {ABI_VERSION}; "
            "install both from one release"
        )
    if shm_bytes != SHM_BYTES:
        return WELCOME_VERSION, (
            f"its libpump.so maps {shm_bytes} bytes, this pumpd {SHM_BYTES}; install both "
            "from one release"
        )
    if any(reserved):
        return WELCOME_REFUSED, "hello with reserved fields set"
    return WELCOME_OK, "ok"


def pack_hello(client_pid: int) -> bytes:
    """Returns a hello as the shim sends it (for tests and tools)."""
    return HELLO.pack(HELLO_MAGIC, ABI_VERSION, client_pid, SHM_BYTES, 0, 0, 0, 0, 0)


def send_welcome(connection: socket.socket, status: int, memfd: int | None = None) -> None:
    """Answers a hello. Raises OSError (BlockingIOError if the peer's buffer is full)."""
    data = WELCOME.pack(HELLO_MAGIC, ABI_VERSION, status, SHM_BYTES, 0, 0, 0, 0, 0)
    fds = [] if memfd is None else [memfd]
    socket.send_fds(connection, [data], fds, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)


def create_memfd(client_pid: int) -> int:
    """Creates a mapping of SHM_BYTES with its header, and seals its size (memfd_create(2)).

    Without the seal, a peer could shrink the mapping and thus kill the other side by SIGBUS. The
    heartbeat is 0 until the worker starts. Raises OSError.
    """
    memfd = os.memfd_create("pump", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(memfd, SHM_BYTES)
        start = HEADER_START.pack(ABI_MAGIC, ABI_VERSION, HEADER_BYTES, SHM_BYTES, client_pid)
        os.pwrite(memfd, start, 0)
        seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
        fcntl.fcntl(memfd, fcntl.F_ADD_SEALS, seals)
    except OSError:
        os.close(memfd)
        raise
    return memfd


def answers(path: str) -> bool:
    """Returns whether a process listens on the socket at `path`."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except BlockingIOError:  # the backlog is full, so a process listens
            return True
        except OSError:
            return False
    return True


class SocketFile:
    """The path of a socket on which this process listens."""

    def __init__(self, path: str) -> None:
        self.path = Path(path)
        self._inode = self._inode_now()

    def _inode_now(self) -> tuple[int, int] | None:
        try:
            status = self.path.lstat()
        except OSError:
            return None
        return status.st_dev, status.st_ino

    def remove(self) -> None:
        """Removes the socket, unless another socket has replaced it."""
        if self._inode is not None and self._inode_now() == self._inode:
            with contextlib.suppress(OSError):
                self.path.unlink()


def receive(connection: socket.socket, most_bytes: int) -> bytes | None:
    """Returns the next frame; None: there is none yet; empty: the peer has closed, or an error."""
    try:
        return connection.recv(most_bytes)
    except BlockingIOError:
        return None
    except OSError:
        return b""


def accept(listener: socket.socket) -> tuple[list[socket.socket], OSError | None]:
    """Accepts up to ACCEPTS_AT_ONCE waiting peers of a non-blocking listener.

    Returns their sockets, which are non-blocking, and the error that stopped accepting, if any (no
    descriptors, no memory). The listener stays readable after an error, so callers should pause.
    """
    taken: list[socket.socket] = []
    while len(taken) < ACCEPTS_AT_ONCE:
        try:
            connection, _address = listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            break  # no peer, or the peer has closed; a new one makes the listener readable
        except OSError as error:
            return taken, error
        connection.setblocking(False)
        taken.append(connection)
    return taken, None


class Acceptor:
    """Accepts the peers of `listeners`, and calls `greet` with the connection of each. Pauses for
    ACCEPT_PAUSE_S after an error, because the listeners stay readable."""

    def __init__(
        self,
        selector: selectors.BaseSelector,
        listeners: Sequence[socket.socket],
        greet: Callable[[socket.socket], None],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._selector, self._listeners = selector, list(listeners)
        self._greet, self._now = greet, now
        self.due: float | None = None
        """When a pause ends; None: there is none."""

    def on_time(self, now: float) -> None:
        """Continues after a pause."""
        if self.due is not None and now >= self.due:
            self.start()

    def start(self) -> None:
        """Starts to accept, now or after a pause."""
        self.due, read = None, selectors.EVENT_READ
        try:
            for one in self._listeners:
                one.setblocking(False)
                self._selector.register(one, read, lambda *_events, one=one: self.accept(one))
        except OSError as error:
            self._pause(error)

    def accept(self, listener: socket.socket) -> None:
        """Accepts waiting peers of this listener."""
        connections, error = accept(listener)
        for connection in connections:
            self._greet(connection)
        if error is not None:
            self._pause(error)

    def _pause(self, error: OSError) -> None:
        log.error("cannot accept: %s", error)
        for one in self._listeners:
            with contextlib.suppress(KeyError):  # all are paused after another listener's error
                self._selector.unregister(one)
        self.due = self._now() + ACCEPT_PAUSE_S

    def close(self) -> None:
        """Closes the listeners."""
        for listener in self._listeners:
            listener.close()


def bind_listener(path: str, backlog: int, mode: int = 0o600) -> socket.socket:
    """Listens on `path` with that mode; replaces a socket on which no process answers.

    Raises OSError; FileExistsError if another process answers there.
    """
    if answers(path):
        raise FileExistsError(None, f"another pumpd already listens on {path}; stop it first")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        place = Path(path)
        if place.is_socket():
            place.unlink()
        paths.bind(listener, path, mode)
        listener.listen(backlog)
    except OSError:
        listener.close()
        raise
    return listener
