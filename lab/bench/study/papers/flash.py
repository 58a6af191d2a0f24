"""A host with too little memory, and flash as the next tier: G10's schedule, pump's, the floor.

These are rows of suites/papers.py. Each trace runs at half of its footprint, and the host holds
HOST_SHARE of the rest. Values are time / time with enough memory, as means of the iterations from
the third on. A single iteration may use more than its share of a write budget. The profile is the
A100's, without the changes of the study.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from study import sim_g10, sim_planned
from study.papers.experiments import NO_NUMBER, PLANNED, Bench, Experiment, mean

if TYPE_CHECKING:
    from pump_lab.sim.report import Case

RATIO = 2.0
HOST_SHARE = 0.7
TERABYTES_A_DAY = None, 100, 20, 5
FIRST = 2
"""Iterations before it are not measured."""

METHODS = "g10", PLANNED
BOUND = "floor"


def experiments(bench: Bench) -> Iterator[Experiment]:
    """Yields a row without a budget of writes, and one for each budget."""
    measured = cache(lambda trace, terabytes: slowdowns(bench, trace, terabytes))
    for terabytes in TERABYTES_A_DAY:
        budget = "" if terabytes is None else f", {terabytes} TB written a day"
        cells = [
            mean(bench.by_trace(lambda one, t=terabytes, m=method: measured(one, t)[m]))
            for method in (*METHODS, BOUND)
        ]
        yield Experiment(
            "g10.flash" + ("" if terabytes is None else f"_{terabytes}"),
            "G10",
            f"relative time with flash, footprint / memory {RATIO:g}{budget}",
            "x",
            NO_NUMBER,
            *cells,
        )


def slowdowns(bench: Bench, trace: str, terabytes: float | None) -> dict[str, float]:
    """Returns the slow-down by each method, and of the floor."""
    from study import studied_policies

    from pump_lab.sim import report

    case = case_of(bench, trace, terabytes)
    alone = report.unlimited(case).steady.seconds
    found = {}
    for method in METHODS:
        candidate = studied_policies.by_name(method)
        program = case.of(candidate)
        assert program is not None
        stretches = studied_policies.simulate(candidate, program, case.machine).stretches[FIRST:]
        found[method] = sum(one.seconds for one in stretches) / len(stretches) / alone
    floor = report.floor_of_parts(case)
    assert floor is not None, "scripts/bench installs scipy"
    return {**found, BOUND: floor / alone}


def case_of(bench: Bench, trace: str, terabytes: float | None) -> Case:
    """Returns the trace on such a machine."""
    from pump.model.bounds import BLOCK_BYTES
    from pump_lab import profiles
    from pump_lab.sim.host import Host

    case = sim_planned.case_of(bench.named[trace], profiles.load(sim_g10.PROFILE))
    memory_bytes = int(case.program.peak_bytes / RATIO)
    host_bytes = max(BLOCK_BYTES, int((case.program.peak_bytes - memory_bytes) * HOST_SHARE))
    a_day = None if terabytes is None else terabytes * 1e12
    host = Host(host_bytes, sim_g10.FLASH_GBPS, writes_a_day=a_day)
    return replace(case, machine=replace(case.machine, memory_bytes=memory_bytes, host=host))
