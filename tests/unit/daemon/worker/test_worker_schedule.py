"""The worker's schedule over a mapping, and a client that follows it while no tick happens."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from fake_client import BLOCK, FakeClient, Serve, lib
from model_states import set_states

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
    """Runs forward and backward passes over layers; the blocks on the GPU are known."""

    def __init__(self, policy: str = "planned") -> None:
        self.client = FakeClient(BUDGET)
        self.worker = Worker(self.client.mapping, by_name(policy))
        self.layers = [self.client.alloc(BLOCKS) for _ in range(LAYERS)]
        self.there: set[tuple[int, int]] = set()
        self.waiting: list[tuple[int, int]] = []
        self.at = 0
        self.faults = self.moved = 0
        self.worker.tick()

    def issue(self, layer: int) -> int:
        seq = self.client.launch([self.layers[layer]], function=1 + layer)
        self.waiting.append((seq, layer))
        return seq

    def issue_next(self) -> int:
        self.at += 1
        return self.issue(ORDER[(self.at - 1) % len(ORDER)])

    def move(self, command: Any, direction: int) -> None:
        result, blocks = self.client.result_of(command), blocks_of(command)
        if result == lib.PUMP_RESULT_MOVED:
            self.moved += len(blocks)
            if direction == lib.PUMP_TO_GPU:
                self.there |= blocks
                assert len(self.there) <= BUDGET, "room before arrival"
            else:
                assert blocks <= self.there
                self.there -= blocks
        self.client.finish(command, result)

    def carry_out(self) -> None:
        """Carries out all entries that may start."""
        while commands := [(c, way) for way in WAYS for c in self.client.commands(way)]:
            for command, way in commands:
                self.move(command, way)

    def execute(self) -> None:
        seq, layer = self.waiting.pop(0)
        uses = {(self.layers[layer], i) for i in range(BLOCKS)}
        self.faults += len(uses - self.there)
        self.there |= uses
        self.client.execute(seq)

    def step(self, ticks: int) -> None:
        """Issues an operation, carries out the schedules of `ticks` ticks, and executes an
        operation."""
        self.issue_next()
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
    return bool(client.shm.schedules[device].cursor >> 32)


def last_need(client: FakeClient) -> int:
    """Returns the last operation for which the schedule in force brings blocks."""
    return max((int(c.needed_by_seq) for c in entries(client, lib.PUMP_TO_GPU)), default=0)


def version(client: FakeClient) -> int:
    return int(client.shm.schedules[0].cursor >> 32)


def entries(client: FakeClient, direction: int, device: int = 0) -> list[Any]:
    """Returns references to the remaining entries of the schedule in force."""
    schedule = client.shm.schedules[device]
    if not in_force(client, device):
        return []
    taken = schedule.cursor >> 16 * direction & 0xFFFF
    return [schedule.entries[direction][i].command for i in range(taken, schedule.count[direction])]


@pytest.fixture
def learned() -> Iterator[Training]:
    training = Training()
    for _ in range(6 * len(ORDER)):
        training.step(4)
    assert in_force(training.client)
    yield training
    training.client.close()


# ---- predictions -------------------------------------------------------------------------


def test_a_client_alone_follows_the_schedule_and_faults_for_nothing(learned: Training) -> None:
    before, moved = learned.faults, learned.moved
    for _ in range(16):
        learned.step(0)
    assert learned.moved > moved
    assert learned.faults == before
    learned.worker.tick()
    assert learned.believed() == learned.there, "after a pause the worker knows what moved"
    for _ in range(2 * len(ORDER)):
        learned.step(4)
    assert learned.faults == before
    assert learned.believed() == learned.there


def test_what_repeats_as_predicted_stays_valid_and_nothing_of_it_is_refused(
    learned: Training,
) -> None:
    """The shim compares in the same way: each operation's word is stored under its number."""
    client, header, ahead = learned.client, learned.client.shm.header, 0
    faults, moved = learned.faults, learned.moved
    for _ in range(2 * len(ORDER)):
        learned.issue_next()
        learned.worker.tick()
        assert (header.armed, header.valid_seq) == (1, lib.PUMP_ALL_VALID)
        ahead += last_need(client) >= header.next_seq
        learned.carry_out()
        learned.execute()
    assert ahead and learned.moved > moved and learned.faults == faults
    assert learned.worker.model.tally(0).refused == 0


