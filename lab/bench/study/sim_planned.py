"""Part of suites/sim.py: the planned policy against naive, window and the floors.

DESIGN
  Each trace is replayed five times. Times and bytes are of the third iteration, when the learner
  has seen two. Naive does not know dead memory, the others do (+discard). Rows are geometric means
  over traces, for each oversubscription:

    `sim.planned.window_gain`       Time with naive / with window.
    `sim.planned.gain`              Time with naive / with planned.
    `sim.planned.*_serial`          The same for a naive that writes each evicted block back wholly
                                    before the new block arrives (SERIAL of suites/sim.py), as a
                                    study assumed.
    `sim.planned.of_floor`          Floor of `pump simulate` / planned.
    `sim.planned.of_parts`          Floor of parts (pump_lab.floor.lp_floor) / planned. This floor
                                    respects the order of operations.
    `sim.planned.of_parts_budget`   The same with pump's budget instead of the memory.
    `sim.planned.of_touched`        A study's minimum / planned: the bytes of Belady's choice by the
                                    next touch, dead or not (sim_bound.py), both ways at the duplex
                                    rate. It is not a floor: a policy that discards can be faster.
    `sim.planned.h2d`               Bytes to the GPU / the least possible with pump's budget, which
                                    is 3 % less than the memory.
    `sim.planned.h2d_of_memory`     The same / the least possible with all of the memory.
    `sim.planned.over_window`       Window / planned; the row has its least over traces.
    `sim.planned.over_window50`     The same if the program is only 50 operations ahead.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from harness import Row, UnavailableError

if TYPE_CHECKING:
    from pump_lab.floor import Touch
    from pump_lab.profiles import Profile
    from pump_lab.sim.report import Case
    from pump_lab.sim.simulation import Stretch
    from pump_lab.sim.tensors import TensorTrace

ITERATIONS, MEASURED = 5, 2
SHORT_QUEUE = 50


@dataclass
class Means:
    """Geometric means and extremes by name; each value by trace."""

    logs: dict[str, dict[str, float]]

    def add(self, trace: str, name: str, value: float) -> None:
        self.logs.setdefault(name, {})[trace] = math.log(value)

    def rows(self, group: str, ratio: float, settings: dict[str, str]) -> Iterator[Row]:
        for name, logs in self.logs.items():
            yield Row(
                f"sim.{group}.{name}",
                math.exp(sum(logs.values()) / len(logs)),
                "x",
                oversubscription=ratio,
                least=math.exp(min(logs.values())),
                most=math.exp(max(logs.values())),
                traces=len(logs),
                by_trace={trace: math.exp(log) for trace, log in logs.items()},
                simulated=True,
                mapping="caching",
                profile_settings=settings,
            )


def rows(
    traces: Iterable[TensorTrace],
    ratios: Iterable[float],
    profile: Profile,
    *,
    settings: dict[str, str],
    serial: dict[str, str],
    group: str,
) -> Iterator[Row]:
    """Yields rows for each oversubscription. `settings`: the changes of `profile`. `serial`:
    settings that make its driver write back before it fetches. `group`: for the rows' names."""
    cases = [case_of(trace, profile) for trace in traces]
    serially = profile.changed(serial)
    for ratio in ratios:
        means = Means({})
        for case in cases:
            one(case.with_memory(int(case.program.peak_bytes / ratio)), serially, means)
        yield from means.rows(group, ratio, settings)


def case_of(trace: TensorTrace, profile: Profile) -> Case:
    from pump_lab.sim import tensors
    from pump_lab.sim.report import Case
    from pump_lab.sim.simulation import Machine

    plain, discarding = (
        tensors.program(trace, "caching", ITERATIONS, discard=discard) for discard in (False, True)
    )
    return Case(plain, Machine(profile, plain.peak_bytes), discarding)


def steady(case: Case, name: str) -> Stretch:
    from study import studied_policies

    candidate = studied_policies.by_name(name)
    program = case.of(candidate)
    assert program is not None
    return studied_policies.simulate(candidate, program, case.machine).stretches[MEASURED]


def one(case: Case, serially: Profile, means: Means) -> None:
    """Adds the values of one trace at one size. `serially`: the profile of the study's naive."""
    add = partial(means.add, case.program.name)
    serial_case = replace(case, machine=replace(case.machine, profile=serially))
    naive, window, planned = (
        steady(case, name) for name in ("naive", "window+discard", "planned+discard")
    )
    serial = steady(serial_case, "naive")
    add("window_gain", naive.seconds / window.seconds)
    add("window_gain_serial", serial.seconds / window.seconds)
    add("gain", naive.seconds / planned.seconds)
    add("gain_serial", serial.seconds / planned.seconds)
    add("over_window", window.seconds / planned.seconds)
    for name, least in floors(case).items():
        add(name, least / planned.seconds)
    for name, least in least_bytes(case).items():
        add(name, planned.h2d_bytes / least)
    short = replace(case, machine=replace(case.machine, queue_operations=SHORT_QUEUE))
    window50, planned50 = (steady(short, name) for name in ("window+discard", "planned+discard"))
    add("over_window50", window50.seconds / planned50.seconds)


def iteration(case: Case) -> tuple[list[Touch], list[int]]:
    """Returns the touches of the operations of one iteration, and their durations in ns."""
    from pump_lab.sim.named_policies import iteration_steps
    from pump_lab.sim.touches import touches

    program = case.discarding or case.program
    first = len(program.steps) - iteration_steps(program)
    steps = program.steps[first:]
    return touches(program, first), steps["duration_ns"][steps["seq"] > 0].tolist()


def floors(case: Case) -> dict[str, float]:
    """Returns the seconds of an iteration at each floor, by the row that compares with it."""
    from study import sim_bound

    from pump.model.bounds import BLOCK_BYTES, without_reserve
    from pump_lab.floor import Rates, link_seconds
    from pump_lab.sim import report

    used, compute_ns = iteration(case)
    memory_bytes = case.machine.memory_bytes
    rates = Rates.of(case.machine.profile.values, report.MIGRATION_THREADS)
    budgeted = case.with_memory(without_reserve(memory_bytes))
    floor = report.floor(case)
    of_parts = report.floor_of_parts(case)
    with_budget = report.floor_of_parts(budgeted)
    if of_parts is None or with_budget is None:
        raise UnavailableError("the floor of parts needs scipy: pip install 'pump-cuda[simulate]'")
    come, leave = sim_bound.by_next_touch(used, memory_bytes // BLOCK_BYTES)
    touched = link_seconds(come * BLOCK_BYTES, leave * BLOCK_BYTES, rates)
    return {
        "of_floor": floor.seconds,
        "of_parts": of_parts,
        "of_parts_budget": with_budget,
        "of_touched": max(sum(compute_ns) / 1e9, touched),
    }


def least_bytes(case: Case) -> dict[str, float]:
    """Returns the bytes to the GPU in an iteration, by the row that compares with them."""
    from pump.model.bounds import without_reserve
    from pump_lab.floor import least_traffic
    from pump_lab.sim.report import FLOOR_REPEATS

    used, _ = iteration(case)
    memory_bytes = case.machine.memory_bytes
    sizes = {"h2d": without_reserve(memory_bytes), "h2d_of_memory": memory_bytes}
    return {
        name: least_traffic(used, FLOOR_REPEATS, size).h2d_bytes / FLOOR_REPEATS
        for name, size in sizes.items()
    }
