"""The comparison of `scripts/bench order`: mixes of sweeps, simulated, and measured rates."""

from __future__ import annotations

import pytest
from study.jobs import sweeps
from study.papers import several
from suites import order, shared

from pump_lab import profiles


def test_a_job_that_waits_for_its_memory_keeps_another_from_the_engine() -> None:
    """If the first job has most of the memory, the second waits for the link and for faults; with
    equal shares both do."""
    profile = profiles.load(shared.PROFILE).changed(sweeps.SETTINGS)
    curve, link = sweeps.curve(profile), several.link_of(profile)
    mix = sweeps.MIXES["equals"]
    ways = sweeps.sharings(mix)
    first = sweeps.simulated(mix, ways["first"], curve, link)
    assert first.progress == pytest.approx([0.5, 0.21], abs=0.03)
    assert sum(first.budgets) <= 0.9 * sweeps.CARD_BYTES
    equal = sweeps.simulated(mix, ways["equal"], curve, link)
    assert equal.progress == pytest.approx([0.29, 0.29], abs=0.03)
    assert sweeps.simulated(mix, ways["turns"], curve, link).budgets == [0, 0]


def test_ways_that_hardly_differ_may_come_in_any_order() -> None:
    simulated = {"a": 0.5, "b": 0.47, "c": 0.4}
    assert sweeps.disagreements(simulated, {"a": 0.4, "b": 0.41, "c": 0.3}) == (2, [])
    found = sweeps.disagreements(simulated, {"a": 0.3, "b": 0.41, "c": 0.3})
    assert found == (2, [("a", "c")])


def test_a_rate_is_of_whole_iterations_or_counts_waits() -> None:
    ends_s = [0.0, 1.0, 2.0, 3.0]
    assert order.whole_iterations(ends_s, 0.5, 9.5) == pytest.approx(1.0)
    assert order.in_all(ends_s, 0.5, 9.5) == pytest.approx(3 / 9)
    assert order.whole_iterations(ends_s, 8.5, 9.5) == 0.0
