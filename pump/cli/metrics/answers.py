"""Answers HTTP requests for `pump service metrics`, at a unix socket or a TCP address.

DESIGN
  prometheus_client answers each peer in a thread of its own; a peer that is silent for REQUEST_S
  is disconnected. There are at most PEERS_MOST connections: for one more, the address with most
  connections loses its oldest. So slow peers, or many, delay others little.
"""

from __future__ import annotations

import contextlib
import os
import socket
import socketserver
import stat
import sys
import threading
from collections import Counter
from typing import Any

from prometheus_client import CollectorRegistry, MetricsHandler

from pump import paths

REQUEST_S = 5.0
PEERS_MOST = 64


class Server(socketserver.ThreadingTCPServer):
    """Answers at a listening socket, which it closes with `server_close`."""

    daemon_threads = True

    def __init__(self, listener: socket.socket, registry: CollectorRegistry) -> None:
        handler = type("Handler", (MetricsHandler,), {"registry": registry, "timeout": REQUEST_S})
        super().__init__(("", 0), handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self._peers: dict[Any, str] = {}
        """Addresses by connection, the oldest first."""
        self._lock = threading.Lock()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread, which the base class starts."""
        with self._lock:
            if len(self._peers) >= PEERS_MOST:
                counts = Counter(self._peers.values())
                most = max(counts.values())
                oldest = next(one for one, host in self._peers.items() if counts[host] == most)
                del self._peers[oldest]
                with contextlib.suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)  # its thread closes it
            self._peers[request] = client_address[0] if client_address else ""
        super().process_request(request, client_address)

    def close_request(self, request: Any) -> None:
        """Forget the connection and close it."""
        with self._lock:
            self._peers.pop(request, None)
        super().close_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print what went wrong, unless the peer has gone or takes nothing."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


def listen(path: str | None, address: str | None) -> socket.socket:
    """A socket that listens at a path, for this user alone, or, where that is None, at an
    address HOST:PORT. Raises OSError."""
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
    """Removes the socket at `path` if no process listens on it; never another file."""
    with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(REQUEST_S)
            probe.connect(path)
        return  # one answers: bind says so
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISSOCK(os.lstat(path).st_mode):
            os.unlink(path)
