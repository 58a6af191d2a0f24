"""The window policy as a pure function: rules on single views, invariants on random ones."""

from __future__ import annotations

import random

import numpy as np
import pytest

from pump.config.job import POLICIES as OFFERED
from pump.model.view import NOT_NEEDED, View
from pump.policy import POLICIES, by_name
from pump.policy.demand import Demand
from pump.policy.window import Window


def make_view(
    *,
    budget: int,
    missing: dict[int, int] | None = None,
    resident: dict[int, int] | None = None,
    arriving: int = 0,
    leaving: int = 0,
    last_use: dict[int, int] | None = None,
    **more: object,
) -> View:
    """`missing`: block -> operation that needs it; `resident`: block -> next use."""
    missing, resident = missing or {}, resident or {}
    order = sorted(missing, key=lambda block: missing[block])
    unused = last_use or {}
    eviction_candidates = np.array(
        sorted(resident, key=lambda block: (-resident[block], unused.get(block, 0))), np.int64
    )
    view = View(
        budget=budget,
        emulated=False,
        resident=len(resident),
        arriving=arriving,
        leaving=leaving,
        to_gpu_credit=32,
        to_host_credit=32,
        faults=0,
        live=1000,
        missing=np.array(order, np.int64),
        missing_room=np.arange(1, len(order) + 1),
        arrivals_need=np.array([missing[block] for block in order], np.int64),
        candidates_maybe_evicted=0,
        missing_need=np.array([missing[block] for block in order], np.int64),
        missing_more=0,
        shortfalls_need=np.zeros(0, np.int64),
        surplus=0,
        headroom=0,
        exchange=0,
        expected=0,
        streams=1,
        eviction_candidates=eviction_candidates,
        candidates_next_use=np.array(
            [resident[block] for block in eviction_candidates.tolist()], np.int64
        ),
        oldest=np.array(sorted(resident), np.int64),
        oldest_next_use=np.array([resident[block] for block in sorted(resident)], np.int64),
    )
    return view._replace(**more)  # type: ignore[arg-type]


def test_what_is_missing_comes_in_while_there_is_room() -> None:
    decision = Window().decide(make_view(budget=100, missing={7: 1, 3: 2, 9: 3}))
    assert decision.to_gpu.tolist() == [7, 3, 9]
    assert decision.to_host.tolist() == []


def test_nothing_comes_in_before_room_is_there() -> None:
    view = make_view(budget=2, missing={1: 1}, resident={2: 50, 3: 60})
    decision = Window().decide(view)
    assert decision.to_gpu.tolist() == []
    assert decision.to_host.tolist() == [3], "the block that is needed last makes room"


def test_a_block_that_has_to_leave_anyway_does_not_wait_for_the_newcomer() -> None:
    blocks = {block: 50 + block for block in range(10)}
    view = make_view(budget=20, resident=blocks, surplus=6)
    decision = Window().decide(view)
    assert decision.to_host.tolist() == [9, 8, 7, 6, 5, 4]
    assert decision.allowance == 10, "there is room, all the same"
    view = view._replace(leaving=2, to_host_credit=3)
    assert Window().decide(view).to_host.tolist() == [], "less than a slice waits for more"


def test_the_next_to_leave_are_decided_only_where_blocks_that_left_are_missing_last() -> None:
    """With several streams it may be the next to be missing, and find a victim no more."""
    missing, resident = {i: i for i in range(1, 9)}, {i: i for i in range(20, 28)}
    view = make_view(budget=8, missing=missing, resident=resident, to_host_credit=4)
    decision = Window().decide(view)
    assert decision.to_host.tolist() == [27, 26, 25, 24]
    assert decision.later.tolist() == [23, 22, 21, 20]
    decision = Window().decide(view._replace(streams=2))
    assert decision.to_host.tolist() == [27, 26, 25, 24]
    assert decision.later.tolist() == []


def test_blocks_that_have_to_leave_do_not_settle_which_leave_then() -> None:
    """Of those needed next to last nothing is known before those needed last have gone."""
    missing, resident = {i: i for i in range(1, 9)}, {20: 30, 21: 30, 22: 29, 23: 29}
    view = make_view(budget=60, missing=missing, resident=resident, arriving=32, surplus=2)
    decision = Window().decide(view._replace(to_gpu_credit=0))
    assert sorted(decision.to_host.tolist()) == [20, 21]
    assert not decision.settled


