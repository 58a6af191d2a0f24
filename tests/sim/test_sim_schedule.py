"""The guarantees of the worker's schedule: it lasts while the worker does not run, and it serves
every program."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from sim_programs import DATA, MS, machine, made, made_up, whole

from pump.model.client import TO_GPU
from pump.policy import by_name
from pump.policy.scheduled import Planned, Window
from pump_lab import profiles
from pump_lab.sim import program as form
from pump_lab.sim import tensors
from pump_lab.sim.program import Builder, Program
from pump_lab.sim.simulation import Daemon, Machine, Outcome, run

POLICIES = "window", "planned"


@pytest.fixture(scope="module")
def transformer() -> tuple[Program, Machine]:
    file = DATA / "vit_b256_marginal.json.xz"
    trace = tensors.parse(file.read_bytes(), file.name)
    program = tensors.program(trace, "caching", 4, discard=True)
    return program, Machine(profiles.load("a100-pcie4"), program.peak_bytes // 2)


def slower(program: Program, gpu: Machine, policy: str, stopped: Daemon) -> float:
    """Returns the run's time under `stopped`, relative to a worker that is never stopped."""
    running = replace(stopped, stop_every_ms=0, stop_ms=0)
    late, sound = (
        run(program, replace(gpu, daemon=daemon), by_name(policy)).whole.seconds
        for daemon in (stopped, running)
    )
    return late / sound


# ---- a worker that is stopped ----------------------------------------------------------


@pytest.mark.parametrize("policy", POLICIES)
def test_a_worker_that_is_stopped_a_quarter_of_the_time_is_hardly_missed(
    transformer: tuple[Program, Machine], policy: str
) -> None:
    """The test averages five periods and three tick durations. With only one, the stops fall on
    the same points of each iteration, and the result depends on these points."""
    program, gpu = transformer
    sound = run(program, gpu, by_name(policy)).steady.seconds
    ratios = []
    for every_ms, tick_us in product((160, 180, 200, 220, 240), (26, 30, 34)):
        stopped = Daemon(stop_every_ms=every_ms, stop_ms=every_ms / 4, tick_us=tick_us)
        found = run(program, replace(gpu, daemon=stopped), by_name(policy))
        ratios.append(found.steady.seconds / sound)
    assert max(ratios) < 1.25
    assert sum(ratios) / len(ratios) < 1.13


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("queue", [50, 1024])
@pytest.mark.parametrize("ratio", [1.5, 2.0, 4.0])
@pytest.mark.parametrize("name", ["bert_base_b128_marginal", "vit_b256_marginal"])
def test_a_worker_that_is_stopped_for_50_of_each_200_ms_costs_a_sixth_at_most(
    name: str, ratio: float, queue: int, policy: str
) -> None:
    """The test averages three periods of about 200 ms."""
    file = DATA / f"{name}.json.xz"
    trace = tensors.parse(file.read_bytes(), file.name)
    program = tensors.program(trace, "caching", 4, discard=True)
    gpu = Machine(profiles.load("a100-pcie4"), int(program.peak_bytes / ratio), queue)
    running, *stopped = (
        run(program, replace(gpu, daemon=daemon), by_name(policy)).steady.seconds
        for daemon in (Daemon(), *(Daemon(stop_every_ms=ms, stop_ms=50) for ms in (190, 200, 210)))
    )
    assert sum(stopped) / len(stopped) <= 1.17 * running


def without_waits(program: Program) -> Program:
    """Removes all waits but the first and the last, so that launches are issued without a stop."""
    waits = np.flatnonzero(program.steps["kind"] == form.SYNC)
    kept = np.ones(len(program.steps), np.bool_)
    kept[waits[1:-1]] = False
    return replace(program, steps=program.steps[kept])


def test_a_stopped_worker_costs_the_window_no_more_than_planned_where_enough_is_issued(
    transformer: tuple[Program, Machine],
) -> None:
    """1,024 launches are about 300 ms of work, and each stop takes 50 ms."""
    program = without_waits(transformer[0])
    ratios: dict[str, list[float]] = {policy: [] for policy in POLICIES}
    for ratio, every_ms, tick_us in product((1.5, 2.0, 4.0), (180, 200, 220), (26, 34)):
        gpu = replace(transformer[1], memory_bytes=int(program.peak_bytes / ratio))
        stopped = Daemon(stop_every_ms=every_ms, stop_ms=50, tick_us=tick_us)
        for policy in POLICIES:
            ratios[policy].append(slower(program, gpu, policy, stopped))
    window, planned = (float(np.mean(ratios[policy])) for policy in POLICIES)
    assert window <= 1.02 * planned
    assert window <= 1.06


BUFFERS, BLOCKS = 20, 16


