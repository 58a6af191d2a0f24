"""The mixes of jobs of mixes.toml, and the progress that a way of sharing gives them.

The last sixteen mixes are held out: no way of sharing was chosen or changed because of their
results. Keys of a job: `trace` is the number of its curve, modulo the number of curves. `size`,
`compute`, `priority`, `arrives_s`, `leaves_s` and `grows` are world.Job's. `pattern` is constant,
pausing (work of work_s seconds without paging, then a pause of pause_s), bursting (the same with
random lengths) or growing.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from study.jobs import world
from study.jobs.curves import Curve
from study.jobs.rates import Link
from study.jobs.world import Card, Job, Way

FILE: Final = Path(__file__).with_name("mixes.toml")
HORIZON_S: Final = 300.0
MEMORY_BYTES: Final = 40 << 30
TUNED: Final = 48
"""Number of mixes for tuning; the others are held out."""


@dataclass(frozen=True)
class Mix:
    """Jobs that share a GPU."""

    name: str
    seed: int
    jobs: tuple[Job, ...]
    card: Card
    horizon_s: float = HORIZON_S

    @property
    def held_out(self) -> bool:
        return self.seed > TUNED

    @cached_property
    def alone_s(self) -> list[float]:
        """Returns each job's work without other jobs."""
        return [
            world.alone(job, i, self.card, self.horizon_s, self.seed).work_s
            for i, job in enumerate(self.jobs)
        ]

    def progress(self, way: Way) -> list[float]:
        """Returns each job's work / its work without other jobs."""
        accounts = world.World(self.jobs, self.card, way, self.seed).run(self.horizon_s)
        return [one.work_s / alone for one, alone in zip(accounts, self.alone_s, strict=True)]

    def mean(self, progress: Sequence[float]) -> float:
        """Returns the mean over the jobs, by weight."""
        whole = sum(job.weight for job in self.jobs)
        weighted = (job.weight * one for job, one in zip(self.jobs, progress, strict=True))
        return sum(weighted) / whole


def load(curves: Sequence[Curve], link: Link, file: Path = FILE) -> list[Mix]:
    """Returns all mixes, with these curves in turn."""
    card = Card(MEMORY_BYTES, link)
    raw = tomllib.loads(file.read_text())
    return [
        Mix(
            f"mix {one['seed']}, {len(one['jobs'])} jobs",
            one["seed"],
            tuple(_job(job, curves) for job in one["jobs"]),
            card,
        )
        for one in raw["mix"]
    ]


def _job(raw: Mapping[str, Any], curves: Sequence[Curve]) -> Job:
    curve = curves[raw["trace"] % len(curves)]
    iteration_s = curve.seconds * raw["compute"] * raw["size"] * MEMORY_BYTES
    iteration_s /= curve.footprint_bytes
    return Job(
        curve,
        raw["size"],
        raw["compute"],
        priority=raw.get("priority", 0),
        arrives_s=raw.get("arrives_s", 0.0),
        leaves_s=raw.get("leaves_s", math.inf),
        work=raw["work_s"] / iteration_s if "work_s" in raw else math.inf,
        pause_s=raw.get("pause_s", 0.0),
        drawn=raw["pattern"] == "bursting",
        grows=tuple((float(at), float(factor)) for at, factor in raw.get("grows", ())),
    )