def test_a_block_needed_sooner_than_the_newcomer_never_leaves() -> None:
    view = make_view(budget=2, missing={1: 70}, resident={2: 50, 3: 60})
    decision = Window().decide(view)
    assert decision.to_host.tolist() == []
    assert decision.short_of_room


def test_blocks_of_one_operation_do_not_push_each_other_out() -> None:
    view = make_view(budget=2, missing={1: 5, 4: 5}, resident={2: 5, 3: 5})
    assert Window().decide(view).to_host.tolist() == []


def test_what_nothing_needs_leaves_first_and_the_longest_unused_of_it() -> None:
    view = make_view(
        budget=4,
        missing={1: 5, 2: 6},
        resident={10: 90, 11: NOT_NEEDED, 12: NOT_NEEDED, 13: 80},
        last_use={11: 4, 12: 3},
    )
    assert Window().decide(view).to_host.tolist() == [12, 11]


def test_room_that_is_about_to_come_free_is_counted() -> None:
    view = make_view(budget=4, missing={1: 1, 2: 2}, resident={3: 9, 4: 8}, leaving=2)
    assert Window().decide(view).to_host.tolist() == []


def test_an_overshoot_is_removed_even_when_nothing_is_missing() -> None:
    view = make_view(budget=2, resident={1: 10, 2: 20, 3: 30, 4: NOT_NEEDED})
    assert Window().decide(view).to_host.tolist() == [4, 3]


@pytest.mark.parametrize(("live", "leave"), [(99, 0), (100, 0), (102, 2), (103, 3), (200, 3)])
def test_no_more_is_kept_free_than_there_is_beyond_the_budget(live: int, leave: int) -> None:
    view = make_view(budget=100, live=live, resident=dict.fromkeys(range(100), NOT_NEEDED))
    assert len(Window().decide(view).to_host) == leave


def test_a_watermark_is_kept_free_of_what_nothing_needs() -> None:
    resident = dict.fromkeys(range(100), NOT_NEEDED)
    decision = Window().decide(make_view(budget=100, resident=resident))
    assert len(decision.to_host) == 3
    needed = dict.fromkeys(range(100), 7)
    assert len(Window().decide(make_view(budget=100, resident=needed)).to_host) == 0


def test_in_flight_bounds_are_kept() -> None:
    view = make_view(
        budget=40,
        missing={block: block for block in range(30)},
        resident=dict.fromkeys(range(100, 140), NOT_NEEDED),
        to_gpu_credit=5,
        to_host_credit=3,
    )
    decision = Window().decide(view)
    assert len(decision.to_gpu) <= 5 and len(decision.to_host) == 3


@pytest.mark.parametrize("seed", range(200))
def test_every_eviction_of_a_random_view_serves_something_needed_sooner(seed: int) -> None:
    random_ = random.Random(seed)
    budget = random_.randrange(1, 60)
    resident = {
        block: random_.choice((NOT_NEEDED, random_.randrange(1, 99)))
        for block in random_.sample(range(200), random_.randrange(0, budget + 5))
    }
    missing = {
        block: random_.randrange(1, 99)
        for block in random_.sample(range(200, 400), random_.randrange(0, 80))
    }
    view = make_view(
        budget=budget,
        missing=missing,
        resident=resident,
        arriving=random_.randrange(3),
        leaving=random_.randrange(3),
        to_gpu_credit=random_.randrange(33),
        to_host_credit=random_.randrange(33),
        missing_more=random_.choice((0, 50)),
    )
    decision = Window().decide(view)
    assert decision.to_gpu.tolist() == view.missing[: len(decision.to_gpu)].tolist()
    assert len(decision.to_gpu) <= max(0, view.free)
    assert len(decision.to_gpu) <= view.to_gpu_credit
    leaving = decision.to_host.tolist()
    assert len(set(leaving)) == len(leaving) <= view.to_host_credit
    assert set(leaving) <= set(resident)
    overshoot = max(0, -(view.free + view.leaving))
    homeless = view.missing_need[max(0, view.free + view.leaving) :].tolist()
    for index, block in enumerate(leaving[overshoot:]):
        soonest = homeless[index] if index < len(homeless) else NOT_NEEDED - 1
        assert resident[block] > soonest
    stays = [use for block, use in resident.items() if block not in leaving]
    if leaving and stays:
        assert min(resident[block] for block in leaving) >= max(stays), "needed last goes first"


