"""pump service metrics over HTTP: slow peers, many peers, and peers that say anything."""

from __future__ import annotations

import contextlib
import resource
import socket
import threading
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.registry import Collector
from supervisor_client import eventually

from pump.cli.metrics import Latest, answers
from pump.cli.metrics.figures import Figures
from pump.cli.support import live

GET = b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n"
LONG_S = 600.0
"""A time limit that no test comes near: what is answered is not answered because of it."""
PATIENCE_S = 30


class One(Collector):
    """One metric, whose help text has `length` characters."""

    def __init__(self, length: int = 1) -> None:
        self._length = length

    def collect(self) -> list[Metric]:
        metric = Metric("pump_jobs", "x" * self._length, "gauge")
        metric.add_sample("pump_jobs", {}, 3)
        return [metric]


END = b"pump_jobs 3.0\n"


@contextlib.contextmanager
def answering(collector: Collector | None = None) -> Iterator[int]:
    """A server at a port of its own, which it yields."""
    registry = CollectorRegistry()
    registry.register(collector or One())
    server = answers.Server(socket.create_server(("127.0.0.1", 0), backlog=128), registry)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server.socket.getsockname()[1]
    finally:
        server.shutdown()
        thread.join(10)
        server.server_close()


def connect(port: int, host: str = "127.0.0.1") -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), PATIENCE_S, (host, 0))


def asked(port: int, request: bytes = GET) -> bytes:
    """The whole answer."""
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
        peer.settimeout(PATIENCE_S)


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
                with contextlib.suppress(OSError):  # its connection has been closed
                    slow.sendall(said)
            for _ in range(3):
                assert asked(port).endswith(END)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_peers_that_take_nothing_keep_no_other_from_the_figures(patient: None) -> None:
    with answering(One(8 << 20)) as port, contextlib.ExitStack() as stack:
        for _ in range(answers.PEERS_MOST + 4):
            deaf = stack.enter_context(connect(port))
            deaf.sendall(GET)
        assert asked(port).endswith(END)


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
        assert silent.recv(1) == b""
        assert asked(port).endswith(END)


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (GET, 200),
        (b"GET / HTTP/1.0\n\n", 200),
        (b"GET /metrics?x=y HTTP/1.0\r\n\r\n", 200),
        (b"POST /metrics HTTP/1.1\r\n\r\n", 501),
        (b"GET /\xff /metrics\r\n\r\n", 400),
        (b"\xff\x00\x80 \r\n\r\n", 400),
        (b"GET /" + b"x" * 100_000 + b" HTTP/1.0\r\n\r\n", 414),
    ],
    ids=range(7),
)
def test_a_request_gets_its_status(request_: bytes, status: int) -> None:
    with answering() as port:
        assert f" {status} ".encode() in asked(port, request_).partition(b"\r\n")[0] + b" "
        assert asked(port).startswith(b"HTTP/1.0 200"), "it goes on"


def test_all_requests_within_a_second_cost_one_look(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []

    def look(_: live.Watch) -> live.Look:
        looks.append(1)
        return live.Look(0.0, [])

    monkeypatch.setattr(live.Watch, "look", look)
    with contextlib.closing(live.Watch()) as watch, answering(Latest(watch, Figures())) as port:
        for _ in range(20):
            asked(port)
    assert len(looks) <= 1 + 20 / 2
