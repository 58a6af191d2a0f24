"""The worker's tick over a mapping: model, policy and rings together, without a shim."""

from __future__ import annotations

import os
import random
from types import SimpleNamespace
from typing import Any

import pytest
from fake_client import BLOCK, FakeClient, MakeClient, Serve, carry_out, lib, states
from model_states import set_states

from pump.model.client import ABSENT, ARRIVING, HOST, LEAVING, MAYBE_EVICTED, RESIDENT
from pump.policy import by_name
from pumpd.worker.worker import Worker


def run_training(
    client: FakeClient, policy: str, *, layers: int, blocks: int, iterations: int, ahead: int
) -> tuple[Worker, int]:
    """Runs cyclic forward and backward passes; `ahead` operations are issued before execution. The
    transfers of a tick complete before the next operation executes."""
    worker = Worker(client.mapping, by_name(policy))
    weights = [client.alloc(blocks) for _ in range(layers)]
    worker.tick()
    order = [*range(layers), *reversed(range(layers))] * iterations
    waiting: list[int] = []
    moved = 0
    for layer in [*order, *[-1] * (ahead + 1)]:
        if layer >= 0:
            waiting.append(client.launch([weights[layer]]))
        if len(waiting) > ahead or layer < 0:
            for _ in range(4):
                worker.tick()
                for direction in (lib.PUMP_TO_HOST, lib.PUMP_TO_GPU):
                    for command in client.commands(direction):
                        moved += command.length_bytes // BLOCK
                        client.finish(command)
                occupied = worker.model.occupied(0)
                if policy == "window":
                    assert occupied <= client.shm.devices[0].budget_bytes // BLOCK
            if waiting:
                client.execute(waiting.pop(0))
    worker.tick()
    return worker, moved


def test_a_window_of_a_whole_iteration_hits_nearly_every_block(make_client: MakeClient) -> None:
    client = make_client(60)
    worker, _ = run_training(client, "window", layers=10, blocks=9, iterations=6, ahead=10)
    tally = worker.model.tally(0)
    assert worker.model.totals().operations == 120
    assert tally.hit / tally.blocks > 0.95, worker.model


def test_demand_without_a_budget_of_its_own_moves_nothing(make_client: MakeClient) -> None:
    worker, moved = run_training(
        make_client(60), "demand", layers=10, blocks=9, iterations=3, ahead=10
    )
    assert moved == 0
    tally = worker.model.tally(0)
    assert tally.hit < tally.blocks


def test_demand_under_an_emulated_budget_evicts_down_to_it(make_client: MakeClient) -> None:
    client = make_client(60, emulated=True, capacity=1000)
    worker, moved = run_training(client, "demand", layers=10, blocks=9, iterations=3, ahead=10)
    assert moved > 0
    assert worker.model.occupied(0) <= 60
    assert worker.model.tally(0).overshoot > 0


def test_the_moves_of_a_window_that_sees_everything_are_near_the_least(
    make_client: MakeClient,
) -> None:
    """Belady's algorithm on this sequence of blocks gives the least number of fetches."""
    budget, layers, blocks, iterations = 60, 10, 9, 6
    client = make_client(budget)
    _worker, moved = run_training(
        client, "window", layers=layers, blocks=blocks, iterations=iterations, ahead=200
    )
    order = [*range(layers), *reversed(range(layers))] * iterations
    uses = [layer * blocks + i for layer in order for i in range(blocks)]
    least = belady_fetches(uses, budget)
    assert moved <= 2 * least * 1.15 + budget


def belady_fetches(uses: list[int], room: int) -> int:
    """Returns the fetches of an optimal demand cache that starts empty (Belady 1966)."""
    upcoming: dict[int, list[int]] = {}
    for position, block in reversed(list(enumerate(uses))):
        upcoming.setdefault(block, []).append(position)
    cached: set[int] = set()
    fetches = 0
    for block in uses:
        upcoming[block].pop()
        if block in cached:
            continue
        fetches += 1
        if len(cached) == room:
            cached.remove(max(cached, key=lambda b: upcoming[b][-1] if upcoming[b] else 10**9))
        cached.add(block)
    return fetches


