"""The service's cost of one user's frame does not grow with the jobs of others.

The tests count steps of Python's interpreter in the service's code, and visited entries of its
tables. These counts do not depend on the load of the machine.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest
from service_players import GIB, GPU
from service_scenario import QuietManager
from service_world import Connection, Listener, World

from pump.wire import service as wire
from pumpd.service import service as services
from pumpd.service.cards import Cards
from pumpd.service.owners import Identity
from pumpd.service.quota import Quotas
from pumpd.service.registry import ENTRIES_MOST, Registry
from pumpd.service.service import Service
from pumpd.service.settings import ServiceSettings

HONEST, FEW, MANY, USERS = 1, 16, 768, 3
TOTAL = 80 * GIB


class Seen(dict[Any, Any]):
    """A table that counts the entries that loops visit."""

    entries = 0

    def __iter__(self) -> Iterator[Any]:
        Seen.entries += len(self)
        return super().__iter__()

    def values(self) -> Any:
        Seen.entries += len(self)
        return super().values()

    def items(self) -> Any:
        Seen.entries += len(self)
        return super().items()


def steps(call: Callable[[], object]) -> int:
    """Returns the number of steps in the service's and policies' code, plus visited entries."""
    found, Seen.entries = [0], 0

    def trace(frame: FrameType, event: str, _arg: object) -> Any:
        name = frame.f_code.co_filename
        if "pumpd/service" not in name and "pump/policy" not in name:
            return None
        frame.f_trace_opcodes = True
        found[0] += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return found[0] + Seen.entries


def gpus_of(first: int) -> tuple[str, ...]:
    """Returns a real GPU and three that other users do not have."""
    return (GPU, *(f"{first * 100 + k:032x}" for k in range(1, 4)))


def report(gpus: tuple[str, ...], grant: int = 0, size: int = GIB) -> wire.Report:
    bytes_ = TOTAL, TOTAL, size, size, size
    entries = (wire.GpuReport(gpu, *bytes_, 1000, ready=True) for gpu in gpus)
    return wire.Report(grant, 1, 0, 0, tuple(entries))


class Machine:
    """A service in a world without time, with jobs of others and of one honest user."""

    def __init__(self, others: int) -> None:
        self.world = World(1)
        listener = self.world.listener = Listener(self.world)
        quotas = Quotas(user_rate=1e6, connection_rate=1e6, connect_rate=1e6, user_connect_rate=1e6)
        settings = ServiceSettings(quotas=quotas)
        parts: Any = [listener], lambda: settings, Cards(), QuietManager()
        self.service = Service(*parts, self.world)
        for number in range(others):
            user = 100 + number % USERS
            self.hear(self.connect(user), wire.Join("other"), report(gpus_of(user)))
        self.service._registry.rearrange(self.world.time)
        self.peer = self.connect(HONEST)
        registry: Any = self.service._registry
        registry.jobs = Seen(registry.jobs)
        for gpu in registry._gpus.values():
            gpu.jobs, gpu._parts = Seen(gpu.jobs), Seen(gpu._parts)

    def connect(self, user: int) -> Any:
        line = Connection(self.world, self.world.count(), user, lambda _data: None)
        self.service._greet(line)  # type: ignore[arg-type]
        peer = self.service._peers[line]  # type: ignore[index]
        self.receive(peer, wire.pack_hello())
        return peer

    def hear(self, peer: Any, *messages: Any) -> None:
        for message in messages:
            self.receive(peer, wire.encode(message))

    def receive(self, peer: Any, data: bytes) -> None:
        peer.connection.inbox.append(data)
        peer.connection.unread = 0
        self.service._receive(peer, self.world.time)

    def costs(self) -> dict[str, int]:
        """Returns the steps for each kind of frame from the honest user."""
        said = {
            "join": wire.Join("honest"),
            "first report": report(gpus_of(HONEST)),
            "report": report(gpus_of(HONEST), size=2 * GIB),
            "grant taken": report(gpus_of(HONEST), 1, size=2 * GIB),
            "beat": wire.Beat(),
            "own jobs": wire.AskJobs(),
            "service": wire.AskService(),
        }
        found = {}
        for name, message in said.items():
            found[name] = steps(lambda one=message: self.hear(self.peer, one))
        found["connect"] = steps(lambda: self.connect(HONEST))
        found["end"] = steps(lambda: self.service._close_peer(self.peer, ""))
        return found


def test_a_frame_of_one_user_costs_no_more_beside_768_jobs_of_others_than_beside_16() -> None:
    few, many = Machine(FEW).costs(), Machine(MANY).costs()
    assert few.keys() == many.keys()
    grown = {name: (few[name], many[name]) for name in few if many[name] > 1.02 * few[name] + 8}
    assert not grown


@pytest.mark.parametrize("jobs", [16, 256])
def test_one_decision_looks_at_so_many_leases_and_the_next_goes_on(jobs: int) -> None:
    registry, gpus = Registry(), [f"{k:032x}" for k in range(64)]
    dice = random.Random(1)
    for number in range(jobs):
        job = registry.add(Identity(0, 7, 7), wire.Join(), 0, 0.0)
        mine = tuple(gpus[(number * 16 + k) % 64] for k in range(16))
        registry.take_report(job, report(mine, size=dice.randrange(TOTAL)), 0.0)
    on_one = jobs * 16 // 64
    decided = 0
    while registry.stale:
        before = len(registry._due)
        registry.rearrange(0.0)
        assert 0 < (before - len(registry._due)) * on_one <= ENTRIES_MOST + on_one
        decided += 1
    assert decided >= jobs * 16 // (ENTRIES_MOST + on_one)
    assert all(len(job.granted) == 16 for job in registry.jobs.values())


def test_a_gpu_of_a_user_is_decided_after_one_of_each_other_user() -> None:
    registry = Registry()

    def join(user: int, *gpus: str) -> Any:
        job = registry.add(Identity(0, user, user), wire.Join(), 0, 0.0)
        registry.take_report(job, report(gpus), 0.0)
        return job

    for user in (7, 8, 9):
        for number in range(ENTRIES_MOST):
            join(user, *(f"{user * 100 + (number + k) % 16:032x}" for k in range(16)))
    honest = join(HONEST, GPU)
    for _ in range(4):
        registry.rearrange(0.0)
    assert honest.granted and registry.stale


def test_users_are_served_one_frame_of_each_in_turn() -> None:
    machine = Machine(60)
    lines = [peer.connection for peer in machine.service._peers.values()]
    ready: Any = [(type("Key", (), {"fileobj": line})(), 1) for line in lines]
    ready.append((type("Key", (), {"fileobj": "listener"})(), 1))
    order = services.in_turn(ready, machine.service._peers)
    assert order[0][0].fileobj == "listener" and len(order) == len(ready)
    users = [line.user for line in (key.fileobj for key, _ in order[1:])]
    assert sorted(users[:4]) == [HONEST, 100, 101, 102]
    assert sorted(users[4:7]) == [100, 101, 102]
