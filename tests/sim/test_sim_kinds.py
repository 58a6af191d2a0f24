"""The planned policy on trainings with different steps, compared with window and demand paging."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from study import sim_kinds
from study.sim_kinds import PROGRAMS, dissolving, lengths

from pump.policy.base import Policy
from pump.policy.scheduled import Planned, Window
from pump_lab import profiles
from pump_lab.sim.program import KERNEL, READ, Program
from pump_lab.sim.simulation import Daemon, Foresight, Machine, run

STEPS = 24
STEADY = 16
"""From this step on the times are steady: each kind of step has occurred several times."""


def small(program: Program, ratio: float, queue: int) -> Machine:
    return Machine(profiles.load("a100-pcie4"), int(program.peak_bytes / ratio), queue)


def seconds(program: Program, policy: Policy | None, ratio: float, queue: int) -> list[float]:
    return [one.seconds for one in run(program, small(program, ratio, queue), policy).stretches]


def named(make: object) -> str:
    return str(getattr(make, "__name__", make))


@pytest.mark.parametrize(("ratio", "queue"), [(1.5, 1024), (2.5, 50)])
@pytest.mark.parametrize("make", PROGRAMS, ids=named)
def test_it_is_never_slower_than_the_window_and_knows_what_comes(
    make: sim_kinds.Make, ratio: float, queue: int
) -> None:
    program = make(STEPS)
    learned = run(program, small(program, ratio, queue), Planned())
    planned = [one.seconds for one in learned.stretches]
    window, demand = (seconds(program, policy, ratio, queue) for policy in (Window(), None))
    assert sum(planned) <= sum(window) / 0.98
    steady = sum(window[STEADY:]) / sum(planned[STEADY:])
    assert steady >= 0.98
    if queue < 100:  # the launch queue holds less than a step
        assert steady >= 1.015, "what the window does not see is worth so much"
    assert all(mine <= 1.05 * theirs for mine, theirs in zip(planned, demand, strict=True))
    assert learned.predicted is not None
    assert learned.predicted.confidence >= 0.95
    # Tensors of `wandering` move in each step, so most expected operations use other blocks.
    share = learned.predicted.operations / learned.operations
    assert share >= (0.3 if make is sim_kinds.wandering else 0.75)


def endless(aside: int) -> Program:
    """Returns steps without waits. Before the third one, a second stream gets short operations."""
    training = sim_kinds.Training()
    for step in range(STEPS):
        for _ in range(aside if step == 2 else 0):
            uses = [(0, 0, 1 << 20, READ)]
            training.builder.operation(KERNEL, uses, duration_ns=20000, host_ns=8000, stream=1)
        training.forth()
        training.back()
        training.update()
    training.end()
    return training.program("endless", streams=2)


@pytest.mark.parametrize("policy", [Window, Planned])
def test_a_stream_that_is_used_once_costs_nothing_later(policy: type[Policy]) -> None:
    """Its newest operations have no marker, so their end is never reported."""
    without, once = (sum(seconds(endless(count), policy(), 1.5, 1024)) for count in (0, 3))
    assert once < 1.02 * without


@pytest.mark.parametrize("seed", range(3))
def test_lengths_at_random_are_told_by_their_first_launches(seed: int) -> None:
    """A wrong guess of the next length costs less than a step."""
    program = lengths(STEPS, seed)
    for ratio, queue in ((1.5, 1024), (2.0, 50)):
        planned, window = (
            seconds(program, policy, ratio, queue) for policy in (Planned(), Window())
        )
        assert sum(planned) <= sum(window) / 0.98
        assert max(mine / theirs for mine, theirs in zip(planned, window, strict=True)) <= 1.12


@pytest.mark.parametrize("make", [one for one in PROGRAMS if one is not lengths], ids=named)
def test_in_the_end_it_is_as_fast_as_with_the_true_future(make: sim_kinds.Make) -> None:
    program = make(STEPS)
    true = Foresight(6 * sim_kinds.LAYERS, expects=True)

    for tick_us in (26, 30, 34):
        gpu = replace(small(program, 2.5, 50), daemon=Daemon(tick_us=tick_us))
        planned, oracle = (
            sum(
                one.seconds
                for one in run(program, gpu, Planned(), foresight=known).stretches[STEADY:]
            )
            for known in (None, true)
        )
        assert planned <= 1.03 * oracle


def test_a_launch_each_few_steps_costs_the_steps_between_nothing() -> None:
    """The steps between stay fast even before the policy knows in which steps the launch comes."""
    found, same = (
        seconds(make(STEPS), Planned(), 2.5, 50) for make in (sim_kinds.clipping, sim_kinds.same)
    )
    for step in range(4, STEPS):
        if step % 4 != 3:
            assert found[step] <= 1.05 * same[step], (step, found, same)


def test_what_is_not_true_any_more_is_forgotten() -> None:
    program = dissolving(STEPS)
    before, after = (
        run(part, small(part, 2.0, 50), Planned()).predicted
        for part in (begun(program, STEPS // 3), program)
    )
    assert before is not None and before.confidence >= 0.95
    assert after is not None and after.confidence < 0.05
    planned, window = (seconds(program, policy, 2.0, 50) for policy in (Planned(), Window()))
    over = STEPS // 3 + 1
    assert sum(planned[over:]) <= sum(window[over:]) / 0.98


def begun(program: Program, count: int) -> Program:
    """Returns the first `count` steps of a training, which end at marks."""
    end = int(np.flatnonzero(program.steps["mark"])[count - 1]) + 1
    return replace(program, steps=program.steps[:end])
