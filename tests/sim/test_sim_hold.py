"""A policy that says how long its decision holds is asked less often, and decides the same."""

from __future__ import annotations

import pytest
from sim_programs import DATA, MS, cyclic, machine

from pump import profiles
from pump.model.view import Decision, View
from pump.policy import by_name
from pump.policy.base import Policy
from pump.policy.window import Window
from pump.sim import tensors
from pump.sim.program import Program
from pump.sim.simulation import Machine, run


class Asked:
    """A policy, counting; `holds` False: it wants to be asked each time."""

    def __init__(self, policy: Policy, holds: bool) -> None:
        self.policy, self.holds = policy, holds
        self.name, self.prefetches = policy.name, policy.prefetches
        self.foresees = policy.foresees
        self.times = 0

    def decide(self, view: View) -> Decision:
        self.times += 1
        decision = self.policy.decide(view)
        return decision if self.holds else decision.for_once()


def transformer(discard: bool) -> Program:
    name = "vit_b256_marginal.json.xz"
    trace = tensors.parse((DATA / name).read_bytes(), name)
    return tensors.program(trace, "caching", 2, discard=discard)


@pytest.mark.parametrize("name", ["window", "planned"])
@pytest.mark.parametrize(("discard", "most"), [(False, 0.3), (True, 0.52)])
def test_what_moves_when_is_the_same_as_if_asked_each_time(
    name: str, discard: bool, most: float
) -> None:
    """With discards room comes by itself: then most ticks only send for the next slice."""
    program = transformer(discard)
    gpu = Machine(profiles.load("a100-pcie4"), program.peak_bytes // 2)
    holding, asking = Asked(by_name(name), True), Asked(by_name(name), False)
    held, asked = run(program, gpu, holding), run(program, gpu, asking)
    assert held.whole == asked.whole
    assert held.tally == asked.tally
    assert held.ticks == asked.ticks == asking.times
    assert holding.times < most * asking.times


def test_a_sweep_is_the_same_too() -> None:
    program = cyclic(12, 16, 8, 3 * MS)
    runs = [run(program, machine(128), Asked(Window(), holds)) for holds in (True, False)]
    assert runs[0].whole == runs[1].whole
