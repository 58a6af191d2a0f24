"""What no way of sharing can pass in the model of world.py: a linear program. Pure.

DESIGN
  Time is cut where jobs come, go or grow. Within a part a job does so many iterations at each of
  its budgets (its curve's, and the GPU's memory if it is larger than that). An iteration takes at
  least its time alone with that budget, and holds the budget as long. In each part

  1. a job's iterations take no more than the part's time;
  2. kernels of all jobs take no more than that;
  3. bytes to the GPU, to the host and both together take no more of the link than it carries. What
     comes to a job that has room need not make way: at most the GPU's memory, once a part;
  4. budgets times times are no more than the memory times the part's time.

  Over all parts a job does no more than alone, and it pauses as often as its iterations say: the
  time that it needs is at least the convex hull of the pauses behind so many iterations. What it
  costs to move memory when shares change is left out, so turns are for free.

  The most of the weighted progress over all such numbers is the bound.
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
"""Pauses of a job that are looked at."""


class Part(NamedTuple):
    """seconds: of time."""

    begin: float
    seconds: float


class Choice(NamedTuple):
    """One job in one part at one budget. time_s: of an iteration, at least. work_s: its kernels.
    held_bytes, come_s, leave_s: what it takes of memory and link."""

    job: int
    part: int
    work_s: float
    time_s: float
    held_bytes: float
    come_s: float
    leave_s: float


def most(mix: Mix, least: Sequence[float] = ()) -> float:
    """The bound of the mean progress. least: of progress, that each job has. Raises ArithmeticError
    if the solver gives up, or if the jobs cannot have that."""
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
    """The time between changes that come whatever happens."""
    times = {0.0, mix.horizon_s}
    for job in mix.jobs:
        times |= {job.arrives_s, job.leaves_s, *(at for at, _ in job.grows)}
    cuts = sorted(time for time in times if time <= mix.horizon_s)
    return [Part(begin, end - begin) for begin, end in pairwise(cuts)]


def choices(mix: Mix, parts: Sequence[Part]) -> Iterator[Choice]:
    """Each job in each part in which it is there, at each budget."""
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
    """To the GPU and to the host, whatever the job's shares are."""
    found = [job.curve.at(budget, rate) for rate in job.curve.rates]
    return min(one.come for one in found), min(one.leave for one in found)


def lines(mix: Mix, j: int) -> Iterator[tuple[float, float]]:
    """Slope and start of lines below the pauses that stand behind so many iterations of a job."""
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
