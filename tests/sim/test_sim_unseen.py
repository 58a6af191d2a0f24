"""Generated networks on which planned must not be slower than the window."""

from __future__ import annotations

import pytest
from study import sim_unseen
from study.studied_policies import by_name, simulate

from pump_lab import profiles
from pump_lab.sim import tensors
from pump_lab.sim.simulation import Machine, Outcome, Queues

PROFILE = profiles.load("a100-pcie4")


def both(
    seed: int, oversubscription: float, family: str = "giant", queues: Queues | None = None
) -> tuple[Outcome, Outcome]:
    """Simulates four iterations of a generated network under window and planned, with discards."""
    trace = sim_unseen.traces(family, seed + 1)[seed]
    program = tensors.program(trace, "caching", 4, discard=True)
    machine = Machine(
        PROFILE, int(program.peak_bytes / oversubscription), queues=queues or Queues()
    )
    window, planned = (
        simulate(by_name(name), program, machine) for name in ("window+discard", "planned+discard")
    )
    return window, planned


@pytest.mark.parametrize(
    ("seed", "oversubscription"),
    [(3, 2.0), pytest.param(0, 1.1, id="not all told"), pytest.param(5, 1.5, id="half told")],
)
def test_planned_is_as_fast_as_the_window_behind_a_giant(
    seed: int, oversubscription: float
) -> None:
    window, planned = both(seed, oversubscription)
    assert planned.stretches[2].seconds <= window.stretches[2].seconds / 0.98


def test_what_a_giant_reaches_late_does_not_leave_before_that() -> None:
    """While the giant kernel runs, the driver evicts in the order of migration, so its blocks must
    arrive in the order in which it reaches them."""
    for outcome in both(3, 2.0):
        assert outcome.stretches[2].counters["fault_blocks"] < 4700


def test_what_operands_that_were_not_told_have_displaced_is_not_believed_to_be_there() -> None:
    window, _ = both(4, 1.5)
    assert window.stretches[2].counters["fault_blocks"] < 28000


def test_planned_does_not_hold_back_what_the_gpu_then_waits_for() -> None:
    """Mixtures of experts discard much memory at once, late; the link must not be idle until then.
    The ratio varies by 1 % with the number of lanes, so the test averages five numbers."""
    ratios = []
    for lanes in (6, 7, 8, 9, 10):
        window, planned = both(3, 1.5, "experts", Queues(to_gpu=lanes))
        ratios.append(window.stretches[2].seconds / planned.stretches[2].seconds)
    assert sum(ratios) / len(ratios) >= 0.99, ratios
    assert min(ratios) >= 0.985, ratios
