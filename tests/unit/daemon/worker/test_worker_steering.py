"""Control requests to a worker, over a mapping made in Python: switches, bounds, answers."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Iterator

import pytest
from fake_client import BLOCK, FakeClient, lib
from model_states import set_states

from pump.policy import by_name
from pump.wire import control as wire
from pump.wire.control import ClientState, Request
from pumpd.worker import control_worker as steering_module
from pumpd.worker.control_worker import ControlWorker
from pumpd.worker.worker import Worker

PID = 4711


class Stage:
    """A client, its worker, and the two ends of lifeline and connection."""

    def __init__(self, budget_blocks: int = 60) -> None:
        self.client = FakeClient(budget_blocks, capacity=100)
        self.device = self.client.shm.devices[0]
        self.worker = Worker(self.client.mapping, by_name("window"))
        self.asker, lifeline = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.bell, connection = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.asker.setblocking(False)
        self.bell.setblocking(False)
        self.device.total_bytes = 100 * BLOCK
        self.steering = ControlWorker(self.worker, lifeline, connection, PID)
        self.steering.start()
        self.number = 0

    def ask(self, request: Request) -> None:
        self.number += 1
        self.send(wire.numbered(self.number, wire.encode_request(request)))

    def send(self, data: bytes) -> None:
        waiting = len(self.steering._arrived)
        self.asker.send(data)
        deadline = time.monotonic() + 10
        while len(self.steering._arrived) == waiting:
            assert time.monotonic() < deadline
            time.sleep(0.001)

    def adopt(self) -> None:
        """Acts as the shim's link thread, which a byte on its connection wakes."""
        assert self.bell.recv(8) == b"b"
        self.device.budget_bytes = self.device.asked_budget_bytes
        self.device.emulated = 1
        self.device.adopted_budget_bytes = self.device.asked_budget_bytes

    def alloc_away(self, blocks: int) -> int:
        """Allocates a range that is not on the GPU, although memory is free; returns its slot."""
        filler = self.client.alloc(60 - self.worker.model.occupied(0))
        slot = self.client.alloc(blocks)
        self.worker.tick()
        self.client.free(filler)
        self.worker.tick()
        set_states(self.worker.model, self.worker.model.blocks_of(slot), lib.PUMP_BLOCK_HOST)
        return slot

    def answer(self) -> ClientState | None:
        self.steering.step()
        self.worker.tick()
        try:
            data = self.asker.recv(65536)
        except BlockingIOError:
            return None
        number, frame = wire.split(data)
        assert number == self.number
        return wire.decode_client(frame)

    def close(self) -> None:
        self.asker.close()
        self.bell.close()
        time.sleep(0.01)  # the listening thread sees the end
        self.client.close()


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = Stage()
    yield made
    made.close()


def test_the_state_tells_the_figures_of_both_sides(stage: Stage) -> None:
    slots = [stage.client.alloc(8) for _ in range(3)]
    stage.client.shm.shim_counters.markers = 5
    stage.worker.tick()
    blocks = stage.worker.model.blocks_of(slots[0])
    set_states(stage.worker.model, blocks, lib.PUMP_BLOCK_HOST)
    stage.client.launch(slots)
    stage.worker.tick()
    assert stage.client.commands(lib.PUMP_TO_GPU)
    stage.worker.tick()
    stage.ask(Request("state"))
    state = stage.answer()
    assert state is not None and state.error is None
    (device,) = state.devices
    assert (state.pid, state.policy, device.budget_bytes) == (PID, "window", 60 * BLOCK)
    places = device.resident_bytes + device.arriving_bytes + device.host_bytes
    assert places == 24 * BLOCK and device.arriving_bytes > 0
    assert state.shim["markers"] == 5 and state.worker["window_depth"] == 1
    assert not any(name.startswith("reserved") for name in (*state.shim, *state.worker))


def test_a_set_is_answered_only_once_the_client_has_adopted_the_budget(stage: Stage) -> None:
    stage.worker.tick()
    stage.ask(Request("set", policy="demand", budget_bytes=20 * BLOCK))
    assert stage.answer() is None
    assert stage.device.asked_budget_bytes == 20 * BLOCK
    assert stage.worker.policy.name == "window", "the policy comes last"
    stage.adopt()
    state = stage.answer()
    assert state is not None and state.error is None
    assert (state.policy, state.devices[0].budget_bytes) == ("demand", 20 * BLOCK)
    assert stage.worker.model.devices[0].budget == 20
    assert stage.worker.model.devices[0].emulated
    stage.ask(Request("set", budget_bytes=20 * BLOCK))  # the same request again
    assert stage.answer() is not None


