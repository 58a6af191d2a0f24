"""A late worker, late records, and launches after a pause."""

from __future__ import annotations

import pytest
from fake_client import BLOCK, MakeClient, Serve, carry_out, lib, states
from model_states import set_states

from pump.model.client import HOST, RESIDENT
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
    """Nothing is issued ahead, so the next use is unknown. Only as many blocks leave as newcomers
    and the watermark require."""
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
    client.shm.header.event_tail += 1  # reserved by a cancelled thread
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
    sequence, late.sequence = late.sequence, 0
    worker.tick()  # the backlog is long: skips only ready records
    assert client.mapping.backlog() == 1
    late.sequence = sequence
    worker.tick()
    assert worker.model.totals().window_depth == 1


def test_the_first_launch_after_a_pause_is_served_by_the_next_tick(serve: Serve) -> None:
    client, worker = serve(40)
    worker.tick()
    slot, other = client.alloc(6), client.alloc(8)
    worker.tick()
    for gone in (slot, other):
        set_states(worker.model, worker.model.blocks_of(gone), HOST)
    worker.tick()
    for wanted, blocks in ((slot, 6), (other, 8)):
        seq = client.launch([wanted])
        worker.tick()
        taken = client.commands(lib.PUMP_TO_GPU)
        assert sum(c.length_bytes // BLOCK for c in taken) == blocks
        assert {c.needed_by_seq for c in taken} == {seq}
        for command in taken:
            client.finish(command)
        worker.tick()
        assert states(worker, worker.model.blocks_of(wanted)) == [RESIDENT] * blocks
        worker.tick()


def test_one_more_operation_is_served_while_the_schedule_waits_for_others(serve: Serve) -> None:
    """There is free memory for its block, and nothing else has happened."""
    client, worker = serve(40)
    worker.tick()
    used, wanted = client.alloc(6), client.alloc(4)
    worker.tick()
    set_states(worker.model, worker.model.blocks_of(wanted), HOST)
    client.launch([used])
    worker.tick()
    assert client.commands(lib.PUMP_TO_GPU) == []
    client.launch([used])
    worker.tick()
    seq = client.launch([wanted])
    worker.tick()
    assert {c.needed_by_seq for c in client.commands(lib.PUMP_TO_GPU)} == {seq}


def test_demand_brings_nothing(make_client: MakeClient) -> None:
    client = make_client(40)
    worker = Worker(client.mapping, by_name("demand"))
    worker.tick()
    slot = client.alloc(6)
    worker.tick()
    set_states(worker.model, range(6), HOST)
    client.launch([slot])
    worker.tick()
    assert client.commands(lib.PUMP_TO_GPU) == []
