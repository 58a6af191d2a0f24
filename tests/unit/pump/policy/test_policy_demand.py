"""The names of policies, the policies that decide themselves, and the decisions of demand."""

from __future__ import annotations

import numpy as np
import pytest

from pump.config.job import POLICIES as OFFERED
from pump.model.view import NO_BLOCKS, NOT_NEEDED, View
from pump.policy import POLICIES, by_name
from pump.policy.base import Deciding
from pump.policy.demand import Demand


def make_view(*, emulated: bool, resident: int, arriving: int = 0, credit: int = 32) -> View:
    """Returns a view with a budget of two blocks; the oldest blocks are 6, 8, 7 and 5."""
    return View(
        budget=2,
        emulated=emulated,
        resident=resident,
        arriving=arriving,
        leaving=0,
        to_gpu_credit=32,
        to_host_credit=credit,
        faults=0,
        missing=np.array([9]),
        missing_need=np.array([1]),
        missing_room=np.array([1]),
        arrivals_need=np.array([1]),
        missing_more=0,
        expected=0,
        eviction_candidates=NO_BLOCKS,
        candidates_next_use=NO_BLOCKS,
        candidates_maybe_evicted=0,
        oldest=np.array([6, 8, 7, 5])[:resident],
        oldest_next_use=np.array([NOT_NEEDED] * 4)[:resident],
    )


def test_demand_leaves_an_unemulated_budget_to_the_driver() -> None:
    decision = Demand().decide(make_view(emulated=False, resident=4))
    assert decision.to_gpu.tolist() == decision.to_host.tolist() == []


def test_demand_keeps_an_emulated_budget_in_the_order_of_migration() -> None:
    decision = Demand().decide(make_view(emulated=True, resident=4))
    assert (decision.to_gpu.tolist(), decision.to_host.tolist()) == ([], [6, 8])
    decision = Demand().decide(make_view(emulated=True, resident=4, arriving=1))
    assert decision.to_host.tolist() == [6, 8, 7], "what arrives takes room"
    decision = Demand().decide(make_view(emulated=True, resident=4, credit=1))
    assert decision.to_host.tolist() == [6]
    assert Demand().decide(make_view(emulated=True, resident=2)).to_host.tolist() == []


def test_an_unknown_policy_is_answered_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="unknown policy 'windw'; known policies: demand, planned"):
        by_name("windw")
    assert sorted(POLICIES) == ["demand", "planned", "window"]


def test_the_policies_that_pump_run_offers_are_those_there_are() -> None:
    assert set(OFFERED) == set(POLICIES)


def test_demand_decides_and_the_worker_s_schedule_decides_for_the_others() -> None:
    chosen = {name: by_name(name) for name in POLICIES}
    assert [name for name in chosen if isinstance(chosen[name], Deciding)] == ["demand"]
    assert [name for name in chosen if chosen[name].predicts] == ["planned"]
    assert {name for name in chosen if chosen[name].prefetches} == {"planned", "window"}
