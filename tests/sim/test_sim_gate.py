"""Gates in the simulator: where they are set, what they wait for, and what they never do."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sim_programs import MS, machine, made, whole

from pump.policy.base import Policy
from pump.policy.planned import Planned
from pump.policy.window import Window
from pump.sim import program as form
from pump.sim.program import Builder, Program
from pump.sim.simulation import GATES, Outcome, run

BUFFERS, BLOCKS, ROUNDS = 24, 4, 8
WATCHDOG_S = 0.005


def program(*, waits: bool) -> Program:
    """Sweeps forth and back; waits for each of its launches, or for each round."""
    builder = Builder()
    for _ in range(ROUNDS):
        for index in (*range(BUFFERS), *reversed(range(BUFFERS))):
            use = [whole(index, BLOCKS)]
            builder.operation(
                form.KERNEL, use, duration_ns=MS // 10, host_ns=4000, signature=index + 1
            )
            if waits:
                builder.sync()
        builder.sync(mark=True)
    return made(builder, [BLOCKS] * BUFFERS)


def outcome(gate: str, policy: Policy, *, waits: bool = True) -> Outcome:
    there = machine(BUFFERS * BLOCKS * 2 // 3)
    return run(program(waits=waits), replace(there, gate=gate), policy)


def test_launches_wait_for_what_is_in_flight_and_no_longer() -> None:
    found = outcome("set", Planned())
    assert found.gates.count > 20 and found.gates.late == 0
    assert 0 < found.gates.seconds / found.gates.count < WATCHDOG_S
    assert found.operations == ROUNDS * 2 * BUFFERS


def test_what_nobody_opens_costs_five_milliseconds_each() -> None:
    never, left = outcome("never", Planned()), outcome("left", Planned())
    assert left.gates.late == left.gates.count > 5
    assert left.gates.seconds == pytest.approx(WATCHDOG_S * left.gates.count, rel=0.01)
    assert left.whole.seconds > never.whole.seconds


@pytest.mark.parametrize(
    ("gate", "policy", "waits"),
    [("never", Planned, True), ("set", Window, True), ("left", Window, False)],
)
def test_there_is_none_unasked_and_none_without_expectations(
    gate: str, policy: type[Window], waits: bool
) -> None:
    assert outcome(gate, policy(), waits=waits).gates.count == 0


@pytest.mark.parametrize("gate", GATES)
def test_the_same_program_takes_the_same_time_again(gate: str) -> None:
    assert outcome(gate, Planned()).stretches == outcome(gate, Planned()).stretches
