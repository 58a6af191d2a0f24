"""Part of suite_sim: the planned policy against naive, window and the floors.

DESIGN
  Each trace is replayed five times; figures are of the third iteration, when the learner has
  seen two. Naive does not know what is dead, the others do (+discard). Geometric means over
  traces, for each oversubscription:

    sim.planned.window_gain     naive / window
    sim.planned.gain            naive / planned
    sim.planned.of_floor        floor of `pump simulate` / planned
    sim.planned.of_parts        floor of parts (pump/sim/parts.py) / planned: what the order of
                                things leaves possible
    sim.planned.h2d             bytes to the GPU / the least possible with pump's budget, which
                                is 3 % less than the memory
    sim.planned.h2d_of_memory   the same / the least possible with all of the memory
    sim.planned.over_window     window / planned; its least over traces is in the row
    sim.planned.over_window50   the same where the program is only 50 operations ahead
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from harness import Row

if TYPE_CHECKING:
    from pump.profiles import Profile
    from pump.sim.report import Case
    from pump.sim.simulation import Stretch
    from pump.sim.tensors import TensorTrace

ITERATIONS, MEASURED = 5, 2
SHORT_QUEUE = 50


@dataclass
class Means:
    """Geometric means and extremes by name."""

    logs: dict[str, list[float]]

    def add(self, name: str, value: float) -> None:
        self.logs.setdefault(name, []).append(math.log(value))

    def rows(self, ratio: float, settings: dict[str, str]) -> Iterator[Row]:
        for name, logs in self.logs.items():
            yield Row(
                f"sim.planned.{name}",
                math.exp(sum(logs) / len(logs)),
                "x",
                oversubscription=ratio,
                least=math.exp(min(logs)),
                most=math.exp(max(logs)),
                traces=len(logs),
                simulated=True,
                mapping="caching",
                profile_settings=settings,
            )


def rows(
    traces: Iterable[TensorTrace],
    ratios: Iterable[float],
    profile: Profile,
    settings: dict[str, str],
) -> Iterator[Row]:
    """Rows for each oversubscription. `settings`: what `profile` was changed by."""
    cases = [case_of(trace, profile) for trace in traces]
    for ratio in ratios:
        means = Means({})
        for case in cases:
            one(case.with_memory(int(case.program.peak_bytes / ratio)), means)
        yield from means.rows(ratio, settings)


def case_of(trace: TensorTrace, profile: Profile) -> Case:
    from pump.sim import tensors
    from pump.sim.report import Case
    from pump.sim.simulation import Machine

    plain, discarding = (
        tensors.program(trace, "caching", ITERATIONS, discard=discard) for discard in (False, True)
    )
    return Case(plain, Machine(profile, plain.peak_bytes), discarding)


def steady(case: Case, name: str) -> Stretch:
    from pump.sim import contenders

    contender = contenders.by_name(name)
    program = case.of(contender)
    assert program is not None
    return contenders.simulate(contender, program, case.machine).stretches[MEASURED]


def one(case: Case, means: Means) -> None:
    """Figures of one trace at one size."""
    from pump.sim import parts, report
    from pump.sim.contenders import iteration_steps
    from pump.sim.floor import Rates, least_traffic
    from pump.sim.simulation import RESERVE_PERCENT
    from pump.sim.touches import touches

    naive, window, planned = (
        steady(case, name) for name in ("naive", "window+discard", "planned+discard")
    )
    means.add("window_gain", naive.seconds / window.seconds)
    means.add("gain", naive.seconds / planned.seconds)
    means.add("of_floor", report.floor(case).seconds / planned.seconds)
    means.add("over_window", window.seconds / planned.seconds)
    program, memory = case.program, case.machine.memory_bytes
    first = len(program.steps) - iteration_steps(program)
    used = touches(program, first)
    steps = program.steps[first:]
    compute_ns = steps["duration_ns"][steps["seq"] > 0].tolist()
    rates = Rates.of(case.machine.profile.values, report.MIGRATION_THREADS)
    means.add("of_parts", parts.least_seconds(used, compute_ns, memory, rates) / planned.seconds)
    for name, share in (("h2d", 1 - RESERVE_PERCENT / 100), ("h2d_of_memory", 1.0)):
        least = least_traffic(used, report.FLOOR_REPEATS, int(memory * share)).h2d_bytes
        means.add(name, planned.h2d_bytes * report.FLOOR_REPEATS / least)
    short = replace(case, machine=replace(case.machine, queue_operations=SHORT_QUEUE))
    window50, planned50 = (steady(short, name) for name in ("window+discard", "planned+discard"))
    means.add("over_window50", window50.seconds / planned50.seconds)
