"""Swap or recompute: repeated kernels see their original inputs, and no choice beats the bound."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from exact import Machine
from harness import Row
from study.papers import recompute, remade
from study.papers.experiments import Bench
from study.papers.recompute import Drop, History
from suites import sim

from pump.model.bounds import BLOCK_BYTES
from pump_lab import profiles
from pump_lab.floor import Rates, Touch
from pump_lab.sim import program as form
from pump_lab.sim import tensors
from pump_lab.sim.tensors import TensorTrace

pytest.importorskip("scipy")

RATES = Rates(BLOCK_BYTES / 1e6, BLOCK_BYTES / 1e6, 1, 1, 0, 0, 1)
"""A block arrives in one millisecond, and leaves in one."""

Uses = tuple[list[int], list[int]]


def trace_of(
    kernels: Iterable[Uses], milliseconds: Iterable[int], lasting: Iterable[int] = (), mib: int = 2
) -> TensorTrace:
    """Returns a trace of tensors of equal size; each kernel has a name of its own."""
    every, weights = list(kernels), set(lasting)
    names = {one for uses in every for one in (*uses[0], *uses[1])}
    raw: dict[str, Any] = {"model": "made", "batch": 1}
    raw["tensors"] = [
        {"id": one, "bytes": mib << 20, "persistent": one in weights} for one in sorted(names)
    ]
    raw["kernels"] = [
        {"name": f"k{i}", "duration_us": 1000 * ms, "reads": reads, "writes": writes}
        for i, ((reads, writes), ms) in enumerate(zip(every, milliseconds, strict=True))
    ]
    return tensors.parse(json.dumps(raw).encode(), "made")


def forth_and_back(depth: int, first_ms: int = 1, mib: int = 2) -> TensorTrace:
    """Tensor 0 persists; each other one is made from its predecessor, and read on the way back."""
    forth: list[Uses] = [([i], [i + 1]) for i in range(depth)]
    back: list[Uses] = [([i], []) for i in range(depth, 0, -1)]
    return trace_of(forth + back, [first_ms] * depth + [1] * depth, [0], mib)


def any_trace(random: np.random.Generator, kernels: int = 7) -> TensorTrace:
    """Returns a random trace. Kernels may write in place or make two tensors; tensor 0 persists."""
    found: list[Uses] = [([0], [1])]
    while len(found) < kernels:
        known = 1 + max(one for _, writes in found for one in writes or [1])
        reads = random.choice(known, size=min(known, int(random.integers(1, 3))), replace=False)
        new = list(range(known, known + int(random.integers(0, 3))))
        inside = [int(reads[0])] if random.random() < 0.2 else []
        found.append(([int(one) for one in reads], (new if known < 5 else []) + inside))
    return trace_of(found, random.integers(0, 3, kernels).tolist(), [0])


def seen(trace: TensorTrace) -> list[tuple[Any, ...]]:
    """Returns the inputs of each kernel, as nested names of the kernels that made them."""
    holds: dict[int, Any] = {}
    found = []
    for kernel in trace.kernels:
        reads = tuple(holds.get(one, "before") for one, way in kernel.uses if way != form.OVERWRITE)
        found.append((kernel.signature, reads))
        for place, (one, way) in enumerate(kernel.uses):
            if way != form.READ:
                holds[one] = (kernel.signature, place, reads)
    return found


def some(random: np.random.Generator, history: History) -> set[Drop]:
    return {one.drop for one in history.candidates() if random.random() < 0.6}


def test_what_runs_again_and_what_needs_it_see_what_they_saw_without_drops() -> None:
    random = np.random.default_rng(3)
    again = 0
    for _ in range(300):
        trace = any_trace(random, 9)
        made, _ = recompute.remade(History(trace), some(random, History(trace)))
        assert set(seen(made)) == set(seen(trace))
        again += len(made.kernels) - len(trace.kernels)
        for name, one in made.tensors.items():
            uses = [n for n, kernel in enumerate(made.kernels) if name in dict(kernel.uses)]
            assert (one.first, one.last) == (uses[0], uses[-1])
    assert again > 100


def test_a_tensor_whose_maker_lacks_something_is_not_dropped() -> None:
    """Tensor 2 is made from 1, which changes before 2 is needed again."""
    trace = trace_of([([0], [1]), ([1], [2]), ([2], []), ([1], [1]), ([2], [])], [1] * 5, [0])
    drop = Drop(2, 2)
    assert drop in {one.drop for one in History(trace).candidates()}
    assert recompute.remade(History(trace), [drop]) == (trace, frozenset())


def test_makers_run_one_behind_the_other_up_to_a_depth() -> None:
    depth = recompute.DEPTH_MOST
    for chain in (depth, depth + 1):
        trace = forth_and_back(chain)
        # Each tensor is dropped once its successor has been made, the last one right after its
        # kernel.
        drops = {Drop(i, min(i, chain - 1)) for i in range(1, chain + 1)}
        made, kept = recompute.remade(History(trace), drops)
        assert len(made.kernels) - len(trace.kernels) == depth
        assert len(kept) == depth, "the first of a chain that is too long is kept"


def test_only_pure_kernels_run_again() -> None:
    """Kernels are not pure without input, in place, into a persistent tensor, or from a small
    tensor that an update changes."""
    raw: dict[str, Any] = {"model": "m", "batch": 1}
    raw["tensors"] = [
        {"id": i, "bytes": 1024 if i == 3 else 4 << 20, "persistent": i == 0} for i in range(6)
    ]
    kernels = [([], [1]), ([1], [1, 2]), ([1], [0]), ([3], [4]), ([1], [3]), ([3], [5])]
    raw["kernels"] = [
        {"name": "k", "duration_us": 1, "reads": reads, "writes": writes}
        for reads, writes in kernels
    ]
    trace = tensors.parse(json.dumps(raw).encode(), "m")
    assert [kernel.pure for kernel in trace.kernels] == [False] * 4 + [True] * 2
    assert not {1, 2, 4} & {one.drop.tensor for one in History(trace).candidates()}


def test_the_choice_is_never_slower_than_swaps_alone_and_the_same_twice() -> None:
    trace = forth_and_back(12, mib=32)
    history = History(trace)

    def chosen(extra: float) -> recompute.Choice:
        """Chooses, with each repeated kernel costing `extra` seconds and its tensor saving one."""
        return recompute.choose(
            history,
            lambda one: 100 + (extra - 1) * (len(one.kernels) - len(trace.kernels)),
            1.0,
            BLOCK_BYTES,
            trials_most=20,
        )

    dear, cheap = chosen(2), chosen(0)
    assert dear.seconds == dear.alone_s == 100
    assert cheap.seconds < 100
    assert chosen(0) == cheap
    assert max(dear.trials, cheap.trials) <= 20


# ---- the lower bound of the time -----------------------------------------------------------


def least_by_drops(trace: TensorTrace, blocks: int) -> dict[frozenset[Drop], int]:
    """Returns the milliseconds of the best schedule for each choice of drops, by full search."""
    history = History(trace)
    every = [one.drop for one in history.candidates()]
    tried = {
        recompute.remade(history, drops)[1]
        for count in range(len(every) + 1)
        for drops in combinations(every, count)
    }
    found = {}
    for drops in tried:
        made, _ = recompute.remade(history, drops)
        operations = []
        for kernel in made.kernels:
            ways = [
                tuple(one for one, access in kernel.uses if access == way)
                for way in (form.READ, form.WRITE, form.OVERWRITE)
            ]
            operations.append(Touch(*ways))
        steps = [kernel.duration_ns // 1_000_000 for kernel in made.kernels]
        found[drops] = Machine(operations, steps, blocks, both=True).least_round()
    return found


def test_no_choice_and_no_schedule_are_faster_than_the_bound() -> None:
    random = np.random.default_rng(5)
    close = gained = 0
    for _ in range(10):
        trace = any_trace(random, 6)
        if max(len(kernel.uses) for kernel in trace.kernels) > 3:
            continue
        for blocks in (3, 4):
            by_drops = least_by_drops(trace, blocks)
            least = min(by_drops.values())
            found = 1000 * recompute.bound(History(trace), blocks * BLOCK_BYTES, RATES)
            assert found <= least * 1.000001, (trace, blocks)
            close += found > 0.9 * least
            gained += least < by_drops[frozenset()]
    assert close > 2
    assert gained > 0


def test_the_bound_counts_what_is_cheaper_and_takes_both_ways_at_once() -> None:
    """Two of six tensors stay. Four leave and return, or are computed again. The bound is below the
    bound of swaps only if computing is cheaper, and equal to it if computing takes longer."""
    memory_bytes = 2 * BLOCK_BYTES
    for made_ms in (0, 20):
        trace = forth_and_back(6, made_ms)
        kernels = [replace(kernel, pure=False) for kernel in trace.kernels]
        swapped = History(replace(trace, kernels=kernels))
        alone = recompute.bound(swapped, memory_bytes, RATES)
        found = recompute.bound(History(trace), memory_bytes, RATES)
        if made_ms:
            assert found == pytest.approx(alone)
        else:
            assert found < 0.9 * alone


# ---- rows ----------------------------------------------------------------------------------


def test_rows_come_out_the_same_twice_between_swaps_alone_and_the_bound() -> None:
    profile = profiles.load(sim.PROFILE).changed(sim.STUDY)
    bench = Bench([forth_and_back(16, mib=64)], profile, whole=False)

    def rows() -> list[Row]:
        every = remade.experiments(bench, quick=True)
        return [row for one in every for row in one.rows("made by")]

    found = {row.name: row.value for row in rows()}
    assert found == {row.name: row.value for row in rows()}
    for ratio in (20, 40):
        name = f"papers.tensile.recompute_{ratio}"
        ours, bound = found[f"{name}.reproduction"], found[f"{name}.bound"]
        assert ours is not None
        assert bound is not None
        assert 1 <= ours <= bound * 1.001
