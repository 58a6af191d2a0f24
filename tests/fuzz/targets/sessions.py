"""Whole sequences of frames, from several peers in turn: the service, and control connections.

An input's first byte selects the receiver. Then follow steps of {action and peer: 1 byte, length: 2
bytes, data}. The service is the simulated one of tests/service. The peers must not affect an honest
job and an asker. For control connections the supervisor's end is real, over real sockets; its
workers answer with bytes of the input.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pump.wire import control
from pump.wire import service as wire
from pumpd.job.control_server import ANSWER_S, MAX_CONTROLS, ControlServer

sys.path.append(str(Path(__file__).resolve().parents[2] / "service"))

from service_players import GPU, MIB
from service_scenario import ROOT, Scenario
from service_world import World

PEERS = 4
USERS = (7001, 7001, 7002, 0)
STEPS_MOST = 400
STEP_S = 0.01
REST_S = 8.0
CONNECT, SAY, LEAVE, DEAF, WAIT = range(5)


def target(data: bytes) -> None:
    if data:
        (_service, _controls)[data[0] % 2](list(_steps(data[1:])))


def _steps(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yields action, peer and data of each step."""
    for _ in range(STEPS_MOST):
        if len(data) < 3:
            return
        length = int.from_bytes(data[1:3], "little")
        yield data[0] % 5, data[0] // 5 % PEERS, data[3 : 3 + length]
        data = data[3 + length :]


# ---- the service ----


class Peer:
    """A peer that sends bytes of the input and checks the answers."""

    def __init__(self, world: World, user: int) -> None:
        self.world, self.user = world, user
        self.line: Any = None

    def does(self, what: int, data: bytes) -> None:
        if what == CONNECT:
            self.does(LEAVE, b"")
            self.line = self.world.connect(1, self.user, self.told)
        if self.line is None:
            return
        if what == SAY:
            self.line.say(data)
        elif what == DEAF:
            self.line.reading = False
        elif what == LEAVE:
            self.line.leave()
            self.line = None

    @staticmethod
    def told(data: bytes) -> None:
        if len(data) == wire.HELLO.size:
            assert wire.HELLO.unpack(data)[0] == wire.MAGIC
        elif data:
            wire.decode(data, wire.FROM_SERVICE)


def _service(steps: list[tuple[int, int, bytes]]) -> None:
    story = Scenario(0)
    job = story.job(5001, 0.1)
    asker = story.asker(ROOT, 2.0)
    peers = [Peer(story.world, user) for user in USERS]
    at = story.world.time + 1.0
    for what, which, data in steps:
        at += STEP_S + (len(data) * STEP_S if what == WAIT else 0.0)
        story.world.at(at, lambda p=peers[which], w=what, d=data: p.does(w, d))  # type: ignore[misc]
    story.run(at - story.world.time + REST_S)
    assert job.joined and job.granted and asker.answers, "others are served"


# ---- control connections ----


def _controls(steps: list[tuple[int, int, bytes]]) -> None:
    with contextlib.ExitStack() as stack:
        selector = stack.enter_context(selectors.DefaultSelector())
        lifelines = [_pair(stack) for _ in range(2)]
        workers = {ours: 100 + number for number, (ours, _) in enumerate(lifelines)}
        controls = ControlServer(selector, workers)
        stack.callback(controls.close)
        steerers: dict[int, socket.socket] = {}
        for what, which, data in steps:
            if what == CONNECT:
                theirs, steerers[which] = _pair(stack)
                controls.admit(theirs, data)
            elif what == SAY and which in steerers:
                with contextlib.suppress(OSError):
                    steerers[which].send(data)
            elif what == LEAVE and which in steerers:
                steerers.pop(which).close()
            elif what == DEAF:
                controls.answered(lifelines[which % 2][0], data)
            elif what == WAIT:
                controls.gone(lifelines[which % 2][0])
            for key, _ in selector.select(0):
                key.data()
            controls.on_time(time.monotonic() + 0.01)
            assert controls._count() <= MAX_CONTROLS
        controls.on_time(time.monotonic() + ANSWER_S + 1)
        assert not controls._questions, "each question ends"
        for one in steerers.values():
            _check_replies(one)


def _pair(stack: contextlib.ExitStack) -> tuple[socket.socket, socket.socket]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for one in (ours, theirs):
        one.setblocking(False)
        stack.callback(one.close)
    return ours, theirs


def _check_replies(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := one.recv(1 << 20):
            if len(data) == len(control.pack_welcome(control.OK)):
                continue
            with contextlib.suppress(control.FrameError):  # the reply reports an error
                control.decode_reply(data)


# ---- sound inputs ----


def _step(what: int, which: int, data: bytes = b"") -> bytes:
    return bytes([what + 5 * which]) + len(data).to_bytes(2, "little") + data


def seeds() -> list[bytes]:
    hello, join = wire.pack_hello(), wire.encode(wire.Join("fuzz", 10))
    entry = wire.GpuReport(GPU, 8 << 30, 8 << 30, 1 << 40, 8 * MIB, 0, 1000, True, True)
    report = wire.encode(wire.Report(1, 1, 0, 0, (entry,)))
    begun = [(CONNECT, b""), (SAY, hello), (SAY, join)]
    talks: list[list[tuple[int, bytes]]] = [
        [*begun, (SAY, report), (WAIT, bytes(50)), (SAY, wire.encode(wire.Beat())), (LEAVE, b"")],
        [*begun, (DEAF, b""), *[(SAY, wire.encode(wire.AskJobs()))] * 40],
        [*begun, *begun, (SAY, b"{"), (SAY, report)],
        [(CONNECT, b""), (SAY, wire.encode(wire.AskService())), (CONNECT, b""), (SAY, b"")],
    ]
    service = [
        b"\0" + b"".join(_step(what, which, data) for what, data in talk for which in peers)
        for talk in talks
        for peers in ((0,), (0, 1, 2, 3))
    ]
    greets = control.pack_hello()
    ask = control.encode_request(control.Request("state"))
    put = control.encode_request(control.Request("set", 100, "demand", 1 << 33, 0))
    answer = control.numbered(1, control.encode_client(control.ClientState(100)))
    steering = [
        b"\1" + _step(CONNECT, 0, greets) + _step(SAY, 0, ask) + _step(DEAF, 0, answer),
        b"\1"
        + _step(CONNECT, 1, greets)
        + _step(SAY, 1, put)
        + _step(WAIT, 0)
        + _step(SAY, 1, b"{"),
    ]
    return service + steering
