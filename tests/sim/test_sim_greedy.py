"""G10's greedy schedule: what it moves, and that pump's executors carry it out."""

from __future__ import annotations

import json
from typing import Any

import pytest
from sim_programs import MS, cyclic, machine
from study import greedy
from study.studied_policies import by_name, simulate

from pump.model.bounds import BLOCK_BYTES
from pump.sim import tensors
from pump.sim.program import Program, ProgramError

WEIGHTS, BLOCKS = 8, 16


def weights(duration_us: int) -> Program:
    """Weights, each read by one kernel of the iteration, in turn."""
    raw: dict[str, Any] = {
        "model": "weights",
        "batch": 1,
        "tensors": [
            {"id": i, "bytes": BLOCKS * BLOCK_BYTES, "persistent": True} for i in range(WEIGHTS)
        ],
        "kernels": [
            {"name": "k", "duration_us": duration_us, "reads": [i], "writes": []}
            for i in range(WEIGHTS)
        ],
    }
    return tensors.program(tensors.parse(json.dumps(raw).encode(), "weights"), "unique", 4, 1.0)


def scheduled(program: Program, memory_blocks: int, gbps: float) -> list[greedy.Period]:
    found = greedy.iteration_of(program)
    return greedy.schedule(found, memory_blocks * BLOCK_BYTES, gbps, gbps)


def test_idle_times_reach_around_the_end_of_the_iteration() -> None:
    found = greedy.iteration_of(weights(1000))
    assert [(p.begin, p.end) for p in found.periods] == [(i, i + WEIGHTS) for i in range(WEIGHTS)]
    assert found.live_bytes.tolist() == [WEIGHTS * BLOCKS * BLOCK_BYTES] * WEIGHTS


def test_the_schedule_fits_the_memory_where_the_link_has_the_time_for_it() -> None:
    program, memory = weights(5000), 5 * BLOCKS
    live = greedy.iteration_of(program).live_bytes.copy()
    periods = scheduled(program, memory, 23.0)
    for period in periods:
        assert period.begin < period.leaves <= period.comes <= period.end
        greedy._add(live, period.leaves, period.comes, -period.length_bytes)
    assert periods
    assert live.max() <= memory * BLOCK_BYTES * greedy.LINE


def test_a_program_that_lets_nothing_rest_has_an_empty_schedule() -> None:
    tensor = {"id": 0, "bytes": 4 * BLOCK_BYTES, "persistent": True}
    kernel = {"name": "k", "duration_us": 10, "reads": [0], "writes": [0]}
    raw = {"model": "one", "batch": 1, "tensors": [tensor], "kernels": [kernel]}
    program = tensors.program(tensors.parse(json.dumps(raw).encode(), "one"))
    assert greedy.iteration_of(program).periods == []
    assert scheduled(program, 2, 23.0) == []


def test_nothing_is_scheduled_that_the_link_cannot_carry_and_nothing_that_need_not_go() -> None:
    program = weights(5000)
    assert scheduled(program, 5 * BLOCKS, 0.5) == []  # 32 MiB in 40 ms, both ways: not at 0.5 GB/s
    assert scheduled(program, (WEIGHTS + 1) * BLOCKS, 23.0) == []


def test_the_executors_carry_the_schedule_out_and_it_beats_the_driver_alone() -> None:
    program, gpu = weights(5000), machine(6 * BLOCKS)
    g10, naive = (simulate(by_name(name), program, gpu).steady for name in ("g10", "naive"))
    assert g10.seconds < 0.8 * naive.seconds
    assert g10.counters["fault_pages"] < naive.counters["fault_pages"] / 3
    assert g10.counters["prefetch_in_blocks"] > 0


def test_a_program_without_iterations_has_no_schedule() -> None:
    with pytest.raises(ProgramError, match="no iteration is known"):
        greedy.iteration_of(cyclic(2, 2, 2, MS))
