"""Part of suites/sim.py: planned where steps are not all the same, against the window.

DESIGN
  Each program of sim_kinds.py, 24 steps, at 1.5 and 2.5 times the memory, 1,024 and 50 launches
  ahead of the GPU (a step has 144). Rows; `case` is the program:

    sim.kinds.over_window          window / planned, the whole run
    sim.kinds.over_window_steady   the same, the last third of the steps
    sim.kinds.confidence           share of operations that were predicted with confidence, at
                                   the end; `predicted`: share of all operations that were
                                   expected with the blocks that they used
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from harness import Row

if TYPE_CHECKING:
    from pump.model.client import ClientModel
    from pump.profiles import Profile

STEPS, STEADY = 24, 16
RATIOS = (1.5, 2.5)
QUEUES = (1024, 50)


def rows(profile: Profile) -> Iterator[Row]:
    from study import sim_kinds

    from pump.policy.planned import Planned
    from pump.policy.window import Window
    from pump.sim.simulation import Machine, run

    class Watched(Planned):
        """Notes what the model says last."""

        confidence = predicted = 0.0

        def at(self, step: int, ran: int, model: ClientModel) -> None:
            totals = model.totals()
            self.confidence = totals.confidence
            self.predicted = totals.predicted / max(1, totals.operations)

    for make in (*sim_kinds.PROGRAMS, sim_kinds.dissolving):
        program = make(STEPS)
        for ratio in RATIOS:
            for queue in QUEUES:
                small = Machine(profile, int(program.peak_bytes / ratio), queue)
                watched = Watched()
                planned, window = (
                    [one.seconds for one in run(program, small, policy).stretches]
                    for policy in (watched, Window())
                )
                facts = {"case": program.name, "oversubscription": ratio, "queue": queue}
                facts["simulated"] = True
                whole = sum(window) / sum(planned)
                steady = sum(window[STEADY:]) / sum(planned[STEADY:])
                yield Row("sim.kinds.over_window", whole, "x", "window", **facts)
                yield Row("sim.kinds.over_window_steady", steady, "x", "window", **facts)
                facts["predicted"] = watched.predicted
                yield Row("sim.kinds.confidence", watched.confidence, "share", **facts)
