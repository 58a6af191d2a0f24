"""What jobs would have had under another way of sharing, followed beside what they do. Pure.

DESIGN
  A shadow moves on from look to look: its way of sharing says what each job would have now, and the
  published curves how fast it would be. Memory moves in no time. A job in the shadow does as many
  iterations as the real one before each pause, and pauses as long. Where the shadow is ahead of the
  real job a pause is not known yet: then it goes on, and its next stretch of work is shorter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from study.jobs.world import USE_S, USE_STEPS, Card, Seen, Way

Rates = Callable[[Sequence[Seen], Mapping[int, int]], Mapping[int, float]]
"""Iterations a second by job, of jobs that run with such budgets."""


@dataclass
class Ghost:
    """A job in the shadow. paused: how many pauses are over. pause_s: of the one that lasts."""

    work_s: float = 0.0
    iterations: float = 0.0
    paused: int = 0
    pause_s: float = 0.0
    runs: bool = True
    use: float = 1.0

    def move(self, real: Seen, span_s: float) -> None:
        """Begins or ends a pause."""
        if self.runs and self.paused < len(real.pauses):
            self.runs = self.iterations < real.pauses[self.paused][0]
            self.pause_s = 0.0
        if not self.runs:
            self.pause_s += span_s
            over = self.paused < len(real.pauses) - 1 or real.runs
            if over and self.pause_s >= real.pauses[self.paused][1]:
                self.runs = True
                self.paused += 1
        self.use += (1 - math.exp(-span_s / USE_S)) * (self.runs - self.use)


class Shadow:
    """Of a way of sharing."""

    def __init__(self, way: Way) -> None:
        self.way = way
        self.ghosts: dict[int, Ghost] = {}
        self.now = 0.0

    def work_s(self, number: int) -> float:
        """Seconds of a job's kernels that would have run."""
        ghost = self.ghosts.get(number)
        return ghost.work_s if ghost else 0.0

    def follow(self, now: float, jobs: Sequence[Seen], card: Card, rates: Rates) -> None:
        """Moves on to `now`."""
        span_s, self.now = now - self.now, now
        if span_s <= 0 or not jobs:
            return
        seen = []
        for one in jobs:
            ghost = self.ghosts.setdefault(one.number, Ghost())
            ghost.move(one, span_s)
            use = round(ghost.use * USE_STEPS) / USE_STEPS
            seen.append(one._replace(runs=ghost.runs, use=use))
        running = [one for one in seen if one.runs]
        found = rates(running, self.way.look(now, seen, card).targets)
        for one in running:
            ghost = self.ghosts[one.number]
            ghost.iterations += span_s * found[one.number]
            ghost.work_s += span_s * found[one.number] * one.seconds
