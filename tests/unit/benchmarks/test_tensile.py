"""TENSILE's plan for several jobs: one sequence, the largest tensor first, then recomputation."""

from __future__ import annotations

import json

import numpy as np
import pytest
from study import greedy
from study.papers import autoswap, tensile
from study.papers.tensile import Swapping

from pump_lab.sim import tensors
from pump_lab.sim.tensors import TensorTrace

MIB = 1 << 20
RATE = 10.0


def layers(depth: int, mib: int = 64, microseconds: int = 20000) -> TensorTrace:
    """Returns a trace: each activation is made from the one before, and read on the way back."""
    raw = {"model": f"layers{depth}", "batch": 1}
    sizes = [{"id": i, "bytes": mib * MIB, "persistent": i == 0} for i in range(depth + 1)]
    forth = [([i], [i + 1]) for i in range(depth)]
    back = [([i, 0], []) for i in range(depth, 0, -1)]
    kernels = [
        {"name": "k", "duration_us": microseconds, "reads": reads, "writes": writes}
        for reads, writes in forth + back
    ]
    return tensors.parse(json.dumps({**raw, "tensors": sizes, "kernels": kernels}).encode(), "t")


def swapping(trace: TensorTrace, gbps: float = RATE) -> Swapping:
    iteration = greedy.iteration_of(tensors.program(trace, "unique"))
    return tensile.of_trace(trace, iteration, gbps, gbps)


def test_jobs_side_by_side_are_one_sequence_with_all_kernels_and_the_sum_of_loads() -> None:
    one, other = swapping(layers(6)), swapping(layers(3))
    both = tensile.merged([one, other]).job
    assert both.seconds.sum() == pytest.approx(one.job.seconds.sum() + 2 * other.job.seconds.sum())
    assert len(both.sizes) == len(one.job.sizes) + 2 * len(other.job.sizes)
    assert both.live_bytes.max() <= one.job.live_bytes.max() + other.job.live_bytes.max()
    assert both.live_bytes.max() > one.job.live_bytes.max()
    assert (both.begins < both.ends).all()
    assert (both.ends - both.begins <= len(both.seconds)).all()
    # With all tensors away, only memory that kernels use is left.
    assert (both.without(list(range(len(both.sizes)))) >= -1).all()
    single = tensile.merged([one]).job
    assert np.allclose(single.live_bytes, one.job.live_bytes)
    assert (single.ends == one.job.ends).all()


def test_the_combined_peak_falls_to_the_limit_at_no_cost_where_the_link_is_idle() -> None:
    both = tensile.merged([swapping(layers(6)), swapping(layers(4, mib=32))])
    peak = float(both.job.live_bytes.max())
    plan = tensile.plan(both, 0.8 * peak)
    assert plan.peak_bytes <= 0.8 * peak
    assert not plan.remade
    assert plan.overhead < 0.01
    largest = both.job.sizes.max()
    assert both.job.sizes[plan.swapped[0]] == largest
    nothing = tensile.plan(both, peak)
    assert nothing[:3] == ([], [], peak)
    assert nothing.overhead == pytest.approx(0.0)


def test_what_the_link_cannot_carry_is_computed_again() -> None:
    slow = tensile.merged([swapping(layers(6), gbps=0.5)])
    peak = float(slow.job.live_bytes.max())
    assert not tensile.worthwhile(slow.job).all()
    plan = tensile.plan(slow, 0.7 * peak)
    assert plan.remade
    assert plan.peak_bytes < peak
    again = sum(slow.remake_s[one] for one in plan.remade)
    assert plan.overhead >= again / slow.job.seconds.sum() - 1e-9
    assert again == pytest.approx(0.02 * len(plan.remade))


def test_what_cannot_be_made_again_is_not_dropped() -> None:
    """The weight is older than the iteration; an activation is lost if its input is dead then."""
    trace = layers(3)
    found = swapping(trace)
    iteration = greedy.iteration_of(tensors.program(trace, "unique"))
    names = list(trace.tensors)
    for period, seconds in zip(iteration.periods, found.remake_s, strict=True):
        tensor = names[period.span[0]]
        if tensor == 0 or period.end >= len(trace.kernels):
            assert seconds == float("inf")
        else:
            assert seconds == pytest.approx(0.02)  # its input is read again later


def test_one_jobs_peak_falls_with_each_tensor_that_is_chosen() -> None:
    found = tensile.lowering(swapping(layers(8)).job)
    peaks = [1.0, *(peak for _, peak in found)]
    assert len(peaks) > 3
    assert peaks == sorted(peaks, reverse=True)
    assert all(0 < size < 1 for size, _ in found)


def test_largest_first_stops_at_the_limit_or_says_that_it_cannot() -> None:
    job = swapping(layers(8)).job
    peak = float(job.live_bytes.max())
    assert autoswap.largest_first(job, peak) == []
    taken = autoswap.largest_first(job, 0.7 * peak)
    assert taken
    assert job.without(taken).max() <= 0.7 * peak
    assert job.without(taken[:-1]).max() > 0.7 * peak
    assert autoswap.largest_first(job, 0.0) is None
