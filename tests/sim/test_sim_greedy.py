"""G10's schedule and AutoSwap's choices: their transfers, and how the executors carry them out."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import combinations
from typing import Any

import exact
import numpy as np
import pytest
from sim_programs import MS, cyclic, machine
from study import greedy
from study.papers import autoswap
from study.studied_policies import by_name, simulate

from pump.model.bounds import BLOCK_BYTES
from pump_lab.sim import tensors
from pump_lab.sim.host import Host
from pump_lab.sim.program import Program, ProgramError
from pump_lab.sim.touches import touches

WEIGHTS, BLOCKS = 8, 16


def weights(duration_us: int) -> Program:
    """Returns a program whose iteration reads weights in turn, each in one kernel."""
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
        greedy.add(live, period.leaves, period.comes, -period.length_bytes)
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
    assert scheduled(program, 5 * BLOCKS, 0.5) == []  # 32 MiB out and in within 40 ms need more
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


# ---- AutoSwap ------------------------------------------------------------

BLOCK_A_MS = BLOCK_BYTES / 1e6
"""The rate (10^9 bytes a second) that moves a block in a millisecond."""

Made = list[tuple[int, list[int]]]
"""For each tensor its blocks, and the 1 ms kernels that use it: the first kernel writes it."""


def made(tensors_used: Made, kernels: int) -> Program:
    """Returns the program, with one more block that all kernels use."""
    every = [(1, list(range(kernels))), *tensors_used]
    raw: dict[str, Any] = {"model": "small", "batch": 1}
    raw["tensors"] = [
        {"id": i, "bytes": blocks * BLOCK_BYTES, "persistent": i == 0}
        for i, (blocks, _) in enumerate(every)
    ]
    raw["kernels"] = [
        {
            "name": "k",
            "duration_us": 1000,
            "reads": [i for i, (_, used) in enumerate(every) if n in (used[1:] if i else used)],
            "writes": [i for i, (_, used) in enumerate(every) if i and n == used[0]],
        }
        for n in range(kernels)
    ]
    return tensors.program(tensors.parse(json.dumps(raw).encode(), "small"), "unique")


def job(program: Program, gbps: float = BLOCK_A_MS) -> autoswap.Job:
    return autoswap.job_of(greedy.iteration_of(program), gbps, gbps)


# A: 2 blocks, kernels 0 and 6. B: 1 block, kernels 1 and 5. C: 1 block, kernels 3 and 4.
SMALL: Made = [(2, [0, 6]), (1, [1, 5]), (1, [3, 4])]
LOAD = [3, 4, 4, 5, 5, 4, 3, 1]


def test_candidates_are_the_idle_times_across_the_highest_load() -> None:
    every = job(made([*SMALL, (1, [5, 7])], 8))
    assert (every.live_bytes / BLOCK_BYTES).tolist() == [3, 4, 4, 5, 5, 5, 4, 2]
    assert len(every.sizes) == 3
    found = every.straddling()
    assert list(zip(found.begins, found.ends, found.sizes / BLOCK_BYTES, strict=True)) == [
        (0, 6, 2),
        (1, 5, 1),
    ]


def test_the_scores_of_a_small_case_are_those_computed_by_hand() -> None:
    small = job(made(SMALL, 8)).straddling()
    assert (small.live_bytes / BLOCK_BYTES).tolist() == LOAD
    found = autoswap.scores(small, 3 * BLOCK_BYTES)
    # A is idle for 5 ms, of which its transfers take 4. B is idle for 3, of which they take 2.
    assert found["doa"] == pytest.approx([1 * 1e-3, 1 * 1e-3])
    assert found["aoa"] == pytest.approx([2 * 1e-3 * BLOCK_BYTES, 1 * 1e-3 * BLOCK_BYTES])
    # Kernels 1 to 5 exceed 3 blocks by 1, 1, 2, 2, 1. B is in use at both ends, in 1 and 5.
    assert found["wdoa"] == pytest.approx([7 * 1e-3 * BLOCK_BYTES, 5 * 1e-3 * BLOCK_BYTES])
    assert found["swdoa"] == pytest.approx(found["wdoa"])


def test_an_absence_that_is_shorter_than_its_transfers_counts_against_small_tensors() -> None:
    small = job(made(SMALL, 8), BLOCK_A_MS / 4).straddling()
    found = autoswap.scores(small, 3 * BLOCK_BYTES)
    assert found["doa"] == pytest.approx([(5 - 16) * 1e-3, (3 - 8) * 1e-3])
    assert found["aoa"] == pytest.approx([-11 * 1e-3 / (2 * BLOCK_BYTES), -5 * 1e-3 / BLOCK_BYTES])


def test_the_submodular_score_counts_only_what_earlier_choices_left() -> None:
    small = job(made(SMALL, 8)).straddling()
    left = small.without([0])
    assert (left / BLOCK_BYTES).tolist() == [3, 2, 2, 3, 3, 2, 3, 1]
    assert autoswap.scores(small, 3 * BLOCK_BYTES, left)["swdoa"].tolist() == [0, 0]
    left = small.without([1])
    found = autoswap.scores(small, 3 * BLOCK_BYTES, left)["swdoa"]
    assert found == pytest.approx([4 * 1e-3 * BLOCK_BYTES, 2 * 1e-3 * BLOCK_BYTES])


def test_a_choice_ends_where_the_load_is_below_the_limit_and_says_where_it_cannot() -> None:
    small = job(made(SMALL, 8)).straddling()
    pure = np.eye(4).tolist()
    for weights in pure[1:]:
        assert autoswap.choose(small, 3 * BLOCK_BYTES, weights) == [0]
    assert autoswap.choose(small, 5 * BLOCK_BYTES, pure[0]) == []
    assert autoswap.choose(small, 2 * BLOCK_BYTES, pure[0]) is None
    assert autoswap.largest_first(small, 3 * BLOCK_BYTES) == [0]


def test_tensile_goes_on_at_the_highest_load_that_is_left() -> None:
    # Only tensor B (kernels 0 and 4) is idle during the whole first peak of live memory, and only D
    # (kernels 5 and 9) during the whole second one.
    program = made([(2, [0, 4]), (1, [2, 3]), (1, [5, 9]), (2, [7, 8])], 10)
    every = job(program)
    assert (every.live_bytes / BLOCK_BYTES).tolist() == [3, 3, 4, 4, 3, 2, 2, 4, 4, 2]
    chosen = autoswap.largest_first(every, 3 * BLOCK_BYTES)
    assert chosen is not None
    assert [(int(every.begins[i]), int(every.ends[i])) for i in chosen] == [(0, 4), (5, 9)]
    assert autoswap.choose(every.straddling(), 3 * BLOCK_BYTES, [1, 0, 0, 0]) is None


@pytest.mark.parametrize(("chosen", "limit", "waits"), [([], 5, 0), ([1], 4, 1), ([0], 4, 1)])
def test_what_transfers_cost_is_what_was_worked_out_by_hand(
    chosen: list[int], limit: int, waits: int
) -> None:
    # If only B is evicted, it can return only after kernel 4, when there is space again, and kernel
    # 5 waits for it for 1 ms. If only A is evicted, it can also return only after kernel 4. Its two
    # blocks take 2 ms, so kernel 6 waits for the second block for 1 ms.
    small = job(made(SMALL, 8)).straddling()
    assert autoswap.overhead(small, chosen, limit * BLOCK_BYTES) == pytest.approx(waits / 8)


def test_a_limit_that_no_absence_reaches_has_no_end() -> None:
    every = job(made([(3, [0, 2]), (3, [1, 3])], 4))
    assert autoswap.overhead(every, [0, 1], 4 * BLOCK_BYTES) < 10
    assert autoswap.overhead(every, [0, 1], 3 * BLOCK_BYTES) == float("inf")


def small_programs(seed: int) -> tuple[Program, int]:
    random = np.random.default_rng(seed)
    kernels = int(random.integers(5, 8))
    used: Made = []
    for _ in range(int(random.integers(2, 5))):
        first, last = sorted(random.choice(kernels, 2, replace=False).tolist())
        used.append((1, [first, last]))
    return made(used, kernels), kernels


@pytest.mark.parametrize("seed", range(8))
def test_no_choice_is_faster_than_exhaustive_search_of_all_schedules(seed: int) -> None:
    program, kernels = small_programs(seed)
    every = job(program)
    steps = program.facts["steps_per_iteration"]
    operations = touches(program, len(program.steps) - steps)
    peak = int(every.live_bytes.max()) // BLOCK_BYTES
    for limit in range(2, peak + 1):
        gpu = exact.Machine(operations, [1] * kernels, limit, both=True)
        least = gpu.least_steps()
        for chosen in subsets(len(every.sizes)):
            if every.without(chosen).max() <= limit * BLOCK_BYTES:
                took = kernels * (1 + autoswap.overhead(every, chosen, limit * BLOCK_BYTES))
                assert took > least - 1e-6


@pytest.mark.parametrize("seed", range(8))
def test_the_search_reaches_what_the_best_of_all_choices_reaches(seed: int) -> None:
    program, _ = small_programs(seed)
    small = job(program).straddling()
    search = autoswap.Search(small, most=0.15)
    found = search.by_weights(100)

    def holds(share: float) -> bool:
        limit = share * float(small.live_bytes.max())
        return any(
            small.without(chosen).max() <= limit and autoswap.overhead(small, chosen, limit) <= 0.15
            for chosen in subsets(len(small.sizes))
        )

    assert found[autoswap.SEARCH] == min(found.values())
    assert found[autoswap.SEARCH] == pytest.approx(autoswap.bisected(holds))
    assert search.evaluations == 100


def subsets(count: int) -> list[list[int]]:
    places = range(count)
    return [list(some) for size in range(count + 1) for some in combinations(places, size)]


def test_a_search_finds_the_same_with_the_same_seed() -> None:
    small = job(made([*SMALL, (1, [2, 7]), (2, [0, 5])], 8)).straddling()
    first, second = (autoswap.Search(small, most=0.3).by_weights(80) for _ in range(2))
    assert first == second


def test_a_bisection_asks_for_whole_steps_only() -> None:
    asked: list[float] = []

    def holds(share: float) -> bool:
        asked.append(share)
        return share > 0.625

    assert autoswap.bisected(holds) == pytest.approx(0.63)
    assert asked == pytest.approx([0.5, 0.75, 0.62, 0.68, 0.65, 0.63])
    assert autoswap.bisected(lambda _: False) == 1


def test_the_executors_carry_autoswaps_transfers_out_and_beat_the_driver_alone() -> None:
    used: Made = [(8, [i, 23 - i]) for i in range(10)]
    program = made(used, 24)
    gpu = machine(64)
    naive = simulate(by_name("naive"), program, gpu).steady
    for name in ("autoswap-doa", "autoswap-search"):
        found = simulate(by_name(name), program, gpu).steady
        assert found.seconds < 0.9 * naive.seconds
        assert found.counters["prefetch_in_blocks"] > 0


# ---- flash -----------------------------------------------------------------------------------


def with_flash(host_blocks: int, gbps: float, memory_blocks: int = 5 * BLOCKS) -> list[bool]:
    """Returns, for each period of weights(), whether it bypasses the host, on a 23 GB/s link."""
    flash = greedy.Flash(host_blocks * BLOCK_BYTES, gbps, gbps, 0.0, 0.0)
    found = greedy.iteration_of(weights(5000))
    periods = greedy.schedule(found, memory_blocks * BLOCK_BYTES, 23.0, 23.0, flash)
    return [period.past_host for period in periods]


def test_a_period_goes_to_flash_where_it_is_long_enough_for_that() -> None:
    """32 MiB are idle for 35 ms; two and a half transfers take 28 ms at 3 GB/s."""
    for host_blocks in (0, 64 * BLOCKS):
        assert with_flash(host_blocks, 3.0) == [True, True], "flash has time for two periods"
    assert with_flash(64 * BLOCKS, 2.0) == [False] * (WEIGHTS - 1)


def test_what_is_too_short_for_flash_goes_as_far_as_the_host_has_room() -> None:
    assert with_flash(BLOCKS, 2.0) == [False]
    assert with_flash(0, 2.0) == []


def test_what_the_schedule_sends_past_the_host_is_written_to_flash() -> None:
    program = weights(5000)
    gpu = replace(machine(6 * BLOCKS), host=Host(64 * BLOCKS * BLOCK_BYTES, (3.2, 3.2)))
    counters = simulate(by_name("g10"), program, gpu).steady.counters
    assert counters["flash_write_bytes"] > 0, "written although the host has room for all"
    assert counters["flash_read_bytes"] > 0
