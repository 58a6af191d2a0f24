"""A job's lease client, with a service and workers that the test simulates."""

from __future__ import annotations

import dataclasses
import select
import selectors
import socket
import time
from collections.abc import Callable
from pathlib import Path

from pump.control import ClientState, DeviceState
from pump.wire import control
from pump.wire import service as wire
from pumpd.lease.lease_client import JobFacts, LeaseClient
from pumpd.lease.rounds import HOLD_MS

MIB = 1 << 20
Answer = Callable[[list[ClientState]], None]


class Scene:
    """A lease client attached to a simulated service; workers answer on request."""

    def __init__(
        self, folder: Path, selector: selectors.BaseSelector, version: int = wire.VERSION
    ) -> None:
        self.selector = selector
        self.answers: list[Answer] = []
        self.holds: list[tuple[int | None, int | None, int]] = []
        """Requests since the last call of hold_requests(): process, device, hold_ms."""
        self.yields: set[tuple[int | None, int | None]] = set()
        """Processes and devices of the last requests to yield."""
        self.answers_beats = True
        self.granted = b""
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(str(folder / "service"))
        self.listener.listen(1)
        facts = JobFacts(paths=[str(folder / "service")])
        self.holder = LeaseClient(selector, self.inquire, facts)
        self.holder.on_time(time.monotonic())
        self.listener.settimeout(10)
        self.service, _ = self.listener.accept()
        self.service.settimeout(10)
        self.service.recv(64)
        self.service.send(wire.pack_welcome(wire.OK, version))
        self.version = version
        self.handle_events()
        assert isinstance(self.said(), wire.Join)

    def inquire(self, request: control.Request, answer: Answer) -> None:
        if request.hold_ms is None:
            self.answers.append(answer)
            return
        where, yield_ms = (request.client_pid, request.device), request.yield_ms
        assert request == control.Request(
            control.SET, where[0], None, None, where[1], request.hold_ms, yield_ms
        )
        assert yield_ms in (0, HOLD_MS)
        self.holds.append((*where, request.hold_ms))
        self.yields = self.yields | {where} if yield_ms else self.yields - {where}
        answer([])

    def handle_events(self) -> None:
        for key, _ in self.selector.select(10):
            key.data()

    def grant(self, number: int, *gpus: wire.GpuGrant) -> None:
        self.granted = wire.encode(wire.Grant(number, 20_000, gpus), self.version)
        self.service.send(self.granted)
        self.handle_events()

    def answer_beats(self) -> None:
        """Answers beats like the service."""
        while select.select([self.service], [], [], 0)[0]:
            if isinstance(self.said(), wire.Beat):
                self.service.send(self.granted)
                self.handle_events()

    def hold_requests(
        self, now: float, *clients: ClientState
    ) -> list[tuple[int | None, int | None, int]]:
        """Runs due rounds in which workers report `clients`; returns the launch-hold requests."""
        self.holds.clear()
        self.holder.on_time(now)
        while self.answers:
            self.answers.pop()(list(clients))
            self.holder.on_time(now)
        if self.answers_beats:
            self.answer_beats()
        return list(self.holds)

    def said(self) -> object:
        return wire.decode(self.service.recv(wire.FRAME_BYTES), wire.FROM_CLIENTS, self.version)

    def close(self) -> None:
        self.holder.close()
        self.service.close()
        self.listener.close()


def held(pid: int, budget_mib: int = 500, *, gpus: str = "a", **figures: int) -> ClientState:
    """Returns a client with devices, as its worker reports it. `gpus`: A letter for each GPU."""
    sizes = (1000 * MIB, 1000 * MIB, budget_mib * MIB)
    moves = (700 * MIB, 0, budget_mib * MIB, 0, 0, 0, 200 * MIB, 0)
    device = DeviceState(0, "aa" * 16, *sizes, True, True, *moves, *(0,) * 7)
    return ClientState(
        pid,
        devices=tuple(
            dataclasses.replace(device, index=index, uuid=gpu * 32, **figures)
            for index, gpu in enumerate(gpus)
        ),
    )
