"""Arrivals and evictions of a schedule, rule by rule, for small programs made by hand.

tests/sim holds the rule equal to its specification on random programs.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from model_batch import BLOCK, Entry, Script, blocks_of, lib
from test_model_expect import ALL_FRESH, add_expected, discard

from pump.model.client import (
    ABSENT,
    ARRIVING,
    DISCARDING,
    HOST,
    MAYBE_EVICTED,
    RESIDENT,
)


def full(budget: int, *, away: int = 0, **more: int) -> tuple[Script, range, range]:
    """Returns a device that is full with one range, and another range on the host."""
    script = Script(budget=budget, **more)
    there = script.alloc(0, budget)
    gone = script.alloc(1, away) if away else range(0)
    script.set_state(there, RESIDENT)
    script.set_state(gone, HOST)
    return script, there, gone


def leaving(script: Script, device: int = 0) -> list[int]:
    return blocks_of(script.schedule(device)[0])


def test_what_is_missing_comes_in_the_order_of_need_while_there_is_room() -> None:
    script = Script(budget=100)
    blocks = script.alloc(0, 9)
    script.set_state(blocks, HOST)
    script.copy([(0, 7, 1)])
    script.copy([(0, 2, 2)])
    script.copy([(0, 7, 2)])
    out, come = script.schedule()
    assert out == []
    assert come == [Entry((7,), 1), Entry((2, 3), 2), Entry((8,), 3)]


def test_an_arrival_waits_for_the_room_of_the_block_that_is_needed_last() -> None:
    script, there, gone = full(3, away=1)
    script.copy([(1, 0, 1)])
    for block in (2, 0, 1):
        script.copy([(0, block, 1)])
    out, come = script.schedule()
    assert out == [Entry((there[1],))]
    assert come == [Entry((gone[0],), 1, left=1)]


def test_a_block_needed_sooner_than_what_comes_in_never_leaves_for_it() -> None:
    script, there, gone = full(2, away=1)
    script.copy([(0, 0, 1)], stream=1)
    script.copy([(0, 1, 1)], stream=1)
    script.copy([(1, 0, 1)], stream=2)
    assert script.schedule() == ([], [])
    script.copy([(0, 1, 1)], stream=1)
    script.copy([(0, 0, 1)], stream=1)
    out, come = script.schedule()
    assert out == [Entry((there[0],), after_seq=1)], "it is used, and then needed last"
    assert come == [Entry((gone[0],), 3, left=1)]


def test_blocks_of_one_operation_do_not_push_each_other_out() -> None:
    script, _, gone = full(10, away=2)
    script.copy([(0, 0, 7), (1, 0, 2)])
    assert set(leaving(script)) < {7, 8, 9}, "those that it does not use"
    script.set_state([7, 8, 9], HOST)
    script.copy([(0, 0, 7), (1, 0, 2)])
    out, come = script.schedule()
    assert (out, blocks_of(come)) == ([], list(gone))


def test_what_nothing_needs_leaves_first_and_the_longest_unused_of_it() -> None:
    script, there, _ = full(6, away=2)
    for block in (1, 5, 3, 0, 2, 4):
        script.execute(script.copy([(0, block, 1)]))
    script.copy([(1, 0, 2)])
    script.copy([(0, 1, 1)])
    assert leaving(script) == [there[5], there[3]]


def sweep(script: Script, order: Sequence[int], times: int) -> None:
    """Uses these blocks of the first range one by one, and waits for each."""
    for _ in range(times):
        for block in order:
            script.execute(script.copy([(0, block, 1)]))


def dead(script: Script, block: int) -> None:
    script.send(lib.PUMP_EVENT_DEAD, uses=[(0, 1, block * BLOCK, BLOCK, lib.PUMP_ACCESS_WRITE)])


@pytest.mark.parametrize(
    ("order", "tells", "leave"),
    [
        ((1, 2, 3, 4, 5), True, {0, 5, 4}),
        ((1, 2, 3, 4, 5), False, {0, 1, 2}),
        ((1, 2, 3, 4, 5, 4, 3, 2), True, {0, 1, 5}),
    ],
    ids=["in turn", "in turn, and dead memory is unknown", "to and fro"],
)
def test_where_idle_blocks_are_used_in_turn_the_newest_leaves_first_behind_the_dead(
    order: tuple[int, ...], tells: bool, leave: set[int]
) -> None:
    script, there, _ = full(6, away=3)
    script.execute(script.copy([(0, 0, 1)]))
    if tells:
        dead(script, 0)
    sweep(script, order, 60)
    script.copy([(1, 0, 3)])
    assert set(leaving(script)) == {there[block] for block in leave}


def test_dead_blocks_leave_before_all_others() -> None:
    script, there, _ = full(4, away=1)
    for block in range(4):
        script.execute(script.copy([(0, block, 1)]))
    script.send(lib.PUMP_EVENT_DEAD, uses=[(0, 1, 2 * BLOCK, BLOCK, lib.PUMP_ACCESS_WRITE)])
    script.copy([(1, 0, 1)])
    assert leaving(script) == [there[2]], "the others were unused for longer"


def test_room_that_is_about_to_come_free_is_counted() -> None:
    script, there, _ = full(4, away=2)
    script.copy([(1, 0, 2)])
    script.start(lib.PUMP_TO_HOST, list(there[:2]))
    out, come = script.schedule()
    assert out == []
    assert [(entry.need, entry.left) for entry in come] == [(1, 2)]


def test_more_than_the_budget_leaves_even_when_nothing_is_missing() -> None:
    script = Script(budget=4)
    there = script.alloc(0, 6)
    script.set_state(there, RESIDENT)
    for block in (0, 2, 4, 1, 3, 5):
        script.copy([(0, block, 1)])
    assert sorted(leaving(script)) == [there[3], there[5]]


@pytest.mark.parametrize(("above", "kept"), [(0, 0), (2, 2), (50, 3)])
def test_spare_room_is_kept_by_blocks_that_nothing_needs(above: int, kept: int) -> None:
    script, _, _ = full(100, away=above)
    assert len(leaving(script)) == kept, "no more than there is beyond the budget"
    script.copy([(0, 0, 60)])
    script.copy([(0, 50, 50)])
    assert leaving(script) == [], "needed blocks keep none"


def test_several_streams_keep_their_order() -> None:
    script, there, gone = full(8, away=8)
    seqs = [script.copy([(1, i // 2 + 4 * (i % 2), 1)], stream=1 + i % 2) for i in range(8)]
    out, come = script.schedule()
    assert blocks_of(out) == list(there)
    wanted = [gone[i // 2 + 4 * (i % 2)] for i in range(8)]
    assert come == [Entry((wanted[i],), seqs[i], left=i + 1) for i in range(8)]
    again = script.copy([(1, 0, 4)], stream=1)
    script.execute(seqs[6], stream=1)
    assert [e.need for e in script.schedule()[1]] == [2, 4, 6, 8], "stream 2 has not moved"
    assert [script.model.block(b).next_use for b in gone[:4]] == [again] * 4


def test_a_block_in_doubt_comes_without_room_and_pushes_nothing_out() -> None:
    script, there, gone = full(4, away=1)
    script.set_state(there[:2], MAYBE_EVICTED)
    script.copy([(0, 0, 2)])
    out, come = script.schedule()
    assert (out, come) == ([], [Entry((0, 1), 1)])
    script.copy([(1, 0, 1)])
    out, come = script.schedule()
    assert (len(blocks_of(out)), blocks_of(come)) == (1, [0, 1, gone[0]])


def test_an_operation_larger_than_the_budget_is_filled_up() -> None:
    script = Script(budget=20)
    other, giant = script.alloc(1, 10), script.alloc(0, 30)
    script.set_state(other, RESIDENT)
    script.set_state(giant, HOST)
    script.copy([(0, 0, 30)])
    script.copy([(1, 0, 10)])
    out, come = script.schedule()
    assert set(blocks_of(out)) == set(other)
    assert blocks_of(come) == list(giant[:20])
    script.set_state(giant[:18], RESIDENT)
    script.set_state(other[2:], HOST)
    out, come = script.schedule()
    assert (blocks_of(out), blocks_of(come)) == (list(other[:2]), list(giant[18:20]))


def test_room_that_a_discard_gives_back_is_waited_for() -> None:
    script, there, gone = full(10, away=4)
    seq = script.copy([(0, 0, 4)])
    discard(script, (0, 0, 4), seq)
    script.copy([(0, 4, 6)])
    script.copy([(1, 0, 4)])
    script.copy([(0, 4, 6)])
    out, come = script.schedule()
    assert out == []
    assert come == [Entry(tuple(gone), 3, after_seq=seq)]
    script.execute(seq)
    assert script.state(there[:4]) == [DISCARDING] * 4
    assert script.schedule() == (out, come), "until the discard has ended"
    discard(script, (0, 0, 4), seq, ended=True)
    assert script.schedule() == ([], [Entry(tuple(gone), 3)])


@pytest.mark.parametrize("others", [2, 3])
def test_room_that_comes_by_itself_lets_nothing_leave(others: int) -> None:
    """Four blocks die after the first operation. Two are rewritten, and other blocks arrive."""
    script, there, gone = full(10, away=others)
    seq = script.copy([(0, 0, 4)])
    discard(script, (0, 0, 4), seq)
    add_expected(script, [(1, 0, others)])
    add_expected(script, [(0, 0, 2)], ALL_FRESH)
    add_expected(script, [(1, 0, 1)])
    add_expected(script, [(0, 4, 6)])
    out, come = script.schedule()
    assert blocks_of(come) == list(gone)
    assert [entry.after_seq for entry in come if entry.left == 0] == [seq]
    assert len(blocks_of(out)) == others - 2, "what is too much for the room of four"
    assert set(blocks_of(out)) <= set(there[4:])


def test_a_block_that_has_to_be_away_whichever_others_leave_goes_at_once() -> None:
    script, there, gone = full(10, away=4)
    add_expected(script, [(0, 0, 4)])  # 1
    add_expected(script, [(1, 0, 4)])  # 2
    add_expected(script, [(0, 4, 6)])  # 3
    out, come = script.schedule()
    assert out == [Entry(tuple(there[6:]))]
    assert come == [Entry(tuple(gone), 2, left=4)]


def test_the_schedule_ends_with_what_was_expected() -> None:
    script, _, gone = full(10, away=4)
    script.copy([(0, 0, 2)])
    add_expected(script, [(1, 0, 4)])
    add_expected(script, [(0, 0, 10)])
    assert blocks_of(script.schedule()[1])[:4] == list(gone)
    script.copy([(0, 2, 1)])
    out, come = script.schedule()
    assert come == [], "it was dropped"
    assert all(block > 2 for block in blocks_of(out)), "spare, of what nothing needs"


def test_devices_have_schedules_of_their_own() -> None:
    script = Script(budget=20, devices=2)
    script.set_state(script.alloc(0, 16, device=0), RESIDENT)
    away = script.alloc(1, 24, device=1)
    script.set_state(away, HOST)
    for first in range(0, 24, 4):
        add_expected(script, [(1, first, 4)], stream=1)
    assert script.schedule(0) == ([], [])
    out, come = script.schedule(1)
    assert (out, blocks_of(come)) == ([], list(away[:20]))


@pytest.mark.parametrize("way", ["executed", "freed"])
def test_room_that_has_come_back_is_not_counted_again(way: str) -> None:
    """The operation that freed the memory stays in the window because of an older one."""
    script = Script(budget=10)
    giving = script.alloc(0, 8)
    script.alloc(1, 1)
    wanted = script.alloc(2, 9)
    script.set_state(wanted, HOST)
    script.copy([(1, 0, 1)], stream=0)
    seq = script.copy([(0, 0, 8)], stream=1)
    discard(script, (0, 0, 8), seq)
    if way == "executed":
        script.execute(seq, stream=1)
        assert script.state(giving) == [DISCARDING] * 8
        discard(script, (0, 0, 8), seq, ended=True)
        assert script.state(giving) == [ABSENT] * 8
    else:
        script.free(0)
    add_expected(script, [(2, 0, 9)], stream=1)
    _, come = script.schedule()
    assert [entry._replace(blocks=()) for entry in come] == [Entry((), 3)] * 3, "it is there"
    assert blocks_of(come) == list(wanted)


# ---- faults bring the blocks (demand) -----------------------------------------------------


def under_demand(*, emulated: bool) -> tuple[Script, range]:
    """Returns a device with four blocks more than its budget of 60; the 9th migrated first."""
    script = Script(budget=60, emulated=emulated)
    script.model.schedule(False)
    blocks = script.alloc(0, 66)
    script.set_state(blocks[:64], HOST)
    for block in (8, 40, 41, 9, *(b for b in range(64) if b not in (8, 9, 40, 41))):
        script.set_state([blocks[block]], RESIDENT)
    return script, blocks


def test_faults_above_an_emulated_budget_push_out_what_migrated_longest_ago() -> None:
    script, blocks = under_demand(emulated=True)
    script.copy([(0, 8, 2)])  # the driver does not look ahead
    out, come = script.schedule()
    assert come == []
    assert out == [Entry((blocks[8], blocks[9])), Entry((blocks[40], blocks[41]))]
    script.set_state(blocks[64:65], ARRIVING)
    assert len(leaving(script)) == 5, "what arrives takes memory"


def test_blocks_in_doubt_leave_first_and_no_more_than_may_be_in_flight() -> None:
    script, blocks = under_demand(emulated=True)
    script.set_state([blocks[30]], MAYBE_EVICTED)
    assert leaving(script) == [blocks[8], blocks[30], *blocks[40:42]]
    script = Script(budget=40, emulated=True)
    script.model.schedule(False)
    script.set_state(script.alloc(0, 90), RESIDENT)
    assert 0 < len(leaving(script)) < 40


def test_the_driver_keeps_a_budget_that_is_not_emulated() -> None:
    script, _ = under_demand(emulated=False)
    assert script.schedule() == ([], [])
