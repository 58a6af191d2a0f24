"""The model in C against a naive one in Python, on random histories, and its single rules."""

from __future__ import annotations

import pytest
from model_batch import BLOCK, Script, lib

from pump.model.client import ABSENT, ARRIVING, HOST, LEAVING, MAYBE_EVICTED, RESIDENT
from pump_lab.sim.deciding import NOT_NEEDED

TO_GPU, TO_HOST = lib.PUMP_TO_GPU, lib.PUMP_TO_HOST


def test_the_first_of_several_uses_is_the_next_one() -> None:
    script = Script()
    blocks = script.alloc(0, 3)
    first = script.copy([(0, 0, 2)])
    second = script.copy([(0, 1, 2)])
    uses = [script.model.block(b).next_use for b in blocks]
    assert uses == [first, first, second]
    script.execute(first)
    assert [script.model.block(b).next_use for b in blocks] == [NOT_NEEDED, second, second]


def test_an_operation_counts_a_block_once_however_often_it_names_it() -> None:
    script = Script()
    script.set_state(script.alloc(0, 4), HOST)
    script.execute(script.copy([(0, 0, 4), (0, 0, 4), (0, 2, 1)]))
    assert script.model.tally(0).blocks == 4
    assert script.model.tally(0).least == 5, "a tenth is left for others"
    script.execute(script.copy([(0, 0, 1)]))
    assert script.model.tally(0).least == 5


@pytest.mark.parametrize("budget", [40, 2])
def test_the_first_use_of_a_block_that_was_never_moved_is_neither_hit_nor_miss(
    budget: int,
) -> None:
    """A range that fits is believed populated, others are not. Neither has data that had to be
    brought."""
    script = Script(budget=budget)
    script.alloc(0, 4)
    script.execute(script.copy([(0, 0, 4)]))
    assert script.model.tally(0).blocks == 0
    assert script.view(0).faults == (4 if budget == 2 else 0), "but faults took the room"
    script.execute(script.copy([(0, 0, 4)]))
    tally = script.model.tally(0)
    # With memory for two blocks, a sweep over four always finds the wrong two there.
    assert (tally.blocks, tally.hit) == (4, 4 if budget == 40 else 0)


def test_a_freed_range_leaves_the_window_and_its_numbers_serve_again() -> None:
    script = Script()
    old = script.alloc(0, 5)
    script.copy([(0, 0, 5)])
    script.free(0)
    assert script.model.blocks_of(0) is None
    new = script.alloc(1, 5)
    assert new == old
    assert all(script.model.block(b).next_use == NOT_NEEDED for b in new)
    script.execute(1)
    assert script.model.tally(0).blocks == 0


def test_gaps_are_joined_when_new_numbers_run_out() -> None:
    script = Script(capacity=12)
    for slot in range(3):
        script.alloc(slot, 4)
    script.free(0)
    script.free(1)
    assert script.alloc(3, 7) == range(7)
    assert script.alloc(4, 1) == range(7, 8)
    script.generation[5] = 1
    uses = [(5, 1, 0, BLOCK, lib.PUMP_ACCESS_WRITE)]
    script.send(lib.PUMP_EVENT_ALLOC, function=1 << 41, uses=uses)
    assert script.model.blocks_of(5) is None
    assert script.model.totals().ranges_untracked == 1


def test_events_that_overtook_each_other_sort_themselves_out() -> None:
    script = Script()
    script.alloc(0, 2)
    uses = [(0, 2, 0, 3 * BLOCK, lib.PUMP_ACCESS_WRITE)]
    script.send(lib.PUMP_EVENT_ALLOC, function=1 << 41, uses=uses)  # before the first one's free
    script.free(0)
    assert len(script.model.blocks_of(0)) == 3
    script.send(lib.PUMP_EVENT_FREE, uses=uses)
    script.send(lib.PUMP_EVENT_ALLOC, function=1 << 41, uses=uses)
    assert script.model.blocks_of(0) is None, "that life is over"


