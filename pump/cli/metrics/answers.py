"""Serves GET /metrics over HTTP, for `pump service metrics`: on a unix socket or a TCP address.

DESIGN
  One thread uses one selector, and no call waits for a peer. Each peer has REQUEST_S for its
  request of at most REQUEST_BYTES, and REQUEST_S to take the answer. There are at most PEERS_MOST
  connections; to accept another, the address with most connections loses its oldest one. So slow
  or numerous peers barely delay others. All answers within LEAST_AGE_S are the same bytes.

  The server implements one HTTP request for each connection (RFC 9112). The server of
  prometheus_client has a thread for each peer, so that three users with open connections can keep
  others from the metrics.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import stat
import time
from collections import Counter
from collections.abc import Callable

from prometheus_client import CONTENT_TYPE_LATEST

from pump.base import paths

REQUEST_S = 5.0
REQUEST_BYTES = 8192
PEERS_MOST = 64
ACCEPTS_AT_ONCE = 16
PAUSE_S = 0.1
"""Pause after accept ran out of descriptors or memory."""
LEAST_AGE_S = 1.0
"""Requests within this time get the same metrics, so that requests cannot keep jobs busy."""
ENDS = (b"\r\n\r\n", b"\n\n")
PATHS = ("/", "/metrics")


class _Peer:
    """A connection. left: the unsent part of the answer; None until the request is complete."""

    def __init__(self, connection: socket.socket, address: str, deadline: float) -> None:
        self.connection = connection
        self.address = address
        self.deadline = deadline
        self.asked = b""
        self.left: memoryview | None = None


class Server:
    """Serves requests on a listening socket, which it closes at the end. text: returns metrics."""

    def __init__(self, listener: socket.socket, text: Callable[[], str]) -> None:
        self._listener = listener
        self._text = text
        self._latest = b""
        self._latest_s = 0.0
        self._peers: dict[socket.socket, _Peer] = {}  # in order of arrival
        self._selector = selectors.DefaultSelector()
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ)

    def serve(self) -> None:
        """Answers requests until an exception such as KeyboardInterrupt."""
        try:
            while True:
                self.turn()
        finally:
            for peer in list(self._peers.values()):
                self._close_peer(peer)
            self._selector.close()
            self._listener.close()

    def turn(self, most_s: float | None = None) -> None:
        """Waits for events, at most most_s seconds (None: forever), and handles them."""
        now = time.monotonic()
        dues = [peer.deadline - now for peer in self._peers.values()]
        if most_s is not None:
            dues.append(most_s)
        ready = self._selector.select(max(0.0, min(dues)) if dues else None)
        now = time.monotonic()  # an answer may outlast the deadlines of peers
        for key, _ in ready:
            if key.fileobj is self._listener:
                self._accept()
            elif isinstance(key.fileobj, socket.socket) and key.fileobj in self._peers:
                self._step(self._peers[key.fileobj])
        for peer in [peer for peer in self._peers.values() if now >= peer.deadline]:
            self._close_peer(peer)

    def _accept(self) -> None:
        for _ in range(ACCEPTS_AT_ONCE):
            try:
                connection, address = self._listener.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError:
                time.sleep(PAUSE_S)
                return
            connection.setblocking(False)
            if len(self._peers) >= PEERS_MOST:
                self._make_room()
            host = address[0] if isinstance(address, tuple) else ""
            peer = _Peer(connection, host, time.monotonic() + REQUEST_S)
            self._peers[connection] = peer
            self._selector.register(connection, selectors.EVENT_READ)
            self._step(peer)  # usually the request has already arrived

    def _make_room(self) -> None:
        counts = Counter(peer.address for peer in self._peers.values())
        most = max(counts.values())
        self._close_peer(next(p for p in self._peers.values() if counts[p.address] == most))

    def _step(self, peer: _Peer) -> None:
        try:
            if peer.left is None:
                self._receive(peer)
            if peer.left is not None:
                peer.left = peer.left[peer.connection.send(peer.left) :]
                if not peer.left:
                    self._close_peer(peer)
        except BlockingIOError:
            pass
        except OSError:  # the peer has closed
            self._close_peer(peer)

    def _receive(self, peer: _Peer) -> None:
        data = peer.connection.recv(REQUEST_BYTES + 1 - len(peer.asked))
        peer.asked += data
        whole = any(end in peer.asked for end in ENDS)
        if not data and not whole:
            self._close_peer(peer)
        elif whole or len(peer.asked) > REQUEST_BYTES:
            peer.left = memoryview(self._answer(peer.asked if whole else b""))
            peer.deadline = time.monotonic() + REQUEST_S
            self._selector.modify(peer.connection, selectors.EVENT_WRITE)

    def _answer(self, asked: bytes) -> bytes:
        words = asked.partition(b"\n")[0].decode("latin-1").split()
        if len(words) != 3 or not words[2].startswith("HTTP/"):
            return _page("400 Bad Request", b"not a request of at most 8 KiB\n")
        method, path, _ = words
        if method not in ("GET", "HEAD"):
            return _page("405 Method Not Allowed", b"only GET is answered\n")
        if path.partition("?")[0] not in PATHS:
            return _page("404 Not Found", b"the metrics are at /metrics\n")
        now = time.monotonic()
        if not self._latest or now - self._latest_s > LEAST_AGE_S:
            self._latest = _page("200 OK", self._text().encode())
            self._latest_s = now
        if method == "HEAD":
            return self._latest.partition(ENDS[0])[0] + ENDS[0]
        return self._latest

    def _close_peer(self, peer: _Peer) -> None:
        if self._peers.pop(peer.connection, None) is not None:
            self._selector.unregister(peer.connection)
            peer.connection.close()


def _page(status: str, body: bytes) -> bytes:
    head = (
        f"HTTP/1.0 {status}\r\nContent-Type: {CONTENT_TYPE_LATEST}\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body


def listen(path: str | None, address: str | None) -> socket.socket:
    """Returns a socket that listens at `path` for this user only. If `path` is None, the socket
    listens at `address`, HOST:PORT. Raises OSError."""
    if path is None:
        host, _, port = (address or "").rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        return socket.create_server(
            (host, int(port)), family=socket.AF_INET6 if ":" in host else socket.AF_INET
        )
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _clear(path)
        paths.bind(listener, path, 0o600)
        listener.listen(16)
    except OSError:
        listener.close()
        raise
    return listener


def _clear(path: str) -> None:
    """Removes the socket at `path` if no process listens on it. Never removes another file."""
    with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(REQUEST_S)
            probe.connect(path)
        return  # a process listens: bind reports the error
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISSOCK(os.lstat(path).st_mode):
            os.unlink(path)
