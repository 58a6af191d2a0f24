"""Plans by the worker, over a mapping: a client that follows them while no tick comes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from fake_client import BLOCK, FakeClient, ffi, lib

from pump.model.client import HOST, MAYBE_EVICTED, RESIDENT
from pump.policy import by_name
from pumpd.worker.worker import Worker

LAYERS, BLOCKS, BUDGET = 12, 8, 60
ORDER = [*range(LAYERS), *reversed(range(LAYERS))]
AHEAD = 6
WAYS = (lib.PUMP_TO_HOST, lib.PUMP_TO_GPU)


def blocks_of(command: Any) -> set[tuple[int, int]]:
    first = command.offset_bytes // BLOCK
    return {(command.slot, first + i) for i in range(command.length_bytes // BLOCK)}


class Training:
    """A pass forth and back over layers, again and again; what is on the GPU is known."""

    def __init__(self) -> None:
        self.client = FakeClient(BUDGET)
        self.worker = Worker(self.client.mapping, by_name("planned"))
        self.layers = [self.client.alloc(BLOCKS) for _ in range(LAYERS)]
        self.there: set[tuple[int, int]] = set()
        self.waiting: list[tuple[int, int]] = []
        self.at = 0
        self.faults = self.planned = 0
        self.worker.tick()

    def issue(self, layer: int) -> None:
        seq = self.client.launch([self.layers[layer]], function=1 + layer)
        self.waiting.append((seq, layer))

    def move(self, command: Any, direction: int) -> None:
        blocks = blocks_of(command)
        if direction == lib.PUMP_TO_GPU:
            self.there |= blocks
            assert len(self.there) <= BUDGET, "room before arrival"
        else:
            assert blocks <= self.there
            self.there -= blocks

    def carry_out(self) -> None:
        """What was sent for, then what is planned and may go."""
        for direction in WAYS:
            for command in self.client.commands(direction):
                self.move(command, direction)
                self.client.finish(command)
        moved = True
        while moved:
            moved = False
            for direction in WAYS:
                for command in self.client.planned(direction):
                    self.move(command, direction)
                    self.client.end(command, direction)
                    self.planned += command.length_bytes // BLOCK
                    moved = True

    def execute(self) -> None:
        seq, layer = self.waiting.pop(0)
        uses = {(self.layers[layer], i) for i in range(BLOCKS)}
        self.faults += len(uses - self.there)
        self.there |= uses
        self.client.execute(seq)

    def step(self, ticks: int) -> None:
        self.issue(ORDER[self.at % len(ORDER)])
        self.at += 1
        for _ in range(ticks):
            self.worker.tick()
            self.carry_out()
        if ticks == 0:
            self.carry_out()
        if len(self.waiting) > AHEAD:
            self.execute()

    def believed(self) -> set[tuple[int, int]]:
        model, found = self.worker.model, set()
        for slot in self.layers:
            for i, block in enumerate(model.blocks_of(slot) or ()):
                if model.block(block).state in (RESIDENT, MAYBE_EVICTED):
                    found.add((slot, i))
        return found


def in_force(client: FakeClient, device: int = 0) -> bool:
    return bool(client.shm.plans[device].turn >> 32)


@pytest.fixture
def learned() -> Iterator[Training]:
    training = Training()
    for _ in range(6 * len(ORDER)):
        training.step(4)
    assert in_force(training.client)
    yield training
    training.client.close()


def test_a_client_alone_follows_the_plan_and_faults_for_nothing(learned: Training) -> None:
    before, planned = learned.faults, learned.planned
    for _ in range(16):
        learned.step(0)
    assert learned.planned > planned
    assert learned.faults == before
    learned.worker.tick()
    assert learned.believed() == learned.there, "who was away knows what was done"
    for _ in range(2 * len(ORDER)):
        learned.step(4)
    assert learned.faults == before
    assert learned.believed() == learned.there


def version(client: FakeClient) -> int:
    return int(client.shm.plans[0].turn >> 32)


def test_a_plan_stays_in_force_while_the_worker_sends_what_stands_in_front_of_it() -> None:
    """Executors are busy or asleep: the worker alone takes of the plan."""
    training = Training()
    for _ in range(6 * len(ORDER)):
        training.step(4)
    client, sent, kept = training.client, 0, 0
    for _ in range(2 * len(ORDER)):
        training.issue(ORDER[training.at % len(ORDER)])
        training.at += 1
        before, taken = version(client), client.shm.plans[0].turn & 0xFFFFFFFF
        training.worker.tick()
        for direction in WAYS:
            for command in client.commands(direction):
                training.move(command, direction)
                client.finish(command)
                sent += command.length_bytes // BLOCK
        now = client.shm.plans[0].turn & 0xFFFFFFFF
        kept += before == version(client) and before != 0 and now > taken
        if len(training.waiting) > AHEAD:
            training.execute()
    training.worker.tick()
    assert kept > 0
    assert sent > LAYERS * BLOCKS / 2
    assert training.faults == 0
    assert training.believed() == training.there
    client.close()


def test_nothing_that_the_worker_has_sent_is_left_in_the_plan(learned: Training) -> None:
    client = learned.client
    for _ in range(2 * len(ORDER)):
        learned.issue(ORDER[learned.at % len(ORDER)])
        learned.at += 1
        learned.worker.tick()
        for direction in WAYS:
            sent = set()
            for command in client.commands(direction):
                learned.move(command, direction)
                client.finish(command)
                sent |= blocks_of(command)
            plan = client.shm.plans[0]
            at = plan.turn >> 16 * direction & 0xFFFF
            left: set[tuple[int, int]] = set()
            for i in range(at, plan.count[direction]):
                left |= blocks_of(plan.entries[direction][i].command)
            assert in_force(client) and not sent & left
        learned.carry_out()
        if len(learned.waiting) > AHEAD:
            learned.execute()
    assert learned.faults == 0


def test_with_plans_no_more_is_moved_than_without(learned: Training) -> None:
    def moved(ticks: int) -> int:
        started = learned.planned
        for _ in range(2 * len(ORDER)):
            learned.step(ticks)
        return learned.planned - started

    assert moved(1) > 0
    assert learned.worker.model.tally(0).refused == 0


def test_what_was_predicted_stands_under_its_number(learned: Training) -> None:
    """As the shim looks at it: the same words, or another operation was issued."""
    header = learned.client.shm.header
    words = {
        learned.client.shm.predicted[(header.next_seq + i) % lib.PUMP_PREDICTIONS].signature
        for i in range(2 * len(ORDER))
    }
    assert len(words) == 2 * len(ORDER) and 0 not in words


def test_another_operation_ends_the_plan_and_a_new_one_comes_when_it_is_sure_again(
    learned: Training,
) -> None:
    client = learned.client
    client.shm.header.armed = 0  # the shim compares
    learned.issue(LAYERS // 2)
    assert not client.planned(lib.PUMP_TO_GPU) and not client.planned(lib.PUMP_TO_HOST)
    learned.worker.tick()
    assert not in_force(client) or client.shm.header.armed
    for _ in range(4 * len(ORDER)):
        learned.step(4)
    assert in_force(client) and client.shm.header.armed
    assert learned.believed() == learned.there


def test_what_was_issued_while_nothing_was_compared_is_read_before_a_plan_counts(
    learned: Training,
) -> None:
    client, model = learned.client, learned.worker.model
    client.shm.header.armed = 0
    client.shm.header.next_seq += 1  # numbered, not in the ring yet
    lib.pump_worker_plan(client.shm, model.raw, 0)
    assert client.shm.header.armed and not in_force(client)
    client.shm.header.next_seq -= 1
    learned.issue(ORDER[learned.at % len(ORDER)])
    learned.worker.tick()
    lib.pump_worker_plan(client.shm, model.raw, 0)
    assert in_force(client)


def test_an_entry_that_was_refused_leaves_everything_where_it_is(learned: Training) -> None:
    client = learned.client
    for _ in range(3):
        learned.issue(ORDER[learned.at % len(ORDER)])
        learned.at += 1
    while len(learned.waiting) > 2:
        learned.execute()
    refused = client.planned(lib.PUMP_TO_HOST)
    for command in refused:
        client.end(command, lib.PUMP_TO_HOST, lib.PUMP_RESULT_STALE)
    assert refused
    learned.worker.tick()
    assert learned.believed() == learned.there
    assert learned.worker.model.tally(0).refused == len(refused)


def test_a_policy_that_foresees_nothing_withdraws_the_plan(learned: Training) -> None:
    learned.worker.switch(by_name("window"))
    learned.worker.tick()
    assert not in_force(learned.client)
    planned = learned.planned
    for _ in range(2 * len(ORDER)):
        learned.step(4)
    assert learned.planned == planned
    assert learned.believed() == learned.there


@pytest.mark.parametrize("seed", range(6))
def test_a_client_that_scribbles_over_its_plans_harms_only_itself(seed: int) -> None:
    training, dice = Training(), random.Random(seed)
    client = training.client
    for step in range(8 * len(ORDER)):
        training.issue(ORDER[step % len(ORDER)])
        training.worker.tick()
        if len(training.waiting) > AHEAD:
            training.client.execute(training.waiting.pop(0)[0])
        for direction in WAYS:
            for command in client.commands(direction):
                client.finish(command)
        plan = client.shm.plans[0]
        if dice.random() < 0.5:
            plan.turn ^= dice.choice((1, 1 << 16, dice.getrandbits(32), dice.getrandbits(64)))
        if dice.random() < 0.3:
            plan.count[dice.randrange(2)] = dice.getrandbits(32)
            plan.left_bytes = dice.getrandbits(64)
        for _ in range(20):
            end = client.shm.plan_ends[dice.randrange(lib.PUMP_PLAN_TICKETS)]
            entry = plan.entries[dice.randrange(2)][dice.randrange(20)]
            end.ticket = dice.choice((entry.command.ticket, dice.getrandbits(64)))
            end.result, end.duration_us = dice.getrandbits(32), dice.getrandbits(32)
        client.shm.header.armed = dice.choice((0, 1, dice.getrandbits(32)))
    totals = training.worker.model.totals()
    assert totals.under_way <= 1024
    assert int(training.worker.model.counts(0).sum()) == LAYERS * BLOCKS
    client.close()


def test_a_command_that_ends_under_the_ticket_of_a_plan_ends_nothing(learned: Training) -> None:
    client, model = learned.client, learned.worker.model
    before = model.totals().under_way
    tickets = [
        client.shm.plans[0].entries[way][i].command.ticket
        for way in WAYS
        for i in range(client.shm.plans[0].count[way])
    ]
    assert tickets
    for ticket in tickets:
        ring = client.shm.commands[0][lib.PUMP_TO_GPU]
        command = ring.commands[ring.tail % lib.PUMP_COMMAND_SLOTS]
        command.ticket, command.state = ticket, lib.PUMP_COMMAND_DONE
        ring.tail += 1
    learned.worker.tick()
    assert model.totals().under_way == before
    assert learned.believed() == learned.there


def test_the_plan_of_a_device_stays_while_something_is_sent_to_another_one() -> None:
    client = FakeClient(BUDGET, devices=2)
    worker = Worker(client.mapping, by_name("planned"))
    layers = [[client.alloc(BLOCKS, device) for _ in range(LAYERS)] for device in range(2)]
    waiting: list[tuple[int, int]] = []
    step = 0
    while step < 10 * len(ORDER) or not (in_force(client, 0) and in_force(client, 1)):
        assert step < 20 * len(ORDER)
        device, layer = step % 2, ORDER[step // 2 % len(ORDER)]
        seq = client.launch([layers[device][layer]], 1 + device, 1 + 2 * layer + device)
        waiting.append((seq, 1 + device))
        for served in range(2):
            for direction in WAYS:
                for command in client.commands(direction, served):
                    client.finish(command)
                for command in client.planned(direction, served):
                    client.end(command, direction, device=served)
        worker.tick()
        if len(waiting) > 2 * AHEAD:
            client.execute(*waiting.pop(0))
        step += 1
    turns = [int(client.shm.plans[device].turn) for device in range(2)]
    numbers = [block for slot in layers[1] for block in worker.model.blocks_of(slot) or ()]
    away = [block for block in numbers if worker.model.block(block).state == HOST]
    lib.pump_worker_carry_out(client.shm, worker.model.raw, 1, ffi.NULL, 0, away, 1)
    assert len(client.commands(lib.PUMP_TO_GPU, 1)) == 1
    assert client.shm.plans[1].turn != turns[1]
    assert client.shm.plans[0].turn == turns[0]
    client.close()