def test_a_table_read_again_keeps_what_is_known_and_drops_what_is_gone() -> None:
    script = Script(budget=6)
    kept, _ = script.alloc(0, 2), script.alloc(1, 2)
    script.resync({0: (1, 2), 2: (7, 2), 3: (1, 9)}, newest_seq=50)
    assert script.model.blocks_of(0) == kept and script.state(kept) == [RESIDENT] * 2
    assert script.model.blocks_of(1) is None
    assert script.state(script.model.blocks_of(2)) == [MAYBE_EVICTED] * 2, "may be there"
    assert script.state(script.model.blocks_of(3)) == [HOST] * 9, "cannot be there"
    assert script.model.totals().observed_seq == 50


def test_a_window_beyond_its_bound_retires_the_oldest_operations_unseen() -> None:
    script = Script()
    script.alloc(0, 1)
    bound = 1 << 14
    for _ in range(bound + 10):
        script.copy([(0, 0, 1)])
    totals = script.model.totals()
    assert (totals.lost, totals.window_depth) == (10, bound)
    assert script.model.block(0).next_use == 11


def test_blocks_that_came_by_fault_are_resident_and_doubts_go_to_the_oldest() -> None:
    script = Script(budget=40)
    old, new = script.alloc(0, 32), script.alloc(1, 4)
    script.set_state(new, HOST)
    script.execute(script.copy([(1, 0, 4)]))
    assert script.state(new) == [RESIDENT] * 4
    assert script.state(old) == [MAYBE_EVICTED] * 4 + [RESIDENT] * 28
    assert script.model.tally(0).unseen == 4
    assert script.view(0).faults == 4 and script.view(0).faults == 0


def test_what_faults_bring_beyond_the_card_evicts_what_migrated_longest_ago() -> None:
    script = Script(budget=8)
    old, new = script.alloc(0, 8), script.alloc(1, 3)
    assert script.state(new) == [ABSENT] * 3
    script.execute(script.copy([(1, 0, 3)]))
    assert script.state(old)[:3] == [HOST] * 3
    assert script.model.occupied(0) == 8


