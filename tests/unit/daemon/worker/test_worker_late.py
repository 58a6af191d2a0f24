"""A worker that is late, records that are late, and what is sent between two ticks."""

from __future__ import annotations

import pytest
from fake_client import BLOCK, MakeClient, Serve, carry_out, lib, states
from model_states import set_states

from pump.model.client import ARRIVING, HOST
from pump.policy import by_name
from pumpd.worker.worker import Worker


def test_a_worker_that_is_far_behind_skips_to_the_newest_and_asks_for_names_again(
    serve: Serve,
) -> None:
    client, worker = serve(1000)
    slot = client.alloc(2)
    worker.tick()
    before = client.shm.header.resend
    for _ in range(lib.PUMP_EVENT_SLOTS * 3 // 4 + 1):
        client.launch([slot])
    worker.tick()
    worker.publish()
    assert worker.counters.catch_ups == 1
    assert client.shm.header.resend == before + 1
    assert worker.model.totals().window_depth == 0
    client.launch([slot])
    worker.tick()
    assert worker.model.totals().window_depth == 1


def test_a_program_that_synchronises_after_each_operation_keeps_its_memory(
    serve: Serve,
) -> None:
    """Nothing is issued ahead, so nothing tells what comes next: what leaves is no more
    than the newcomers and the watermark ask for."""
    client, worker = serve(100)
    worker.tick()
    slots = [client.alloc(10) for _ in range(9)]
    worker.tick()
    for slot in slots * 3:
        seq = client.launch([slot])
        assert not [c for c in carry_out(client, worker, 3) if not c.needed_by_seq]
        client.execute(seq)
        worker.tick()
    tally = worker.model.tally(0)
    assert tally.hit == tally.blocks == 180, "all but the first use of each"


def test_a_record_that_is_never_filled_does_not_stop_the_worker(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, worker = serve(1000)
    slot = client.alloc(2)
    worker.tick()
    client.launch([slot])
    client.shm.header.event_tail += 1  # reserved by a thread that was cancelled
    client.launch([slot])
    worker.tick()
    worker.tick()
    assert worker.model.totals().window_depth == 1, "patience: it may only be held up"
    monkeypatch.setattr("pumpd.worker.worker.UNREADY_NS", 0)
    worker.tick()
    client.launch([slot])
    worker.tick()
    assert worker.model.totals().window_depth == 1
    assert worker.model.totals().observed_seq == 3


def test_a_record_that_is_filled_late_is_read_when_it_is(serve: Serve) -> None:
    client, worker = serve(1000)
    slot = client.alloc(2)
    worker.tick()
    for _ in range(lib.PUMP_EVENT_SLOTS * 3 // 4):
        client.launch([slot])
    position = client.shm.header.event_tail
    client.launch([slot])
    late = client.shm.events[position % lib.PUMP_EVENT_SLOTS]
    turn, late.turn = late.turn, 0
    worker.tick()  # far behind: everything ready is skipped, and no more
    assert client.mapping.backlog() == 1
    late.turn = turn
    worker.tick()
    assert worker.model.totals().window_depth == 1


def test_a_launch_after_a_pause_is_sent_for_before_the_next_tick(serve: Serve) -> None:
    client, worker = serve(40)
    worker.tick()
    slot, other = client.alloc(6), client.alloc(8)
    worker.tick()
    for gone in (slot, other):
        set_states(worker.model, worker.model.blocks_of(gone), HOST)
    worker.tick()  # nothing is missing: what is free may be taken without asking
    seen = client.mapping.activity()
    seq = client.launch([slot])
    worker.wait(seen)
    taken = client.commands(lib.PUMP_TO_GPU)
    assert sum(c.length_bytes // BLOCK for c in taken) == 5, "as far as the in-flight bound goes"
    assert {c.needed_by_seq for c in taken} == {seq}
    assert set(states(worker, worker.model.blocks_of(slot))) == {ARRIVING, HOST}
    for command in taken:
        client.finish(command)
    worker.tick()
    (rest,) = client.commands(lib.PUMP_TO_GPU)
    assert rest.length_bytes == BLOCK


def test_what_needs_a_victim_is_never_sent_for_without_asking(serve: Serve) -> None:
    client, worker = serve(16)
    worker.tick()
    full, extra = client.alloc(15), client.alloc(8)
    worker.tick()
    client.launch([full])
    worker.tick()
    seen = client.mapping.activity()
    client.launch([extra])
    worker.wait(seen)
    taken = client.commands(lib.PUMP_TO_GPU)
    assert sum(c.length_bytes // BLOCK for c in taken) <= 1
    assert worker.model.occupied(0) <= 16


def test_demand_sends_for_nothing_while_waiting(make_client: MakeClient) -> None:
    client = make_client(40)
    worker = Worker(client.mapping, by_name("demand"))
    worker.tick()
    slot = client.alloc(6)
    worker.tick()
    set_states(worker.model, range(6), HOST)
    seen = client.mapping.activity()
    client.launch([slot])
    worker.wait(seen)
    assert client.commands(lib.PUMP_TO_GPU) == []