def test_transfers_that_end_many_ticks_later_leave_nothing_on_its_way(serve: Serve) -> None:
    client, worker = serve(40)
    worker.tick()
    slots = [client.alloc(8) for _ in range(10)]
    random_ = random.Random(4)
    seqs = [client.launch([random_.choice(slots)]) for _ in range(300)]
    waiting: list[Any] = []
    for seq in seqs:
        for direction in (lib.PUMP_TO_HOST, lib.PUMP_TO_GPU):
            waiting += client.commands(direction)
        random_.shuffle(waiting)
        for _ in range(random_.randrange(3)):
            if waiting:
                client.finish(waiting.pop())
        if random_.random() < 0.5:
            client.execute(seq)
        worker.tick()
    client.execute(seqs[-1])
    for _ in range(50):
        worker.tick()
        for direction in (lib.PUMP_TO_HOST, lib.PUMP_TO_GPU):
            waiting += client.commands(direction)
        while waiting:
            client.finish(waiting.pop())
    counts = worker.model.counts(0)
    assert worker.model.totals().in_flight == 0
    assert counts[ARRIVING] == counts[LEAVING] == 0
    assert counts[[RESIDENT, HOST, ABSENT, MAYBE_EVICTED]].sum() == 80


def test_results_of_commands_lead_to_the_right_belief(serve: Serve) -> None:
    client, worker = serve(4)
    worker.tick()
    first, second = client.alloc(4), client.alloc(4)
    worker.tick()
    assert states(worker, range(8)) == [RESIDENT] * 4 + [ABSENT] * 4
    client.launch([second])
    worker.tick()
    (out,) = client.commands(lib.PUMP_TO_HOST)
    assert (out.slot, out.offset_bytes, out.length_bytes) == (first, 0, 4 * BLOCK)
    assert out.observed_seq == 1
    client.finish(out, lib.PUMP_RESULT_STALE)
    worker.tick()
    assert states(worker, range(4)) == [RESIDENT] * 4
    assert client.commands(lib.PUMP_TO_HOST) == [], "not again before more has been read"
    client.launch([second])
    worker.tick()
    (again,) = client.commands(lib.PUMP_TO_HOST)
    client.finish(again)
    worker.tick()
    assert states(worker, range(4)) == [HOST] * 4
    (to_gpu,) = client.commands(lib.PUMP_TO_GPU)
    assert (to_gpu.slot, to_gpu.needed_by_seq, to_gpu.stream) == (second, 1, 1)
    client.finish(to_gpu, lib.PUMP_RESULT_LATE)
    worker.tick()
    assert states(worker, range(4, 8)) == [RESIDENT] * 4


def test_executors_that_refuse_everything_are_not_asked_over_and_over(serve: Serve) -> None:
    client, worker = serve(32)
    worker.tick()
    slots = [client.alloc(16) for _ in range(4)]
    client.launch(slots[2:])
    asked = 0
    for _ in range(100):
        worker.tick()
        for direction in (lib.PUMP_TO_HOST, lib.PUMP_TO_GPU):
            for command in client.commands(direction):
                asked += 1
                client.finish(command, lib.PUMP_RESULT_FAILED)
    assert 0 < asked < 20
    assert worker.model.totals().in_flight == 0


def test_a_range_freed_under_a_transfer_leaves_no_trace_in_its_successor(serve: Serve) -> None:
    client, worker = serve(4)
    slot = client.alloc(4)
    other = client.alloc(4)
    worker.tick()
    client.launch([other])
    worker.tick()
    (command,) = client.commands(lib.PUMP_TO_HOST)
    client.free(slot)
    client._next_slot = slot
    again = client.alloc(4)
    client._next_slot = 2
    client.shm.header.range_high = 2
    assert again == slot
    worker.tick()
    blocks = worker.model.blocks_of(slot)
    assert worker.model.block(blocks[0]).generation > 1
    client.finish(command)
    worker.tick()
    assert HOST not in states(worker, blocks), "the old range went to the host, not this one"


def test_lost_events_are_counted_and_the_ranges_read_from_the_table(serve: Serve) -> None:
    client, worker = serve(1000)
    worker.tick()
    slot = client.alloc(1)
    for _ in range(lib.PUMP_EVENT_SLOTS + 50):
        client.launch([slot])
    late = client.alloc(3)
    assert client.shm.shim_counters.events_dropped > 0
    worker.publish()
    before = worker.counters.resyncs
    worker.tick()
    worker.publish()
    assert worker.counters.resyncs == before + 1
    assert worker.model.blocks_of(late) is not None
    client.launch([late])
    worker.tick()
    assert worker.model.totals().window_depth == 1