def test_commands_are_runs_of_neighbours_of_one_range_and_one_need() -> None:
    script = Script()
    blocks = script.alloc(0, 6)
    other = script.alloc(1, 2)
    script.set_state([*blocks, *other], HOST)
    first = script.copy([(0, 0, 3)], stream=5)
    second = script.copy([(0, 3, 3), (1, 0, 2)])
    commands = script.start(TO_GPU, [*blocks, *other])
    found = [(c.slot, c.offset_bytes // BLOCK, c.length_bytes // BLOCK) for c in commands]
    assert found == [(0, 0, 3), (0, 3, 3), (1, 0, 2)]
    assert [c.needed_by_seq for c in commands] == [first, second, second]
    assert [c.stream for c in commands] == [5, 0, 0]


def test_slices_grow_until_a_command_takes_its_time_and_shrink_again() -> None:
    script = Script()
    blocks = script.alloc(0, 64)

    def lengths() -> list[int]:
        commands = script.start(TO_HOST, list(blocks[:32]))
        for command in commands:
            script.finish(command.ticket, lib.PUMP_RESULT_DEAD)
        return [c.length_bytes // BLOCK for c in commands]

    def move(us_per_block: int) -> None:
        for _ in range(40):
            for c in script.start(TO_HOST, list(blocks[:32])):
                script.finish(c.ticket, us=us_per_block * c.length_bytes // BLOCK)
            script.set_state(blocks, RESIDENT)

    assert set(lengths()) == {4}
    move(20)
    assert set(lengths()) == {16}
    move(80)
    assert max(lengths()) in (8, 9)
    move(1000)
    assert set(lengths()) == {4}


def test_an_eviction_that_does_not_happen_leaves_the_block_as_old_and_as_doubtful() -> None:
    script = Script()
    blocks = script.alloc(0, 3)
    script.set_state(blocks[:1], MAYBE_EVICTED)
    before = script.view(0).oldest.tolist()
    for command in script.start(TO_HOST, list(blocks)):
        script.finish(command.ticket, lib.PUMP_RESULT_STALE)
    assert script.state(blocks) == [MAYBE_EVICTED, RESIDENT, RESIDENT]
    assert script.view(0).oldest.tolist() == before


def test_a_prefetch_of_a_resident_block_makes_it_the_youngest() -> None:
    script = Script()
    blocks = script.alloc(0, 3)
    (command,) = script.start(TO_GPU, [blocks[0]])
    assert command.needed_by_seq == 0
    script.finish(command.ticket)
    assert script.view(0).oldest.tolist() == [blocks[1], blocks[2], blocks[0]]


def test_an_unknown_or_answered_ticket_changes_nothing() -> None:
    script = Script()
    blocks = script.alloc(0, 1)
    (command,) = script.start(TO_HOST, list(blocks))
    script.finish(12345)
    assert script.state(blocks) == [LEAVING]
    script.finish(command.ticket)
    (again,) = script.start(TO_GPU, list(blocks))
    script.finish(command.ticket)
    assert script.state(blocks) == [ARRIVING]
    script.finish(again.ticket)
    assert script.state(blocks) == [RESIDENT]


def test_transfers_beyond_the_table_are_not_started() -> None:
    script = Script(capacity=1 << 14)
    blocks = script.alloc(0, 1 << 13)
    started = 0
    for first in range(0, 1 << 13, 8):  # every other block: no neighbours
        started += len(script.start(TO_HOST, [blocks[first], blocks[first + 2]]))
    assert started == lib.PUMP_MAX_IN_FLIGHT == script.model.totals().in_flight


def test_an_operation_larger_than_the_budget_is_filled_up_to_it_and_no_further() -> None:
    script = Script(budget=20)
    giant, small = script.alloc(0, 30), script.alloc(1, 4)
    script.set_state([*giant, *small], HOST)
    script.copy([(0, 0, 30)])
    script.copy([(1, 0, 4)])
    assert script.model.totals().larger == 1
    view = script.view(0)
    assert view.missing.tolist() == [*giant[:20], *small]
    script.set_state(giant[:18], RESIDENT)
    assert script.view(0).missing.tolist() == [*giant[18:20], *small]
    script.execute(1)
    assert script.model.tally(0).no_room == 12, "that it came by faults was no oversight"


def test_in_its_turn_all_of_a_larger_operation_comes_in_its_order() -> None:
    """This includes its resident blocks. While it runs, the driver evicts in the order of
    migration, and so evicts blocks that it has already used."""
    script = Script(budget=20)
    giant, small = script.alloc(0, 30), script.alloc(1, 2)
    script.set_state([*giant, *small], HOST)
    script.set_state([*giant[24:28], *giant[4:8]], RESIDENT)
    script.copy([(1, 0, 2)])
    script.copy([(0, 0, 30)])
    lib.pump_model_turn(script.model.raw, 0)
    missing = script.view(0).missing.tolist()
    assert missing == [*small, *giant[:4], *giant[8:16]], "not before it is its turn"
    script.set_state(small, RESIDENT)
    lib.pump_model_turn(script.model.raw, 0)
    missing = script.view(0).missing.tolist()
    assert missing == [*giant[:16], *giant[24:28]], "12 blocks find room"
    script.set_state(giant[:16], RESIDENT)
    assert script.view(0).missing.tolist() == [*giant[24:28]], "no block finds room"
    script.set_state(giant[24:28], RESIDENT)
    lib.pump_model_turn(script.model.raw, 0)
    assert script.view(0).missing.tolist() == [], "once"


def test_behind_an_operation_that_did_not_tell_all_everything_is_in_doubt() -> None:
    script = Script(budget=100)
    blocks = script.alloc(0, 40)
    script.set_state(blocks, RESIDENT)
    script.execute(script.copy([(0, 0, 4)]))
    assert set(script.state(blocks)) == {RESIDENT}
    script.execute(script.copy([(0, 0, 4)], dropped=1))
    assert set(script.state(blocks)) == {MAYBE_EVICTED}


def test_an_operation_of_ninety_percent_of_the_budget_is_not_too_large() -> None:
    script = Script(budget=20)
    script.alloc(0, 18)
    script.copy([(0, 0, 18)])
    assert script.model.totals().larger == 0


def test_dead_blocks_leave_before_all_others_until_they_are_used_again() -> None:
    script = Script(budget=8)
    blocks = script.alloc(3, 6)
    for block in range(6):
        script.execute(script.copy([(3, block, 1)]))
    assert script.view(0).eviction_candidates.tolist() == list(blocks)
    script.send(lib.PUMP_EVENT_DEAD, uses=[(3, 1, 4 * BLOCK, 2 * BLOCK, lib.PUMP_ACCESS_WRITE)])
    eviction_candidates = script.view(0).eviction_candidates.tolist()
    assert (
        set(eviction_candidates[:2]) == {blocks[4], blocks[5]}
        and eviction_candidates[2:] == list(blocks)[:4]
    )
    assert script.state(blocks) == [RESIDENT] * 6, "nothing was thrown away"
    used = script.copy([(3, 5, 1)])
    assert script.view(0).eviction_candidates.tolist() == [blocks[4], *blocks[:4], blocks[5]]
    script.execute(used)
    assert script.view(0).eviction_candidates.tolist() == [blocks[4], *blocks[:4], blocks[5]]


def test_a_block_that_dies_while_it_is_needed_leaves_first_when_that_has_run() -> None:
    script = Script(budget=8)
    blocks = script.alloc(3, 3)
    needed = script.copy([(3, 0, 3)])
    uses = [(3, 1, BLOCK + 1, 2 * BLOCK - 1, lib.PUMP_ACCESS_WRITE)]  # contains one whole block
    script.send(lib.PUMP_EVENT_DEAD, uses=uses)
    script.execute(needed)
    assert script.view(0).eviction_candidates.tolist() == [blocks[2], blocks[0], blocks[1]]
    # The range has no generation 2.
    script.send(lib.PUMP_EVENT_DEAD, uses=[(3, 2, 0, BLOCK, lib.PUMP_ACCESS_WRITE)])
    assert script.view(0).eviction_candidates.tolist()[0] == blocks[2]


def test_discarded_blocks_take_no_room_until_they_are_brought_back() -> None:
    script = Script(budget=8)
    blocks = script.alloc(3, 6)
    assert script.state(blocks) == [RESIDENT] * 6
    script.set_state([blocks[4]], LEAVING)  # in flight: counts once it has ended
    uses = [(3, 1, 2 * BLOCK, 3 * BLOCK, lib.PUMP_ACCESS_WRITE)]
    script.send(lib.PUMP_EVENT_DISCARDED, uses=uses)
    assert script.state(blocks) == [RESIDENT, RESIDENT, ABSENT, ABSENT, LEAVING, RESIDENT]
    uses = [(3, 1, 3 * BLOCK, 2 * BLOCK, lib.PUMP_ACCESS_WRITE)]
    script.send(lib.PUMP_EVENT_POPULATED, uses=uses)
    assert script.state(blocks) == [RESIDENT, RESIDENT, ABSENT, RESIDENT, LEAVING, RESIDENT]
    for slot, generation, offset in ((3, 2, 0), (4, 1, 0), (3, 1, 60 * BLOCK)):
        uses = [(slot, generation, offset, 9 * BLOCK, lib.PUMP_ACCESS_WRITE)]
        script.send(lib.PUMP_EVENT_DISCARDED, uses=uses)  # of unknown blocks
    assert script.state(blocks)[0] == RESIDENT


def blocks_event(script: Script, kind: int, first: int, count: int) -> None:
    script.send(kind, uses=[(3, 1, first * BLOCK, count * BLOCK, lib.PUMP_ACCESS_WRITE)])


def test_freed_blocks_do_not_leave_while_they_wait_to_be_discarded() -> None:
    script = Script(budget=8)
    blocks = script.alloc(3, 6)
    needed = script.copy([(3, 0, 3)])
    blocks_event(script, lib.PUMP_EVENT_FREED, 1, 3)
    eviction_candidates = script.view(0).eviction_candidates.tolist()
    assert set(eviction_candidates) == {*blocks} - {blocks[3]}, (
        "what is still needed may leave, if late"
    )
    script.execute(needed)
    assert set(script.view(0).eviction_candidates.tolist()) == {
        blocks[0],
        blocks[4],
        blocks[5],
    }
    blocks_event(script, lib.PUMP_EVENT_DISCARDED, 1, 1)
    used = script.copy([(3, 2, 1)])  # allocated again, not discarded: like any other
    assert script.state(blocks) == [RESIDENT, ABSENT, RESIDENT, RESIDENT, RESIDENT, RESIDENT]
    script.execute(used)
    assert (
        blocks[2] in script.view(0).eviction_candidates
        and blocks[3] not in script.view(0).eviction_candidates
    )


def test_freed_blocks_that_are_not_discarded_leave_first_after_a_while() -> None:
    script = Script(budget=8)
    blocks = script.alloc(3, 6)
    script.execute(script.copy([(3, 0, 6)]))
    blocks_event(script, lib.PUMP_EVENT_FREED, 4, 2)
    assert set(script.view(0).eviction_candidates.tolist()) == {*blocks[:4]}
    for _ in range(300):
        script.execute(script.copy([(3, 0, 1)]))
    assert set(script.view(0).eviction_candidates.tolist()[:2]) == {*blocks[4:]}


def test_an_operation_that_ran_before_a_discard_does_not_bring_the_block_back() -> None:
    script = Script(budget=8)
    blocks = script.alloc(3, 4)
    earlier = script.copy([(3, 0, 2)])
    blocks_event(script, lib.PUMP_EVENT_DISCARDED, 0, 1)  # the execution of `earlier` is seen late
    later = script.copy([(3, 0, 1)])
    script.execute(earlier)
    assert script.state(blocks) == [ABSENT, RESIDENT, RESIDENT, RESIDENT]
    assert script.view(0).missing.tolist() == [blocks[0]]
    script.execute(later)
    assert script.state(blocks)[0] == RESIDENT


def test_a_new_range_is_there_only_where_all_that_is_allocated_fits() -> None:
    script = Script(budget=8)
    first = script.alloc(3, 6)
    script.set_state(first, HOST)
    assert script.state(script.alloc(4, 6)) == [ABSENT] * 6, "the shim populates it no more"


def test_the_turn_of_an_operation_is_one_for_its_own_device() -> None:
    script = Script(budget=20, devices=2)
    giant = script.alloc(0, 30, device=1)
    script.set_state(giant, HOST)
    script.set_state(giant[:4], RESIDENT)
    script.copy([(0, 0, 30)])
    lib.pump_model_turn(script.model.raw, 0)
    assert not set(giant[:4]) & set(script.view(1).missing.tolist())
    lib.pump_model_turn(script.model.raw, 1)
    assert set(giant[:4]) <= set(script.view(1).missing.tolist())


def test_blocks_that_are_not_discarded_are_given_up_whether_a_policy_looks_or_not() -> None:
    """These blocks leave before others, in the order in which their state became known."""
    orders = []
    for looks in (False, True):
        script = Script(budget=8)
        blocks = script.alloc(3, 6)
        script.execute(script.copy([(3, 0, 6)]))
        blocks_event(script, lib.PUMP_EVENT_FREED, 5, 1)
        for _ in range(300):
            script.execute(script.copy([(3, 0, 1)]))
            if looks:
                script.view(0)
        blocks_event(script, lib.PUMP_EVENT_DEAD, 4, 1)
        orders.append(script.view(0).eviction_candidates.tolist())
    assert orders[0] == orders[1]
    assert orders[0][:2] == [blocks[4], blocks[5]]