def test_a_window_serves_what_is_issued_and_has_nothing_compared() -> None:
    training = Training("window")
    client, header, faults = training.client, training.client.shm.header, 0
    for at in range(8 * len(ORDER)):
        training.issue_next()
        for _ in range(2):
            training.worker.tick()
            assert (header.armed, header.valid_seq) == (0, lib.PUMP_ALL_VALID)
            for way in WAYS:
                for command in entries(client, way):
                    assert max(command.needed_by_seq, command.observed_seq) < header.next_seq
            training.carry_out()
        if at >= AHEAD:
            training.execute()
        if at == len(ORDER):
            faults = training.faults
    assert training.moved > 4 * LAYERS * BLOCKS
    assert training.faults == faults, "none but at the start"
    assert training.believed() == training.there
    client.close()


# ---- deviations --------------------------------------------------------------------------


def test_after_a_deviation_the_schedule_serves_what_is_issued_until_it_is_sure_again(
    learned: Training,
) -> None:
    client, header = learned.client, learned.client.shm.header
    seq = learned.issue(LAYERS // 2)
    assert header.valid_seq == seq - 1
    assert last_need(client) > seq
    before = version(client)
    learned.worker.tick()
    assert version(client) != before
    assert (header.valid_seq, header.armed) == (lib.PUMP_ALL_VALID, 0)
    assert last_need(client) <= seq
    for _ in range(4 * len(ORDER)):
        learned.step(4)
    assert in_force(client) and header.armed
    assert learned.believed() == learned.there


def test_a_schedule_that_counts_no_more_is_renewed_though_the_worker_saw_no_deviation(
    learned: Training,
) -> None:
    """A hook has compared an operation before the worker wrote that operation's word."""
    client, header = learned.client, learned.client.shm.header
    learned.issue_next()
    learned.worker.tick()
    header.valid_seq = header.next_seq - 1
    before = version(client)
    assert before
    learned.worker.tick()
    assert version(client) != before
    assert header.valid_seq == lib.PUMP_ALL_VALID


def test_a_departure_goes_on_behind_a_deviation_unless_that_uses_its_block(
    learned: Training,
) -> None:
    client = learned.client
    slots = [command.slot for command in entries(client, lib.PUMP_TO_HOST)]
    expected = learned.layers[ORDER[learned.at % len(ORDER)]]
    wanted = next(slot for slot in reversed(slots) if slot != expected)
    seq = learned.issue(learned.layers.index(wanted))
    assert client.shm.header.valid_seq == seq - 1
    client.execute(seq + 100)  # no entry has to wait
    taken = client.commands(lib.PUMP_TO_HOST)
    stale = {c.slot for c in taken if client.result_of(c) == lib.PUMP_RESULT_STALE}
    assert stale == {wanted} < set(slots)


def test_a_departure_refused_for_a_deviation_holds_nothing_up(learned: Training) -> None:
    """The executor trusted fewer operations than the schedule relied on. A new schedule does not
    repeat the refused entry, so it need not wait until the program issues more."""
    client = learned.client
    leaving = [command.slot for command in entries(client, lib.PUMP_TO_HOST)]
    expected = learned.layers[ORDER[learned.at % len(ORDER)]]
    wanted = next(slot for slot in reversed(leaving) if slot != expected)
    away = [slot for slot in learned.layers if (slot, 0) not in learned.there]
    before = learned.waiting[-1][0]
    for slot in (wanted, *away):
        learned.issue(learned.layers.index(slot))
    client.execute(before + 100)  # no entry has to wait
    taken = client.commands(lib.PUMP_TO_HOST)
    client.execute(before)
    learned.worker.tick()  # has read all that was issued
    for command in taken:
        learned.move(command, lib.PUMP_TO_HOST)
    for _ in range(8):
        learned.worker.tick()
        learned.carry_out()
    assert {(slot, i) for slot in away for i in range(BLOCKS)} <= learned.there


def test_predictions_count_once_all_that_was_issued_is_read_and_compared(
    learned: Training,
) -> None:
    """A thread has found a deviation, while another thread has a number and no record yet."""
    client, raw, header = learned.client, learned.worker.model.raw, learned.client.shm.header
    issued = header.next_seq - 1
    header.valid_seq = issued - 1
    header.next_seq += 1
    lib.pump_worker_schedule(client.shm, raw, 0)
    assert (header.armed, header.valid_seq) == (1, lib.PUMP_ALL_VALID)
    for way in WAYS:
        for command in entries(client, way):
            assert max(command.needed_by_seq, command.observed_seq) <= issued
    learned.worker.tick()
    assert last_need(client) <= issued
    header.next_seq -= 1
    seq = learned.issue_next()
    learned.worker.tick()
    assert last_need(client) > seq
    assert max(c.observed_seq for c in entries(client, lib.PUMP_TO_HOST)) > seq


# ---- refusals ----------------------------------------------------------------------------


REFUSALS = [lib.PUMP_RESULT_STALE, lib.PUMP_RESULT_FAILED, lib.PUMP_RESULT_INVALID]


@pytest.mark.parametrize("result", REFUSALS)
def test_a_refusal_is_not_repeated_before_more_is_read_and_stops_nothing_behind_it(
    serve: Serve, result: int
) -> None:
    client, worker = serve(16)
    worker.tick()
    client.alloc(16)
    wanted = client.alloc(16)
    worker.tick()
    set_states(worker.model, worker.model.blocks_of(wanted), HOST)
    client.launch([wanted])
    worker.tick()
    before = version(client)
    first, *behind = client.commands(lib.PUMP_TO_HOST)
    assert behind
    client.finish(first, result)
    for _ in range(5):
        worker.tick()
        assert client.commands(lib.PUMP_TO_HOST) == []
    assert version(client) == before, "the same one"
    for command in behind:
        client.finish(command)
    for _ in range(5):
        worker.tick()
    assert version(client) == before
    assert client.commands(lib.PUMP_TO_GPU), "there is room for it"
    client.launch([wanted])
    worker.tick()
    assert version(client) != before
    assert blocks_of(first) == {b for c in client.commands(lib.PUMP_TO_HOST) for b in blocks_of(c)}


def test_an_entry_that_was_refused_leaves_everything_where_it_is(learned: Training) -> None:
    client = learned.client
    for _ in range(3):
        learned.issue_next()
    while len(learned.waiting) > 2:
        learned.execute()
    refused = client.commands(lib.PUMP_TO_HOST)
    for command in refused:
        client.finish(command, lib.PUMP_RESULT_STALE)
    assert refused
    learned.worker.tick()
    assert learned.believed() == learned.there
    assert learned.worker.model.tally(0).refused == len(refused)


# ---- replacements ------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["window", "planned"])
def test_demand_withdraws_the_schedule_and_another_policy_makes_one_again(policy: str) -> None:
    training = Training(policy)
    for _ in range(6 * len(ORDER)):
        training.step(4)
    while not in_force(training.client):
        training.issue_next()
        training.worker.tick()
    training.worker.switch(by_name("demand"))
    training.worker.tick()
    assert not in_force(training.client)
    moved = training.moved
    for _ in range(len(ORDER)):
        training.step(2)
        assert not in_force(training.client)
    assert training.moved == moved
    training.worker.switch(by_name(policy))
    for _ in range(len(ORDER)):
        training.step(2)
    assert training.moved > moved
    training.client.close()


def test_a_window_after_planned_keeps_no_prediction(learned: Training) -> None:
    client, header = learned.client, learned.client.shm.header
    assert header.armed
    learned.worker.switch(by_name("window"))
    for _ in range(2 * len(ORDER)):
        learned.step(2)
        assert header.armed == 0
        assert last_need(client) < header.next_seq
    assert learned.believed() == learned.there


def test_a_new_budget_renews_the_schedule(serve: Serve) -> None:
    client, worker = serve(16)
    worker.tick()
    there, wanted = client.alloc(12), client.alloc(8)
    worker.tick()
    set_states(worker.model, worker.model.blocks_of(wanted), HOST)
    client.launch([wanted])
    client.launch([there])
    worker.tick()

    def leaving() -> int:
        return sum(c.length_bytes // BLOCK for c in entries(client, lib.PUMP_TO_HOST))

    assert in_force(client) and leaving() == 4
    for budget in (14, 19):
        client.shm.devices[0].budget_bytes = budget * BLOCK
        client.launch([there])
        worker.tick()
        assert leaving() == 20 - budget


@pytest.mark.parametrize("seed", range(6))
def test_a_client_that_scribbles_over_its_schedules_harms_only_itself(seed: int) -> None:
    training, dice = Training(), random.Random(seed)
    client = training.client
    for step in range(8 * len(ORDER)):
        training.issue(ORDER[step % len(ORDER)])
        training.worker.tick()
        if len(training.waiting) > AHEAD:
            training.client.execute(training.waiting.pop(0)[0])
        schedule = client.shm.schedules[0]
        if dice.random() < 0.5:
            schedule.cursor ^= dice.choice((1, 1 << 16, dice.getrandbits(32), dice.getrandbits(64)))
        if dice.random() < 0.3:
            schedule.count[dice.randrange(2)] = dice.getrandbits(32)
            schedule.left_bytes, schedule.ended_bytes = dice.getrandbits(64), dice.getrandbits(64)
        for _ in range(20):
            end = client.shm.entry_ends[dice.randrange(lib.PUMP_SCHEDULE_TICKETS)]
            entry = schedule.entries[dice.randrange(2)][dice.randrange(20)]
            end.ticket = dice.choice((entry.command.ticket, dice.getrandbits(64)))
            end.result, end.duration_us = dice.getrandbits(32), dice.getrandbits(32)
        client.shm.header.armed = dice.choice((0, 1, dice.getrandbits(32)))
        client.shm.header.valid_seq = dice.choice((lib.PUMP_ALL_VALID, dice.getrandbits(64)))
    totals = training.worker.model.totals()
    assert totals.in_flight <= 1024
    assert int(training.worker.model.counts(0).sum()) == LAYERS * BLOCKS
    client.close()


def test_the_schedule_of_a_device_stays_while_that_of_another_one_is_renewed() -> None:
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
        worker.tick()
        if len(waiting) > 2 * AHEAD:
            client.execute(*waiting.pop(0))
        step += 1
    cursors = [int(client.shm.schedules[device].cursor) for device in range(2)]
    lib.pump_worker_schedule(client.shm, worker.model.raw, 1)
    assert client.shm.schedules[1].cursor != cursors[1]
    assert client.shm.schedules[0].cursor == cursors[0]
    client.close()


def test_a_client_that_yields_is_told_up_to_which_operation_all_memory_is_there() -> None:
    training = Training("window")
    client, device = training.client, training.client.shm.devices[0]

    def is_there(layer: int) -> bool:
        believed = training.believed()
        return all((training.layers[layer], i) in believed for i in range(BLOCKS))

    for _ in range(2 * len(ORDER)):
        training.step(4)
    while training.waiting:
        training.execute()
    training.worker.tick()
    away = [layer for layer in range(LAYERS) if not is_there(layer)][:2]
    device.yield_until_ns = 1
    first, second = (training.issue(layer) for layer in away)
    training.worker.tick()
    assert device.ready_seq == first - 1
    while not is_there(away[1]):
        for way in WAYS:
            for command in client.commands(way):
                training.move(command, way)
                training.worker.tick()
                ready = first - 1 if not is_there(away[0]) else second - (not is_there(away[1]))
                assert device.ready_seq == ready
        training.worker.tick()
    assert device.ready_seq == second
    larger = client.launch([client.alloc(BUDGET)], function=99)
    training.worker.tick()
    assert device.ready_seq == larger, "that is left to faults"
    training.worker.switch(by_name("demand"))
    training.worker.tick()
    assert device.ready_seq == 2**64 - 1, "all is left to faults"
