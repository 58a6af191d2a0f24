"""Part of suites/sim.py: one schedule against decisions, allowances and plans side by side.

DESIGN
  Each trace is replayed five times with discards; figures are of the third iteration, when the
  learner has seen two. One row for each policy, oversubscription and queue, geometric means over
  traces, each trace in `by_trace`, the least in `least`:

    sim.schedule.<policy>   seconds with decisions / with the schedule alone; `processor`:
                            processor time of the whole simulation, the same way round
    sim.schedule.stopped    seconds with a worker that is stopped for 50 of each 200 ms / with
                            one that runs: the mean over traces, with decisions and with the
                            schedule (`case`)
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from harness import Row
from study.sim_planned import SHORT_QUEUE, case_of, steady
from study.sim_reserve import mean

if TYPE_CHECKING:
    from pump.profiles import Profile
    from pump.sim.report import Case
    from pump.sim.tensors import TensorTrace

POLICIES = ("window", "planned")
QUEUES = (SHORT_QUEUE, 1024)
STOP_EVERY_MS, STOP_MS = 200.0, 50.0


def rows(traces: Iterable[TensorTrace], profile: Profile, ratios: Iterable[float]) -> Iterator[Row]:
    cases = [case_of(trace, profile) for trace in traces]
    for ratio in ratios:
        sized = [case.with_memory(int(case.program.peak_bytes / ratio)) for case in cases]
        for queue in QUEUES:
            for policy in POLICIES:
                yield from _one(sized, ratio, queue, policy)


def _one(cases: list[Case], ratio: float, queue: int, policy: str) -> Iterator[Row]:
    about = {
        "oversubscription": ratio,
        "launches_ahead": queue,
        "traces": len(cases),
        "simulated": True,
        "mapping": "caching",
    }
    names = [case.program.name for case in cases]
    by_decisions = [_seconds(case, queue, policy, schedule=False) for case in cases]
    alone = [_seconds(case, queue, policy, schedule=True) for case in cases]
    faster = [first[0] / second[0] for first, second in zip(by_decisions, alone, strict=True)]
    yield Row(
        f"sim.schedule.{policy}",
        mean(faster),
        "x",
        least=min(faster),
        processor=sum(one[1] for one in by_decisions) / sum(one[1] for one in alone),
        by_trace=dict(zip(names, faster, strict=True)),
        **about,
    )
    for schedule, running in ((False, by_decisions), (True, alone)):
        stopped = [_seconds(case, queue, policy, schedule=schedule, stops=True) for case in cases]
        slower = [late[0] / one[0] for late, one in zip(stopped, running, strict=True)]
        yield Row(
            "sim.schedule.stopped",
            mean(slower),
            "x",
            case=f"{policy}, {'schedule' if schedule else 'decisions'}",
            most=max(slower),
            **about,
        )


def _seconds(
    case: Case, queue: int, policy: str, *, schedule: bool, stops: bool = False
) -> tuple[float, float]:
    """Of the steady iteration, and processor time of the simulation."""
    daemon = replace(case.machine.daemon, schedule=schedule)
    if stops:
        daemon = replace(daemon, stop_every_ms=STOP_EVERY_MS, stop_ms=STOP_MS)
    machine = replace(case.machine, queue_operations=queue, daemon=daemon)
    begin = time.process_time()
    seconds = steady(replace(case, machine=machine), f"{policy}+discard").seconds
    return seconds, time.process_time() - begin
