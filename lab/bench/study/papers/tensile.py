"""TENSILE's plan for several jobs: their combined peak is lowered by its largest tensor. Pure.

After Zhang et al., "TENSILE" (arXiv:2105.13336). The jobs' iterations run side by side on one
engine. Each job repeats its iteration until all jobs take about as long. Kernels are ordered by the
progress of their job. So there is one sequence of kernels with one load and one link, and
AutoSwap's replay computes the cost of a plan (autoswap.py).

At the highest remaining combined load, the largest tensor is swapped whose idle time is longer than
both of its transfers. That repeats until the load is at most the limit. If it does not suffice, the
tensor that is cheapest to compute again for its bytes is dropped. The kernel that made it makes it
again before its next use. Its inputs are assumed to be in memory; they have to be alive and
unchanged then.

Left out: the original's estimates of kernel times before the first iteration. Here all times are
known. Planning again when jobs arrive and leave is in study/jobs/ways.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from study.greedy import Iteration, Numbers, add, prefix_sums
from study.papers import autoswap
from study.papers.autoswap import Job

from pump_lab.sim import program as form
from pump_lab.sim.tensors import TensorTrace

REPEATS_MOST: Final = 6
"""Most iterations of a short job during one of a long job."""


class Swapping(NamedTuple):
    """A job, and by idle time the seconds of the kernel that makes its tensor again; infinite if no
    kernel can."""

    job: Job
    remake_s: Numbers


class Plan(NamedTuple):
    """`swapped`, `remade`: idle times. `peak_bytes`: the highest remaining load. `overhead`: time /
    time without a plan, less 1."""

    swapped: list[int]
    remade: list[int]
    peak_bytes: float
    overhead: float


def of_trace(trace: TensorTrace, iteration: Iteration, in_gbps: float, out_gbps: float) -> Swapping:
    """Returns the job of a trace. `iteration`: the trace's, with one range for each tensor."""
    names = list(trace.tensors)
    seconds = [
        _remake_s(trace, names[one.span[0]], one.begin, one.end) for one in iteration.periods
    ]
    return Swapping(autoswap.job_of(iteration, in_gbps, out_gbps), np.array(seconds))


def _remake_s(trace: TensorTrace, tensor: int, begin: int, end: int) -> float:
    """Returns the seconds of the kernel that made the tensor's contents between two kernels.
    Returns infinity if that kernel cannot make them again before the second."""
    if trace.tensors[tensor].persistent or end >= len(trace.kernels):
        return float("inf")
    for maker in range(begin, -1, -1):
        access = dict(trace.kernels[maker].uses).get(tensor, form.READ)
        if access == form.WRITE:
            return float("inf")  # updated in place
        if access == form.OVERWRITE:
            break
    else:
        return float("inf")
    inputs = {one for one, way in trace.kernels[maker].uses if way == form.READ}
    for kernel in range(maker + 1, end):
        if any(one in inputs and way != form.READ for one, way in trace.kernels[kernel].uses):
            return float("inf")
    alive = all(
        trace.tensors[one].persistent or trace.tensors[one].first <= end <= trace.tensors[one].last
        for one in inputs
    )
    return trace.kernels[maker].duration_ns / 1e9 if alive else float("inf")


def merged(jobs: Sequence[Swapping]) -> Swapping:
    """Returns all jobs as one."""
    longest = max(float(one.job.seconds.sum()) for one in jobs)
    rows: list[tuple[float, int, int]] = []
    for number, (job, _) in enumerate(jobs):
        count = len(job.seconds)
        repeats = min(REPEATS_MOST, max(1, round(longest / float(job.seconds.sum()))))
        clock = prefix_sums(job.seconds)[:count] / float(job.seconds.sum())
        rows += (((turn + at) / repeats, number, turn * count + i)
                 for turn in range(repeats) for i, at in enumerate(clock.tolist()))  # fmt: skip
    rows.sort()
    seconds = np.zeros(len(rows))
    live = np.zeros(len(rows))
    parts = []
    for number, (job, remake_s) in enumerate(jobs):
        count = len(job.seconds)
        places = np.array([i for i, row in enumerate(rows) if row[1] == number])
        seconds[places] = job.seconds[np.arange(len(places)) % count]
        # Between its kernels, a job keeps the load of its last one.
        last = np.searchsorted(places, np.arange(len(rows)), side="right") - 1
        live += job.live_bytes[last % count]
        repeats = len(places) // count
        for turn in range(repeats):
            begins, ends = (line + turn * count for line in (job.begins, job.ends))
            around = places[ends % len(places)] + ends // len(places) * len(rows)
            parts.append((places[begins], around, job.sizes, remake_s))
    begins, ends, sizes, remakes = (np.concatenate(one) for one in zip(*parts, strict=True))
    first = jobs[0].job
    return Swapping(Job(seconds, live, begins, ends, sizes, first.in_gbps, first.out_gbps), remakes)


def plan(swapping: Swapping, limit: float) -> Plan:
    """Plans for a limit of the load in bytes; if it is out of reach, gets as near as possible."""
    job = swapping.job
    live = job.live_bytes.copy()
    swapped: list[int] = []
    if live.max() > limit:
        for one, left in autoswap.by_largest(job, worthwhile(job)):
            swapped.append(one)
            live = left
            if left.max() <= limit:
                break
    remade = _remade(swapping, swapped, live, limit)
    seconds = job.seconds.copy()
    loads = job.live_bytes.copy()
    for one in remade:
        seconds[job.ends[one] % len(seconds)] += swapping.remake_s[one]
        add(loads, job.begins[one] + 1, job.ends[one], -job.sizes[one])
    rest = Job(seconds, loads, job.begins, job.ends, job.sizes, job.in_gbps, job.out_gbps)
    peak = max(limit, float(live.max()))
    waits = autoswap.overhead(rest, swapped, peak)
    whole = (1 + waits) * float(seconds.sum()) / float(job.seconds.sum())
    return Plan(swapped, remade, float(live.max()), whole - 1)


def worthwhile(job: Job) -> NDArray[np.bool_]:
    """Returns the idle times that are longer than both transfers."""
    found: NDArray[np.bool_] = autoswap.scores(job, 0.0)["doa"] > 0
    return found


def _remade(swapping: Swapping, swapped: Sequence[int], live: Numbers, limit: float) -> list[int]:
    """Returns the idle times in which tensors are dropped. Changes the load."""
    job = swapping.job
    usable = np.isfinite(swapping.remake_s)
    usable[list(swapped)] = False
    taken: list[int] = []
    while live.max() > limit:
        found = np.flatnonzero(job.inside(int(live.argmax())) & usable)
        if not len(found):
            break
        worth = job.sizes[found] / np.maximum(swapping.remake_s[found], 1e-9)
        one = int(found[worth.argmax()])
        usable[one] = False
        taken.append(one)
        add(live, job.begins[one] + 1, job.ends[one], -job.sizes[one])
    return taken


def lowering(job: Job) -> list[tuple[float, float]]:
    """Returns how one job's peak can be lowered: the bytes of each chosen tensor, and the peak that
    it leaves, both in shares of the original peak. Includes only tensors that lower the peak."""
    whole = float(job.live_bytes.max())
    found: list[tuple[float, float]] = []
    for one, left in autoswap.by_largest(job, worthwhile(job)):
        peak = float(left.max()) / whole
        if peak < (found[-1][1] if found else 1.0):
            found.append((float(job.sizes[one]) / whole, peak))
    return found
