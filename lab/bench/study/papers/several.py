"""The experiments with several jobs on one GPU: TENSILE's plan, and ways of sharing (study/jobs).

DESIGN
  Progress is work / work without other jobs, in percent, as the mean of a mix's jobs. The rows are
  means over the held-out mixes (study/jobs/mixes.toml), with the stored curves
  (study/jobs/curves.py).

  `reproduction`   The way of sharing that the row names.
  `pump`           Turns: the service's default (pump/policy/turns.py).
  `bound`          The bound of the linear program (study/jobs/bound.py).

  TENSILE's plan is for jobs in pairs, each trace with the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

from study.jobs import bound, curves, mixes, ways
from study.jobs.mixes import Mix
from study.jobs.rates import Link
from study.papers import tensile
from study.papers.experiments import NO_NUMBER, Bench, Cell, Experiment, mean

if TYPE_CHECKING:
    from pump_lab.profiles import Profile
    from pump_lab.sim.tensors import TensorTrace

PLANNED_RATIOS = 1.5, 2.0, 4.0
NOT_PUBLIC = Cell(None, "not public")

WAYS: dict[str, tuple[str, Callable[[Mix], list[float]]]] = {
    "equal": ("equal shares", lambda mix: mix.progress(ways.Equal())),
    "priorities": (
        "the arbiter without turns, jobs with priorities",
        lambda mix: mix.progress(ways.Arbiter(priorities=True)),
    ),
    "water": (
        "the arbiter without turns, water filling",
        lambda mix: mix.progress(ways.Arbiter()),
    ),
    "turns": (
        "the arbiter with turns",
        lambda mix: mix.progress(ways.InTurns()),
    ),
    "turns_priorities": (
        "the arbiter with turns, jobs with priorities",
        lambda mix: mix.progress(ways.InTurns(priorities=True)),
    ),
    "slices": (
        "turns of one job at a time, best length in hindsight",
        lambda mix: ways.best_slices(mix)[1],
    ),
    "tensile": (
        "TENSILE's choice, planned again at each arrival and exit",
        lambda mix: mix.progress(ways.Tensile()),
    ),
    "partition": (
        "constant shares, best in hindsight",
        lambda mix: ways.best_partition(mix)[1],
    ),
    "partition_fair": (
        "constant shares, best in hindsight with 0.8 of equal shares for each job",
        lambda mix: ways.best_partition(mix, floors(mix))[1],
    ),
}
"""Text of each way, and a function that returns the progress of a mix's jobs."""


FLOOR = 0.8
"""Share of its progress under equal shares that each job should have."""


def floors(mix: Mix) -> list[float]:
    """Returns the least progress of each job."""
    return [FLOOR * one for one in mix.progress(ways.Equal())]


def link_of(profile: Profile) -> Link:
    """Returns the link of a profile."""
    from study import studied_policies

    come, leave = studied_policies.link_rates(profile)
    duplex = sum(float(profile.values[f"link.duplex_{way}"]) for way in ("in", "out"))
    return Link(come * 1e9, leave * 1e9, duplex)


def several(bench: Bench, *, quick: bool = False) -> Iterator[Experiment]:
    """Yields all rows."""
    yield from plans(bench)
    held_out = [one for one in mixes.load(curves.kept(), link_of(bench.profile)) if one.held_out]
    yield from shared(held_out[:1] if quick else held_out)


