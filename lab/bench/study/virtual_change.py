"""Part of suites/virtual.py: a training that changes its batch size while it runs.

DESIGN
  examples/train_mlp.py waits for the GPU after each step and records the time. There are TURNS
  turns of STEPS steps each; every second turn has half the batch. A round runs that under planned
  and under demand paging, and each size by itself under planned, in a rotating order. Each step
  counts with its least time over the rounds, because other programs on the machine delay single
  steps. The virtual GPU's kernels take the same time for both sizes. The sizes differ in launches,
  in the lengths of activations, and in the memory that these take.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

from harness import Row

if TYPE_CHECKING:
    from suites.virtual import Bench, Figures, Program

STEPS, TURNS = 6, 4
LEARNED = 2
"""First steps of a turn, which may be slow."""


def rows(bench: Bench, program: Program, batch: int, ratio: float) -> Iterator[Row]:
    """Yields rows at one oversubscription. `batch`: the batch in the program's arguments."""
    changes = [f"--batch-from={turn * STEPS}:{batch >> turn % 2}" for turn in range(TURNS)]
    ways = {
        ("changes", "planned"): changes,
        ("changes", "demand"): changes,
        (0, "planned"): [],
        (1, "planned"): [f"--batch-from=0:{batch // 2}"],
    }
    words = [*program.words, f"--iterations={STEPS * TURNS}", "--report-every=0"]
    common = replace(program, words=[*words, "--sync-every-step"])
    found = bench.turns(
        {
            way: (replace(common, words=[*common.words, *more]), way[1])
            for way, more in ways.items()
        },
        ratio,
    )
    steps = {way: _steps(runs) for way, runs in found.items()}
    mine, theirs = steps["changes", "planned"], steps["changes", "demand"]
    steady = [median(steps[size, "planned"][LEARNED:]) for size in (0, 1)]
    slower = [time / steady[number // STEPS % 2] for number, time in enumerate(mine)]
    changed = enumerate(slower[STEPS:])
    late = [ratio for number, ratio in changed if number % STEPS >= LEARNED]
    worst = max(a / b for a, b in zip(mine, theirs, strict=True))
    facts = {**bench.facts, "oversubscription": ratio, "rounds": len(found["changes", "planned"])}
    name = "virtual.change.planned"
    yield Row(f"{name}.relearned", max(late), "x", "steady step", steady_s=steady, **facts)
    yield Row(f"{name}.worst_step", worst, "x", "demand", **facts)
    yield Row(f"{name}.steps", median(mine), "s", each_s=mine, demand_each_s=theirs, **facts)


def _steps(runs: Sequence[Figures]) -> list[float]:
    """Returns the seconds of each step, the least of the runs."""
    each = [[end - begin for begin, end in pairwise((0.0, *run.waits_s))] for run in runs]
    return [min(times) for times in zip(*each, strict=True)]
