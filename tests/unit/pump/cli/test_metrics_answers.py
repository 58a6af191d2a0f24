"""pump metrics over HTTP, with slow peers, many peers, and peers that send anything."""

from __future__ import annotations

import contextlib
import resource
import socket
import threading
from collections.abc import Callable, Iterator

import pytest
from supervisor_client import eventually

from pump.cli.metrics import answers

GET = b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n"
LONG_S = 600.0
"""A time limit that no test reaches, so no answer depends on it."""
TIMEOUT_S = 30


@contextlib.contextmanager
def answering(text: Callable[[], str] = lambda: "figures\n") -> Iterator[int]:
    """Runs a server on a port of its own, and yields the port."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = answers.Server(listener, text)
    ended = threading.Event()

    def serve() -> None:
        while not ended.is_set():
            server.turn(0.05)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        ended.set()
        thread.join(10)
        listener.close()


def connect(port: int, host: str = "127.0.0.1") -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), TIMEOUT_S, (host, 0))


def asked(port: int, request: bytes = GET) -> bytes:
    """Returns the whole answer."""
    with connect(port) as peer:
        peer.sendall(request)
        return b"".join(iter(lambda: peer.recv(1 << 16), b""))


def gone(peer: socket.socket) -> bool:
    peer.setblocking(False)
    try:
        return peer.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True
    finally:
        peer.settimeout(TIMEOUT_S)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "REQUEST_S", LONG_S)


@pytest.mark.parametrize("peers", [4, 64, 1000])
@pytest.mark.parametrize("said", [b"", b"GET /metrics HTTP/1.1\r\n"], ids=["silent", "half"])
def test_slow_peers_keep_no_other_from_the_figures(patient: None, peers: int, said: bytes) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2 * peers:
        pytest.skip(f"this process may open {hard} files only")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * peers + 200), hard))
    try:
        with answering() as port, contextlib.ExitStack() as stack:
            for _ in range(peers):
                slow = stack.enter_context(connect(port))
                with contextlib.suppress(OSError):  # the connection may be closed
                    slow.sendall(said)
            for _ in range(3):
                assert asked(port).endswith(b"\r\n\r\nfigures\n")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_peers_that_take_nothing_keep_no_other_from_the_figures(patient: None) -> None:
    figures = "x" * (8 << 20) + "\n"
    with answering(lambda: figures) as port, contextlib.ExitStack() as stack:
        for _ in range(answers.PEERS_MOST + 4):
            deaf = stack.enter_context(connect(port))
            deaf.sendall(GET)
        assert asked(port).endswith(figures.encode())


def test_the_address_that_has_most_connections_loses_its_oldest(patient: None) -> None:
    with answering() as port, contextlib.ExitStack() as stack:
        one = stack.enter_context(connect(port, "127.0.0.2"))
        many = [stack.enter_context(connect(port)) for _ in range(3 * answers.PEERS_MOST)]
        eventually(lambda: gone(many[answers.PEERS_MOST]), "the oldest connection to be closed")
        assert gone(many[0]) and not gone(one)
        one.sendall(GET)
        assert one.recv(12) == b"HTTP/1.0 200"


def test_a_silent_peer_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "REQUEST_S", 0.2)
    with answering() as port, connect(port) as silent:
        assert silent.recv(1) == b"", "the server closes the connection"


def test_a_peer_that_asks_byte_by_byte_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "REQUEST_S", 0.4)
    with answering() as port, connect(port) as slow:
        with pytest.raises(OSError, match=r"reset|pipe"):
            for byte in GET[:-2] + b"x: y\r\n" * 2000:
                slow.sendall(bytes([byte]))
                threading.Event().wait(0.02)
        assert asked(port).startswith(b"HTTP/1.0 200")


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (GET, 200),
        (b"GET / HTTP/1.0\n\n", 200),
        (b"GET /metrics?x=y HTTP/1.0\r\n\r\n", 200),
        (b"HEAD /metrics HTTP/1.0\r\n\r\n", 200),
        (b"GET /../etc/passwd HTTP/1.0\r\n\r\n", 404),
        (b"POST /metrics HTTP/1.1\r\n\r\n", 405),
        (b"GET\r\n\r\n", 400),
        (b"\r\n\r\n", 400),
        (b"\xff\x00\x80 \r\n\r\n", 400),
        (b"x" * (answers.REQUEST_BYTES + 1), 400),
    ],
    ids=range(10),
)
def test_a_request_gets_its_status(request_: bytes, status: int) -> None:
    with answering() as port:
        answer = asked(port, request_)
        assert int(answer.split()[1]) == status
        head, _, body = answer.partition(b"\r\n\r\n")
        told = int(head.partition(b"Content-Length: ")[2].split()[0])
        assert told == len(body) or (request_.startswith(b"HEAD") and not body)
        assert asked(port).startswith(b"HTTP/1.0 200"), "it goes on"


def test_all_requests_within_a_second_cost_one_look() -> None:
    looks = []

    def text() -> str:
        looks.append(1)
        return "figures\n"

    with answering(text) as port:
        for _ in range(20):
            asked(port)
    assert len(looks) <= 1 + 20 / 2