def shared(chosen: list[Mix]) -> Iterator[Experiment]:
    """Yields a row for each way, and rows that compare turns with others."""
    found = {
        name: {mix.name: make(mix) for mix in chosen} for name, (_, make) in WAYS.items()
    }  # fmt: skip
    by_name = {mix.name: mix for mix in chosen}
    means = {
        name: {mix: 100 * by_name[mix].mean(progress) for mix, progress in of.items()}
        for name, of in found.items()
    }
    pump = mean(means["turns"], geometric=False)
    most = mean({mix.name: 100 * bound.most(mix) for mix in chosen}, geometric=False)
    text = "several jobs"
    for name, (what, _) in WAYS.items():
        published = NOT_PUBLIC if name == "tensile" else NO_NUMBER
        cell = mean(means[name], geometric=False)
        row = f"tensile.jobs_{name}"
        yield Experiment(row, "TENSILE", f"{text}: {what}", "%", published, cell, pump, most)
    rest = {
        "jobs_gap": (
            "turns: share of the gap from water filling to the best in hindsight",
            gap_closed(means, "turns"),
        ),
        "jobs_gap_fair": (
            "constant shares with 0.8 of equal shares for each job: share of this gap",
            gap_closed(means, "partition_fair"),
        ),
        "jobs_bound_fair": (
            "bound, with 0.8 of equal shares for each job",
            mean({mix.name: 100 * bound.most(mix, floors(mix)) for mix in chosen},
                 geometric=False),
        ),
        "jobs_over_water": (
            "turns: progress / progress with water filling",
            mean({mix: 100 * means["turns"][mix] / means["water"][mix] for mix in by_name},
                 geometric=False),
        ),
        "jobs_over_equal": (
            "turns: least ratio of a job's progress to its progress with equal shares",
            mean({mix: 100 * least_over(found["turns"][mix], found["equal"][mix])
                  for mix in by_name}, geometric=False),
        ),
    }  # fmt: skip
    for row, (what, cell) in rest.items():
        yield Experiment(
            f"tensile.{row}",
            "TENSILE",
            f"{text}: {what}",
            "%",
            NO_NUMBER,
            cell,
            NO_NUMBER,
            NO_NUMBER,
        )


def gap_closed(means: dict[str, dict[str, float]], way: str) -> Cell:
    """Returns how much of the gap from water filling to the best in hindsight a way closes."""
    gaps, closed = {}, {}
    for mix, water in means["water"].items():
        gaps[mix] = max(means["slices"][mix], means["partition"][mix]) - water
        closed[mix] = means[way][mix] - water
    whole = sum(gaps.values())
    return Cell(100 * sum(closed.values()) / whole) if whole > 0 else Cell(None, "no gap")


def least_over(one: list[float], other: list[float]) -> float:
    """Returns the least ratio of a job's progress in `one` to that job's in `other`."""
    return min(mine / theirs for mine, theirs in zip(one, other, strict=True))


# ---- plans ---------------------------------------------------------------------------------


def plans(bench: Bench) -> Iterator[Experiment]:
    """Yields TENSILE's plan at limits of the combined peak."""
    pairs = list(pairwise(bench.traces)) or [(bench.traces[0], bench.traces[0])]
    made = {f"{one.name} + {other.name}": merged(bench, one, other) for one, other in pairs}
    for ratio in PLANNED_RATIOS:
        limits = {name: float(job.job.live_bytes.max()) / ratio for name, job in made.items()}
        found = {name: tensile.plan(job, limits[name]) for name, job in made.items()}
        spared = {
            name: 100 * (1 - plan.peak_bytes / (limits[name] * ratio))
            for name, plan in found.items()
        }
        times = {name: 100 * (1 + plan.overhead) for name, plan in found.items()}
        per_percent = {
            name: spared[name] / max(times[name] - 100, 0.1) for name in found
        }  # fmt: skip
        text = f"two jobs, combined peak / memory {ratio:g}"
        short = f"tensile.jobs_plan_{round(ratio * 10)}"
        for row, what, unit, values in (
            ("spared", "memory spared", "%", spared),
            ("time", "relative time", "%", times),
            ("ratio", "memory spared / extra time", "x", per_percent),
        ):
            cell = mean(values, geometric=False)
            yield Experiment(
                f"{short}_{row}",
                "TENSILE",
                f"{text}: {what}",
                unit,
                NOT_PUBLIC,
                cell,
                NO_NUMBER,
                NO_NUMBER,
            )


def merged(bench: Bench, *traces: TensorTrace) -> tensile.Swapping:
    """Returns the traces as one job."""
    from study import greedy, studied_policies

    from pump_lab.sim import tensors

    rates = studied_policies.link_rates(bench.profile)
    jobs = [
        tensile.of_trace(one, greedy.iteration_of(tensors.program(one, "unique")), *rates)
        for one in traces
    ]
    return tensile.merged(jobs)
