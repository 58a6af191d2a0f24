"""An upper bound for every way of sharing in the model of world.py: a linear program. Pure.

DESIGN
  Time is cut when jobs arrive, leave or grow. Within a part a job runs some iterations at each of
  its budgets: its curve's budgets, and the GPU's memory or the whole footprint. An iteration takes
  at least as long as without other jobs at that budget, and holds the budget for that time. In each
  part:

  1. A job's iterations take no more than the part's time.
  2. The kernels of all jobs take no more than that.
  3. Bytes to the GPU, to the host and both together are at most what the link carries. Arrivals for
     a job with free memory evict nothing: at most the GPU's memory, once in each part.
  4. The sum of budget x iteration time is at most the memory x the part's time.

  Over all parts, a job does no more work than without other jobs. It pauses as often as its
  iterations require: the convex hull of its pause time by iterations is a lower bound. The cost of
  moving memory when shares change is left out, so turns are free.

  The bound is the maximum of the weighted progress over all such numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
from study.jobs.mixes import Mix
from study.jobs.world import Job, Running

HULL_MOST: Final = 200
"""Number of a job's pauses that are considered."""


class Part(NamedTuple):
    """A part of the time, with its length in seconds."""

    begin: float
    seconds: float


class Choice(NamedTuple):
    """One job in one part at one budget. `work_s`: kernel time of an iteration. `time_s`: its least
    duration. `held_bytes`, `come_s`, `leave_s`: its memory, and its time on the link."""

    job: int
    part: int
    work_s: float
    time_s: float
    held_bytes: float
    come_s: float
    leave_s: float


def most(mix: Mix, least: Sequence[float] = ()) -> float:
    """Returns the bound of the mean progress. `least`: the least progress of each job. Raises
    ArithmeticError if the solver gives up, or if the jobs cannot all have `least`."""
    from scipy.optimize import linprog

    parts = parts_of(mix)
    every = list(choices(mix, parts))
    rows: list[np.ndarray[Any, Any]] = []
    limits: list[float] = []

    def at_most(values: Iterable[float], limit: float) -> None:
        rows.append(np.array(list(values)))
        limits.append(limit)

    link, memory = mix.card.link, mix.card.memory_bytes
    for k, part in enumerate(parts):
        inside = [float(one.part == k) for one in every]
        for j in range(len(mix.jobs)):
            at_most((i * (c.job == j) * c.time_s for i, c in zip(inside, every, strict=True)),
                    part.seconds)  # fmt: skip
        at_most((i * c.work_s for i, c in zip(inside, every, strict=True)), part.seconds)
        at_most((i * c.come_s for i, c in zip(inside, every, strict=True)), part.seconds)
        room_s = memory / link.leave
        at_most((i * c.leave_s for i, c in zip(inside, every, strict=True)),
                part.seconds + room_s)  # fmt: skip
        at_most((i * (c.come_s + c.leave_s) for i, c in zip(inside, every, strict=True)),
                link.both * part.seconds + room_s)  # fmt: skip
        at_most((i * c.time_s * c.held_bytes / memory for i, c in zip(inside, every, strict=True)),
                part.seconds)  # fmt: skip
    for j, job in enumerate(mix.jobs):
        there = min(job.leaves_s, mix.horizon_s) - job.arrives_s
        at_most(((c.job == j) * c.work_s for c in every), mix.alone_s[j])
        if least:
            at_most((-(c.job == j) * c.work_s for c in every), -least[j] * mix.alone_s[j])
        for slope, start in lines(mix, j):
            at_most(((c.job == j) * (c.time_s + slope) for c in every), there - start)
    whole = sum(job.weight for job in mix.jobs)
    gains = [mix.jobs[c.job].weight / whole * c.work_s / mix.alone_s[c.job] for c in every]
    found: Any = linprog([-gain for gain in gains], np.array(rows), limits, method="highs")
    if found.status != 0:
        raise ArithmeticError(f"no bound for {mix.name}: {found.message}")
    return float(-found.fun)


def parts_of(mix: Mix) -> list[Part]:
    """Returns the parts of time between changes that do not depend on the way of sharing."""
    times = {0.0, mix.horizon_s}
    for job in mix.jobs:
        times |= {job.arrives_s, job.leaves_s, *(at for at, _ in job.grows)}
    cuts = sorted(time for time in times if time <= mix.horizon_s)
    return [Part(begin, end - begin) for begin, end in pairwise(cuts)]


def choices(mix: Mix, parts: Sequence[Part]) -> Iterator[Choice]:
    """Yields each job in each part in which it is present, at each budget."""
    memory, link = mix.card.memory_bytes, mix.card.link
    for j, job in enumerate(mix.jobs):
        running = Running(j, job, mix.seed, memory)
        for k, part in enumerate(parts):
            if not job.arrives_s <= part.begin < job.leaves_s:
                continue
            for at, factor in job.grows:
                if at <= part.begin and factor > running.scale:
                    running.grow(factor)
            bytes_, work_s = running.footprint, running.seconds
            curve, largest = job.curve, min(1.0, memory / bytes_)
            for budget in {*(one for one in curve.budgets if one < largest), largest}:
                slow = curve.at(budget, job.compute).slow
                come, leave = least_bytes(job, budget)
                yield Choice(
                    j,
                    k,
                    work_s,
                    work_s * slow,
                    budget * bytes_,
                    come * bytes_ / link.come,
                    leave * bytes_ / link.leave,
                )


def least_bytes(job: Job, budget: float) -> tuple[float, float]:
    """Returns the least bytes to the GPU and to the host, whatever the job's shares are."""
    found = [job.curve.at(budget, rate) for rate in job.curve.rates]
    return min(one.come for one in found), min(one.leave for one in found)


def lines(mix: Mix, j: int) -> Iterator[tuple[float, float]]:
    """Yields slope and start of lines that bound a job's pauses, by its iterations, from below."""
    job = mix.jobs[j]
    if job.work == math.inf:
        return
    running = Running(j, job, mix.seed, mix.card.memory_bytes)
    points = [(0.0, 0.0), (running.left, 0.0)]
    for _ in range(HULL_MOST):
        iterations, paused_s = points[-1]
        paused_s += running.length(job.pause_s)
        points.append((iterations + running.length(job.work), paused_s))
        if paused_s > mix.horizon_s:
            break
    hull: list[tuple[float, float]] = []
    for point in points:
        while len(hull) > 1 and _slope(hull[-2], hull[-1]) >= _slope(hull[-1], point):
            hull.pop()
        hull.append(point)
    for first, second in pairwise(hull):
        slope = _slope(first, second)
        yield slope, first[1] - slope * first[0]


def _slope(first: tuple[float, float], second: tuple[float, float]) -> float:
    return (second[1] - first[1]) / max(1e-12, second[0] - first[0])
