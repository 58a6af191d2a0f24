"""Plans in the simulator: what a worker that is stopped now and then costs with them."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from sim_programs import DATA, MS, machine, made, whole

from pump import profiles
from pump.policy.planned import Planned
from pump.policy.window import Window
from pump.sim import program as form
from pump.sim import tensors
from pump.sim.program import Builder, Program
from pump.sim.simulation import Daemon, Machine, Outcome, run

WITHOUT = Daemon(plans=False)


@pytest.fixture(scope="module")
def transformer() -> tuple[Program, Machine]:
    file = DATA / "vit_b256_marginal.json.xz"
    trace = tensors.parse(file.read_bytes(), file.name)
    program = tensors.program(trace, "caching", 4, discard=True)
    return program, Machine(profiles.load("a100-pcie4"), program.peak_bytes // 2)


def done(transformer: tuple[Program, Machine], daemon: Daemon) -> Outcome:
    program, gpu = transformer
    return run(program, replace(gpu, daemon=daemon), Planned())


def test_a_worker_that_is_stopped_a_quarter_of_the_time_is_hardly_missed(
    transformer: tuple[Program, Machine],
) -> None:
    """In the mean of five periods and three times of a tick: an iteration takes about as long as
    three stops of one of them, so where in it they fall is the same each time, and luck."""
    ratios = []
    for every_ms, tick_us in product((160, 180, 200, 220, 240), (26, 30, 34)):
        sound = done(transformer, replace(WITHOUT, tick_us=tick_us)).steady.seconds
        stopped = Daemon(stop_every_ms=every_ms, stop_ms=every_ms / 4, tick_us=tick_us)
        without = done(transformer, replace(stopped, plans=False))
        planned = done(transformer, stopped)
        assert without.planned_bytes == 0 and planned.planned_bytes > 0
        assert without.steady.seconds > 1.20 * sound
        ratios.append(planned.steady.seconds / sound)
    assert max(ratios) < 1.20
    assert sum(ratios) / len(ratios) < 1.10


def test_plans_cost_nothing_while_the_worker_runs(transformer: tuple[Program, Machine]) -> None:
    without, planned = (done(transformer, daemon) for daemon in (WITHOUT, Daemon()))
    assert planned.planned_bytes > 0
    assert planned.steady.seconds < 1.02 * without.steady.seconds
    assert planned.steady.h2d_bytes < 1.01 * without.steady.h2d_bytes


def test_a_plan_is_used_up_by_half_before_another_one_is_made(
    transformer: tuple[Program, Machine],
) -> None:
    """Though the worker sends something itself about once an operation, each way."""
    outcome = done(transformer, Daemon())
    moved = outcome.whole.h2d_bytes + outcome.whole.d2h_bytes
    assert moved / outcome.operations > 8 << 20
    assert outcome.plans < outcome.operations / 3


def test_nothing_is_planned_for_a_policy_that_predicts_nothing(
    transformer: tuple[Program, Machine],
) -> None:
    program, gpu = transformer
    assert run(program, gpu, Window()).planned_bytes == 0


def sweeps(buffers: list[int]) -> Program:
    """Forth and back over so many of 24 buffers, in each round; names by buffer."""
    builder = Builder()
    for count in buffers:
        for index in (*range(count), *reversed(range(count))):
            use = [whole(index, 16)]
            builder.operation(
                form.KERNEL, use, duration_ns=2 * MS, host_ns=4000, signature=1 + index
            )
        builder.sync(mark=True)
    return made(builder, [16] * 24)


def test_something_else_than_was_predicted_ends_the_plan_that_is_in_force() -> None:
    small = machine(24 * 16 * 2 // 3, 8)
    steady, changed = (
        run(sweeps(rounds), small, Planned()) for rounds in ([24] * 6, [24] * 5 + [20])
    )
    assert changed.plans_dropped > steady.plans_dropped