def test_a_client_that_adopts_nothing_costs_an_error_and_the_wish(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steering_module, "ADOPT_S", 0.05)
    stage.worker.tick()
    stage.ask(Request("set", policy="demand", budget_bytes=20 * BLOCK))
    assert stage.answer() is None
    stage.send(wire.numbered(1, b"waits"))
    time.sleep(0.06)
    state = stage.answer()
    assert state is not None and "did not apply" in str(state.error)
    assert stage.device.asked_budget_bytes == 0
    assert stage.worker.policy.name == "window"


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (Request("set", policy="widnow"), "did you mean 'window'"),
        (Request("set", budget_bytes=101 * BLOCK), "exceeds the"),
        (Request("set", budget_bytes=3 * BLOCK), "too small"),
        (Request("set", budget_bytes=20 * BLOCK, device=1), "has 1"),
        (Request("set", policy="nothing", budget_bytes=20 * BLOCK), "unknown policy"),
        (Request("set", device=1, hold_ms=5000), "has 1"),
        (Request("set", device=1, yield_ms=5000), "has 1"),
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused_and_nothing_is_asked_of_the_client(
    stage: Stage, request_: Request, reason: str
) -> None:
    stage.worker.tick()
    stage.ask(request_)
    state = stage.answer()
    assert state is not None and reason in str(state.error)
    assert stage.device.asked_budget_bytes == 0 and stage.worker.policy.name == "window"
    assert stage.device.asked_budget_bytes == 0 and stage.worker.policy.name == "window"
    devices = stage.client.shm.devices
    assert all(devices[i].held_until_ns == devices[i].yield_until_ns == 0 for i in range(2))


def test_a_hold_is_asked_of_the_client_and_answered_at_once(stage: Stage) -> None:
    stage.worker.tick()
    stage.device.held_threads = 2
    before = lib.pump_core_now_ns()
    stage.ask(Request("set", device=0, hold_ms=5000))
    state = stage.answer()
    assert state is not None and state.error is None
    assert state.devices[0].held_threads == 2 and state.policy == "window"
    assert stage.bell.recv(8) == b"b", "the client looks now"
    until_ns = stage.device.held_until_ns
    assert before + 5 * 10**9 <= until_ns <= lib.pump_core_now_ns() + 5 * 10**9
    assert stage.client.shm.devices[1].held_until_ns == 0
    stage.ask(Request("set", device=0, hold_ms=5000))
    assert stage.answer() is not None
    assert stage.device.held_until_ns > until_ns
    assert stage.bell.recv(8) == b"b"
    stage.ask(Request("set", device=0, hold_ms=0))
    assert stage.answer() is not None
    assert stage.device.held_until_ns == 0
    assert stage.bell.recv(8) == b"b", "and goes on now"
    assert stage.device.asked_budget_bytes == 0


def test_the_client_is_asked_to_yield_beside_a_hold_or_without_one(stage: Stage) -> None:
    stage.worker.tick()
    before = lib.pump_core_now_ns()
    stage.ask(Request("set", device=0, hold_ms=0, yield_ms=5000))
    assert stage.answer() is not None
    assert stage.device.yield_until_ns >= before + 5 * 10**9 and stage.device.held_until_ns == 0
    assert stage.bell.recv(8) == b"b", "the client looks now"
    stage.ask(Request("set", device=0, hold_ms=5000))
    assert stage.answer() is not None
    assert stage.device.yield_until_ns > 0 < stage.device.held_until_ns
    stage.ask(Request("set", device=0, yield_ms=0))
    assert stage.answer() is not None
    assert stage.device.yield_until_ns == 0 < stage.device.held_until_ns


def test_a_hold_waits_behind_a_budget_that_is_not_adopted_yet(stage: Stage) -> None:
    stage.worker.tick()
    stage.ask(Request("set", budget_bytes=20 * BLOCK, device=0))
    assert stage.answer() is None
    stage.ask(Request("set", device=0, hold_ms=5000))
    stage.steering.step()
    assert stage.device.held_until_ns == 0
    stage.adopt()
    stage.steering.step()
    assert stage.device.held_until_ns > 0
    answers = [wire.split(stage.asker.recv(65536))[0] for _ in range(2)]
    assert answers == [stage.number - 1, stage.number]


