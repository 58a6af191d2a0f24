"""Part of suites/sim.py: planned against the window, for programs with different steps.

DESIGN
  Each program of sim_kinds.py runs 24 steps, at 1.5 and 2.5 times the memory, 1,024 and 50 launches
  ahead of the GPU (a step has 144). `case` is the program. Rows:

    `sim.kinds.over_window`          Time with the policy window / with planned, for the whole run.
    `sim.kinds.over_window_steady`   The same ratio for the last third of the steps.
    `sim.kinds.confidence`           Share of operations that were predicted with confidence, at the
                                     end. `predicted`: share of all operations that were expected
                                     with the blocks that they used.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from harness import Row

if TYPE_CHECKING:
    from pump_lab.profiles import Profile

STEPS, STEADY = 24, 16
RATIOS = (1.5, 2.5)
QUEUES = (1024, 50)


def rows(profile: Profile) -> Iterator[Row]:
    from study import sim_kinds

    from pump.policy.scheduled import Planned, Window
    from pump_lab.sim.simulation import Machine, run

    for make in (*sim_kinds.PROGRAMS, sim_kinds.dissolving):
        program = make(STEPS)
        for ratio in RATIOS:
            for queue in QUEUES:
                small = Machine(profile, int(program.peak_bytes / ratio), queue)
                ran = run(program, small, Planned())
                learned = ran.predicted
                assert learned is not None
                planned = [one.seconds for one in ran.stretches]
                window = [one.seconds for one in run(program, small, Window()).stretches]
                facts = {"case": program.name, "oversubscription": ratio, "queue": queue}
                facts["simulated"] = True
                whole = sum(window) / sum(planned)
                steady = sum(window[STEADY:]) / sum(planned[STEADY:])
                yield Row("sim.kinds.over_window", whole, "x", "window", **facts)
                yield Row("sim.kinds.over_window_steady", steady, "x", "window", **facts)
                facts["predicted"] = learned.operations / ran.operations
                yield Row("sim.kinds.confidence", learned.confidence, "share", **facts)