def test_demand_leaves_an_unemulated_budget_to_the_driver() -> None:
    view = make_view(budget=2, missing={9: 1}, resident={1: 1, 2: 2, 3: 3})
    decision = Demand().decide(view)
    assert decision.to_gpu.tolist() == decision.to_host.tolist() == []


def test_demand_keeps_an_emulated_budget_in_the_order_of_migration() -> None:
    view = make_view(budget=2, missing={9: 1}, resident={5: 1, 6: 2, 7: 3, 8: 4})
    view = view._replace(emulated=True, oldest=np.array([6, 8, 7, 5]))
    decision = Demand().decide(view)
    assert decision.to_gpu.tolist() == []
    assert decision.to_host.tolist() == [6, 8]


def test_an_unknown_policy_is_answered_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="unknown policy 'windw'; known policies: demand, planned"):
        by_name("windw")
    assert sorted(POLICIES) == ["demand", "planned", "window"]


def test_a_block_in_doubt_is_asked_for_without_room_and_pushes_nothing_out() -> None:
    view = make_view(budget=2, missing={1: 3, 2: 4, 5: 9}, resident={1: 3, 2: 4})
    view = view._replace(
        missing_room=np.array([0, 0, 1]), arrivals_need=np.array([9]), candidates_maybe_evicted=2
    )
    decision = Window().decide(view)
    assert decision.to_gpu.tolist() == [1, 2]
    assert decision.to_host.tolist() == []


def test_the_policies_that_pump_run_offers_are_those_there_are() -> None:
    assert set(OFFERED) == set(POLICIES)


def test_no_block_is_sent_both_ways_by_one_decision() -> None:
    # Block 5 is in doubt and first of its stream; block 1, of another stream, is needed
    # sooner by number, and 5 is the one that makes way for it.
    view = make_view(budget=4, missing={1: 3}, resident={2: 4, 4: 5, 5: 90}, arriving=1)
    view = view._replace(
        missing=np.array([5, 1]),
        missing_need=np.array([90, 3]),
        missing_room=np.array([0, 1]),
        arrivals_need=np.array([3]),
        candidates_maybe_evicted=1,
    )
    decision = Window().decide(view)
    assert decision.to_host.tolist() == [5]
    assert decision.to_gpu.tolist() == []


def test_credit_that_comes_back_in_pieces_is_kept_until_a_slice_can_go() -> None:
    missing = dict.fromkeys(range(10), 5)
    view = make_view(budget=100, missing=missing, arriving=4, to_gpu_credit=3)
    assert Window().decide(view).to_gpu.tolist() == []
    assert len(Window().decide(view._replace(to_gpu_credit=4)).to_gpu) == 4
    assert len(Window().decide(view._replace(arriving=0)).to_gpu) == 3, "nothing else would come"
    few = make_view(budget=100, missing={1: 5, 2: 6}, arriving=4)
    assert few.to_gpu_credit == 32 and Window().decide(few).to_gpu.tolist() == [1, 2]


def test_room_is_made_by_whole_slices_while_some_is_being_made() -> None:
    resident = dict.fromkeys(range(100, 110), 90)
    view = make_view(budget=12, missing={1: 1, 2: 2, 3: 3, 4: 4}, resident=resident, leaving=2)
    assert Window().decide(view).to_host.tolist() == [], "two more would do, and two are leaving"
    assert len(Window().decide(view._replace(leaving=0, budget=10)).to_host) == 4


def test_room_that_is_left_when_all_is_on_its_way_may_be_taken_without_asking() -> None:
    idle = Window().decide(make_view(budget=50, resident=dict.fromkeys(range(10), 7)))
    assert idle.allowance == 40
    some = make_view(budget=50, missing={1: 5, 2: 6}, resident=dict.fromkeys(range(10, 20), 7))
    assert Window().decide(some).allowance == 38
    assert Window().decide(some._replace(to_gpu_credit=1)).allowance == 0
    assert Window().decide(some._replace(missing_more=1)).allowance == 0
    assert Demand().decide(some).allowance == 0
