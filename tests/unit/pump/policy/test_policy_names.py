"""The names of policies, and what the schedule may do under each."""

from __future__ import annotations

import pytest

from pump.config.checks import POLICIES as OFFERED
from pump.policy import POLICIES, by_name


def test_an_unknown_policy_is_answered_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="unknown policy 'windw'; known policies: demand, planned"):
        by_name("windw")
    assert sorted(POLICIES) == ["demand", "planned", "window"]


def test_the_policies_that_pump_run_offers_are_those_there_are() -> None:
    assert set(OFFERED) == set(POLICIES)


def test_demand_prefetches_nothing_and_only_planned_predicts() -> None:
    chosen = {name: by_name(name) for name in POLICIES}
    assert [name for name in chosen if chosen[name].predicts] == ["planned"]
    assert {name for name in chosen if chosen[name].prefetches} == {"planned", "window"}