def test_a_budget_for_all_devices_stands_for_those_that_come_later(stage: Stage) -> None:
    stage.device.device_state = lib.PUMP_DEVICE_ABSENT
    stage.ask(Request("set", budget_bytes=20 * BLOCK))
    assert stage.answer() is not None, "no client has to adopt it now"
    assert stage.device.asked_budget_bytes == 20 * BLOCK


def test_a_policy_that_does_not_prefetch_withdraws_the_schedule_of_the_earlier_one(
    stage: Stage,
) -> None:
    stage.worker.tick()
    slots = [stage.alloc_away(4) for _ in range(4)]
    stage.client.launch(slots)
    stage.worker.tick()
    assert stage.client.shm.schedules[0].cursor != 0
    stage.ask(Request("set", policy="demand"))
    assert stage.answer() is not None
    assert stage.client.commands(lib.PUMP_TO_GPU) == []
    stage.ask(Request("set", policy="window"))
    assert stage.answer() is not None
    assert stage.client.commands(lib.PUMP_TO_GPU) != []


def test_overshoot_counts_from_the_set_and_not_what_a_smaller_budget_finds(stage: Stage) -> None:
    client, worker = stage.client, stage.worker
    worker.tick()
    slots = [client.alloc(10) for _ in range(5)]
    for slot in slots:
        client.execute(client.launch([slot]))
        worker.tick()
    for command in client.commands(lib.PUMP_TO_GPU):
        client.finish(command)
    worker.tick()
    stage.ask(Request("set", policy="demand", budget_bytes=20 * BLOCK))
    assert stage.answer() is None
    stage.adopt()
    state = stage.answer()
    assert state is not None and state.devices[0].resident_bytes == 50 * BLOCK
    for _ in range(40):  # the executors carry out all commands
        for command in client.commands(lib.PUMP_TO_HOST):
            client.finish(command)
        client.execute(client.launch([]))
        worker.tick()
    assert worker.model.occupied(0) == 20
    assert worker.model.tally(0).overshoot == 0
    for slot in slots:
        client.execute(client.launch([slot]))
    worker.tick()
    assert worker.model.tally(0).overshoot > 0, "what came since counts"
    stage.ask(Request("set", policy="demand"))
    state = stage.answer()
    assert state is not None and state.devices[0].overshoot_bytes == 0


def test_misses_are_put_down_to_the_policy_of_their_time(stage: Stage) -> None:
    client, worker = stage.client, stage.worker
    worker.tick()
    for round_, policy in enumerate(["demand", "window", "demand"], 1):
        stage.ask(Request("set", policy=policy))
        assert stage.answer() is not None
        client.execute(client.launch([stage.alloc_away(4)]))  # executed before any decision
        worker.tick()
        worker.publish()
        assert worker.counters.miss_policy == 4 * (round_ - round_ // 2)
        assert worker.counters.miss_unseen == 4 * (round_ // 2)


def test_a_client_that_was_dormant_is_believed_to_be_where_its_earlier_budget_let_it(
    stage: Stage,
) -> None:
    client = stage.client
    stage.device.device_state = lib.PUMP_DEVICE_DORMANT
    for _ in range(5):
        client.alloc(10)
    stage.worker.tick()
    stage.ask(Request("set", budget_bytes=20 * BLOCK))
    assert stage.answer() is None
    stage.device.device_state = lib.PUMP_DEVICE_ACTIVE
    stage.adopt()
    state = stage.answer()
    assert state is not None and state.devices[0].resident_bytes == 50 * BLOCK
    assert client.commands(lib.PUMP_TO_HOST) != [], "and what is too much leaves"


@pytest.mark.parametrize("seed", range(3))
def test_no_frame_breaks_a_worker(stage: Stage, seed: int) -> None:
    print("seed", seed)
    source = random.Random(seed)
    good = wire.numbered(3, wire.encode_request(Request("state")))
    for _ in range(500):
        data = bytearray(good)
        data[source.randrange(len(data))] = source.randrange(256)
        stage.send(bytes(data[: source.randrange(1, len(data) + 1)]))
        stage.steering.step()
        while True:
            try:
                stage.asker.recv(65536)
            except BlockingIOError:
                break
    stage.ask(Request("state"))
    assert stage.answer() is not None