def sweep(late: int | None) -> Program:
    """Returns 60 launches of 10 ms at once over 20 buffers, and one more on `late` 385 ms later."""
    builder = Builder()
    for number in range(60):
        use = [whole(number % BUFFERS, BLOCKS)]
        builder.operation(form.KERNEL, use, duration_ns=10 * MS, host_ns=4000)
    uses = [] if late is None else [whole(late, BLOCKS)]
    builder.operation(form.KERNEL, uses, duration_ns=MS, host_ns=385 * MS)
    return made(builder, [BLOCKS] * BUFFERS)


def moved_behind(outcome: Outcome, step: int, way: int) -> int:
    """Counts the blocks whose transfer began once that step ran."""
    found = outcome.transfers
    return int(found["blocks"][(found["direction"] == way) & (found["run"] >= step)].sum())


def test_a_departure_that_is_refused_stops_no_arrivals_while_the_worker_is_stopped() -> None:
    """The worker stops permanently at 380 ms, with a schedule of the launches that it has read.
    Launches issued later use a buffer that is to leave: it stays, and arrivals continue."""
    gone = Daemon(stop_every_ms=100_000, stop_ms=100_000 - 380)
    gpu = replace(machine(BUFFERS * BLOCKS // 2), daemon=gone, transfers_most=10_000)
    thirtieth = int(np.flatnonzero(sweep(None).steps["seq"])[30])
    usual = run(sweep(None), gpu, Window())
    arrivals = moved_behind(usual, thirtieth, TO_GPU)
    assert arrivals >= 7 * BLOCKS and usual.refused["stale"] == 0
    refused = 0
    for late in range(BUFFERS):
        found = run(sweep(late), gpu, Window())
        if found.refused["stale"] == 0:
            continue
        refused += 1
        assert moved_behind(found, thirtieth, TO_GPU) >= arrivals - BLOCKS
        assert found.whole.seconds < 1.08 * usual.whole.seconds
    assert refused >= 5


# ---- renewed -------------------------------------------------------------------------


@pytest.mark.parametrize("policy", POLICIES)
def test_all_that_moves_is_in_schedules_that_serve_several_operations(
    transformer: tuple[Program, Machine], policy: str
) -> None:
    program, gpu = transformer
    outcome = run(program, gpu, by_name(policy))
    moved = outcome.whole.h2d_bytes + outcome.whole.d2h_bytes
    assert moved / outcome.operations > 8 << 20
    assert outcome.schedules < outcome.operations / 3


def sweeps(counts: list[int]) -> Program:
    """Returns a sweep, forth and back, over the first n of 24 buffers for each n of `counts`. Each
    buffer has its own launch signature."""
    builder = Builder()
    for count in counts:
        for index in (*range(count), *reversed(range(count))):
            use = [whole(index, 16)]
            builder.operation(
                form.KERNEL, use, duration_ns=2 * MS, host_ns=4000, signature=1 + index
            )
        builder.sync(mark=True)
    return made(builder, [16] * 24)


def test_something_else_than_was_predicted_ends_the_schedule_that_is_in_force() -> None:
    small = machine(24 * 16 * 2 // 3, 8)
    steady, changed = (
        run(sweeps(rounds), small, Planned()) for rounds in ([24] * 6, [24] * 5 + [20])
    )
    assert changed.schedules_dropped > steady.schedules_dropped
    assert run(sweeps([24] * 5 + [20]), small, Window()).schedules_dropped == 0


# ---- whatever programs do --------------------------------------------------------------

SEEDS = [*((seed, 1) for seed in range(12)), (29, 1), (86, 1), (589, 1), (114, 12)]
"""The last four have operations larger than the memory, several streams, or many blocks."""


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("share", [None, 0.8, 0.5], ids=["all", "emulated 0.8", "emulated 0.5"])
def test_random_programs_run_to_their_end_no_slower_than_under_demand(
    share: float | None, policy: str
) -> None:
    """Operations use one to three streams, with discards; the driver enforces no budget."""
    streams = set()
    for seed, scale in SEEDS:
        program, gpu = made_up(seed, scale)
        budget_bytes = None if share is None else int(gpu.memory_bytes * share)
        found, demand = (
            run(program, gpu, by_name(name), budget_bytes=budget_bytes)
            for name in (policy, "demand")
        )
        assert found.operations == demand.operations == program.operations
        assert found.whole.seconds <= demand.whole.seconds
        streams.add(program.streams)
    assert streams == {1, 2, 3}


@pytest.mark.parametrize("policy", POLICIES)
def test_an_emulated_budget_is_kept(policy: str) -> None:
    """The budget is kept within a tenth: blocks in flight and faults come on top."""
    for seed, share in product(range(12), (0.8, 0.5)):
        program, gpu = made_up(seed)
        budget_bytes = int(gpu.memory_bytes * share)
        found = run(program, gpu, by_name(policy), budget_bytes=budget_bytes)
        assert found.believed_resident_blocks * 2**21 <= 1.1 * budget_bytes, (seed, share)
