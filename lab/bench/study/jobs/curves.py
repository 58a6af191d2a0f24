"""How one job's iteration depends on its budget and on its share of the link.

A curve comes from the simulator of one job (pump_lab.sim), run at several budgets and rates of the
link. It does not depend on the job's size: times are in iterations without paging, bytes in shares
of the footprint. A job with twice the bytes and twice the kernel time has the same curve.

The simulator takes minutes for a large trace, so some curves are stored in lab/bench/data/jobs. In
lab/bench, this makes them again from FOLDER/NAME_marginal.json.*:

    ../../.venv/bin/python -m study.jobs.curves FOLDER NAME... > data/jobs/curves.jsonl
"""

from __future__ import annotations

import json
import sys
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from pump_lab.profiles import Profile
    from pump_lab.sim.program import Program
    from pump_lab.sim.tensors import TensorTrace

FILE: Final = Path(__file__).parents[2] / "data" / "jobs" / "curves.jsonl"
DIGITS: Final = 4
BUDGETS: Final = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""Shares of the footprint. At 1 nothing is paged."""
RATES: Final = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Multiples of the link's own rate."""
LOWERED_LEAST: Final = 0.1
"""Share of the peak; TENSILE's choices below it are not stored."""
ITERATIONS: Final = 3
LINK_KEYS: Final = (
    "link.prefetch_h2d_gbps",
    "link.copy_h2d_gbps",
    "link.copy_d2h_gbps",
)

Grid = tuple[tuple[float, ...], ...]
"""Values by budget and rate."""


class Point(NamedTuple):
    """One iteration. `slow`: its time / its time without paging. `come`, `leave`: bytes to the GPU
    and to the host / footprint."""

    slow: float
    come: float
    leave: float


@dataclass(frozen=True)
class Curve:
    """`seconds`, `footprint_bytes`: an iteration without paging. `budgets`, `rates`: ascending,
    relative to the footprint and the link; the last budget is 1. `lowering`: the tensors that
    TENSILE swaps in turn, and the peak that each leaves, relative to the peak
    (study/papers/tensile.py)."""

    name: str
    seconds: float
    footprint_bytes: int
    budgets: tuple[float, ...]
    rates: tuple[float, ...]
    slow: Grid
    come: Grid
    leave: Grid
    lowering: tuple[tuple[float, float], ...] = ()

    def at(self, budget: float, rate: float) -> Point:
        """Interpolates. Below the least budget or rate, the time grows in inverse proportion; so do
        the bytes below the least budget. Above the largest rate nothing improves."""
        if budget >= 1:
            return Point(1.0, 0.0, 0.0)
        more = time = 1.0
        if budget < self.budgets[0]:
            more = self.budgets[0] / max(budget, 1e-3)
            budget = self.budgets[0]
        if rate < self.rates[0]:
            time = self.rates[0] / max(rate, 1e-6)
            rate = self.rates[0]
        b, along_b = _place(self.budgets, budget)
        r, along_r = _place(self.rates, min(rate, self.rates[-1]))
        near, far = (1 - along_b) * (1 - along_r), (1 - along_b) * along_r
        below, across = along_b * (1 - along_r), along_b * along_r

        def value(grid: Grid) -> float:
            first, second = grid[b], grid[b + 1]
            return (near * first[r] + far * first[r + 1]
                    + below * second[r] + across * second[r + 1])  # fmt: skip

        slow, come, leave = value(self.slow), value(self.come), value(self.leave)
        return Point(slow * more * time, come * more, leave * more)

    def line(self) -> str:
        """Returns the curve as JSON."""
        return json.dumps(_rounded(asdict(self)))


def kept(file: Path = FILE) -> list[Curve]:
    """Returns the stored curves."""
    return [_curve(json.loads(line)) for line in file.read_text().splitlines()]


def _curve(raw: dict[str, Any]) -> Curve:
    return Curve(**{key: _tuples(value) for key, value in raw.items()})


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(one) for one in value]
    return round(value, DIGITS) if isinstance(value, float) else value


def _place(values: Sequence[float], value: float) -> tuple[int, float]:
    """Returns the index before `value`, and the fraction of the way to the next one, 0 to 1."""
    i = min(bisect_right(values, value), len(values) - 1) - 1
    return i, (value - values[i]) / (values[i + 1] - values[i])


def monotone(slow: Grid) -> Grid:
    """Makes times no shorter with less memory or link, and never below the time without paging."""
    rows: list[list[float]] = []
    for row in reversed(slow):
        below = rows[-1] if rows else [1.0] * len(row)
        rising = list(accumulate(reversed(row), max))[::-1]
        rows.append([max(one, other) for one, other in zip(rising, below, strict=True)])
    return tuple(map(tuple, reversed(rows)))


def measured(trace: TensorTrace, profile: Profile) -> Curve:
    """Returns the curve of a trace under pump: policy planned, freed memory discarded."""
    from study import greedy, studied_policies
    from study.papers import autoswap, tensile

    from pump_lab.sim import tensors

    plain, freed = (
        tensors.program(trace, iterations=ITERATIONS, discard=discard) for discard in (False, True)
    )
    footprint = plain.peak_bytes
    seconds = plain.compute_seconds / ITERATIONS
    points = [
        [measured_at(freed, _link(profile, rate), footprint, seconds, share) for rate in RATES]
        for share in BUDGETS
    ]
    points.append([Point(1.0, 0.0, 0.0)] * len(RATES))
    slow, come, leave = (
        tuple(tuple(point[i] for point in row) for row in points) for i in range(len(Point._fields))
    )
    iteration = greedy.iteration_of(tensors.program(trace, "unique"))
    job = autoswap.job_of(iteration, *studied_policies.link_rates(profile))
    lowering = tuple(one for one in tensile.lowering(job) if one[1] >= LOWERED_LEAST)
    budgets = (*BUDGETS, 1.0)
    return Curve(
        trace.name,
        seconds,
        footprint,
        budgets,
        RATES,
        monotone(slow),
        come,
        leave,
        lowering,
    )


def measured_at(
    program: Program, profile: Profile, footprint: int, seconds: float, budget: float
) -> Point:
    """Returns the point of a program's last iteration. `seconds`: an iteration without paging."""
    from pump.policy import POLICIES
    from pump_lab.sim.simulation import Machine, run

    machine = Machine(profile, 2 * footprint)
    budget_bytes = int(budget * footprint)
    steady = run(program, machine, POLICIES["planned"](), budget_bytes=budget_bytes).steady
    return Point(
        max(1.0, steady.seconds / seconds),
        steady.h2d_bytes / footprint,
        steady.d2h_bytes / footprint,
    )


def _link(profile: Profile, rate: float) -> Profile:
    changes = {}
    for key in LINK_KEYS:
        value = profile.values[key]
        assert isinstance(value, (int, float))
        changes[key] = str(value * rate)
    return profile.changed(changes)


def main(folder: str, *names: str) -> None:
    """Prints a curve for each trace, under the constants of the study (suites/sim.py)."""
    from suites import sim

    from pump_lab import profiles
    from pump_lab.sim import tensors

    profile = profiles.load(sim.PROFILE).changed(sim.STUDY)
    for name in names:
        (path,) = Path(folder).glob(f"{name}_marginal.json.*")
        print(measured(tensors.parse(path.read_bytes(), path.name), profile).line(), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