@pytest.mark.parametrize("seed", range(30))
def test_a_mapping_full_of_noise_neither_crashes_nor_stalls_a_tick(serve: Serve, seed: int) -> None:
    client, worker = serve(50)
    slots = [client.alloc(5) for _ in range(20)]
    worker.tick()
    random_ = random.Random(seed)
    for round_ in range(6):
        for slot in slots:
            client.launch([slot])
        for _ in range(200):
            where = random_.randrange(0, len(client.mapping._map) - 4096)
            if random_.random() < 0.7:  # mostly busy parts: header, progress, rings
                where = random_.randrange(0, 700_000)
            noise = os.urandom(random_.choice((1, 4, 8, 64, 512)))
            client.mapping._map[where : where + len(noise)] = noise
        if round_ == 3:
            client.mapping._map[:] = random_.randbytes(1 << 20) * (
                len(client.mapping._map) >> 20
            ) + bytes(len(client.mapping._map) & ((1 << 20) - 1))
        worker.tick()


def test_faults_put_in_doubt_what_migrated_longest_ago_until_a_prefetch_tells(serve: Serve) -> None:
    client, worker = serve(40)
    worker.tick()
    old, new = client.alloc(32), client.alloc(4)
    worker.tick()
    set_states(worker.model, range(32, 36), HOST)
    client.execute(client.launch([new]))  # executed before any decision
    worker.tick()
    maybe_evicted = [
        b for b, state in enumerate(states(worker, range(36))) if state == MAYBE_EVICTED
    ]
    assert len(maybe_evicted) == 4 and max(maybe_evicted) < 32, "of the range that migrated first"
    client.launch([old])
    for _ in range(20):
        worker.tick()
        for direction in (lib.PUMP_TO_HOST, lib.PUMP_TO_GPU):
            for command in client.commands(direction):
                client.finish(command)
    assert set(states(worker, worker.model.blocks_of(old))) == {RESIDENT}


def test_a_hint_between_two_operations_is_no_use_of_either(make_client: MakeClient) -> None:
    client = make_client(100)
    worker = Worker(client.mapping, by_name("demand"))
    worker.tick()
    used, hinted = client.alloc(3), client.alloc(5)
    worker.tick()
    first = client.launch([used])
    client.push(lib.PUMP_EVENT_HINT, first, [(hinted, 0, 5 * BLOCK)])
    client.launch([used])
    worker.tick()
    model = worker.model
    assert all(model.block(b).next_use == lib.PUMP_NOT_NEEDED for b in model.blocks_of(hinted))
    assert all(model.block(b).next_use == first for b in model.blocks_of(used))


def test_devices_are_decided_one_by_one(serve: Serve) -> None:
    client, worker = serve(16, devices=2)
    worker.tick()
    full = [client.alloc(16, device=device) for device in (0, 1)]
    extra = [client.alloc(8, device=device) for device in (0, 1)]
    worker.tick()
    client.launch([extra[1]])
    assert not carry_out(client, worker, 10, device=0), "nothing is missing there"
    carry_out(client, worker, 20, device=1)
    assert set(states(worker, worker.model.blocks_of(extra[1]))) == {RESIDENT}
    assert set(states(worker, worker.model.blocks_of(full[0]))) == {RESIDENT}
    assert worker.model.occupied(0) == 16 and worker.model.occupied(1) <= 16
    client.launch([extra[0]], stream=2)
    carry_out(client, worker, 20, device=0)
    assert set(states(worker, worker.model.blocks_of(extra[0]))) == {RESIDENT}


def test_an_operation_larger_than_the_budget_fills_it_and_moves_nothing_in_circles(
    serve: Serve,
) -> None:
    client, worker = serve(40)
    worker.tick()
    other, giant = client.alloc(30), client.alloc(100)
    worker.tick()
    set_states(worker.model, worker.model.blocks_of(giant), HOST)
    seq = client.launch([giant])
    moves = carry_out(client, worker, 60)
    fetched = sum(c.length_bytes // BLOCK for c in moves if c.needed_by_seq)
    assert fetched == 40 and worker.model.occupied(0) == 40
    assert set(states(worker, worker.model.blocks_of(other))) == {HOST}
    client.execute(seq)
    worker.tick()
    worker.publish()
    assert worker.counters.ops_larger == 1
    assert worker.counters.miss_no_room == 60
    assert worker.model.occupied(0) == 40


def test_the_estimate_knows_how_many_neighbours_were_seen_on_a_card(
    make_client: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = make_client(60)
    client.shm.devices[0].neighbours = 2
    worker = Worker(client.mapping, by_name("window"))
    asked = []

    def lost(neighbours: int) -> SimpleNamespace:
        asked.append(neighbours)
        return SimpleNamespace(least_ns=5, likely_ns=7, most_ns=9, of_ns=100, delayed_ns=3)

    monkeypatch.setattr(worker.model, "lost", lost)
    worker.tick()
    told = client.shm.worker_counters
    assert (told.lost_least_ns, told.lost_ns, told.lost_most_ns) == (5, 7, 9)
    assert told.lost_delayed_ns == 3
    assert asked == [2]
