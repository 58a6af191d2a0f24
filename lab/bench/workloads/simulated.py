"""Inference, LoRA and experts as recorded, simulated: part of suites/sim.py.

DESIGN
  lab/bench/data/workloads has a recording of each program of examples/pytorch, made where it
  fits, and what the program told of itself. A recording says what the program did, in which
  order; how long kernels and the host took depends on what else the machine did, so both are
  set anew: a kernel takes the time of the bytes that it reaches, all of them together what the
  virtual GPU counted, and each launch HOST_NS of the host, as in traces in JSON. The same
  recording then gives the same figures. Rows, of the steps after the first ones:

    sim.<program>.<policy>   seconds of a step; `to_gpu`, `to_host`: bytes; `of_bound`: the bound
                             of workloads/formulas.py / its seconds; `of_floor`; `faults`
    sim.<program>.<system>   seconds with what people use instead, computed by formulas.py
    sim.<program>.<policy>.full_duplex   seconds on a link that carries both directions at full
                             rate / on the profile's: more than 1 where departures run ahead of
                             arrivals (docs/decisions/0053-departures-ahead.md)

  Memory is weights / oversubscription, as for a model that one wants to run; of LoRA, which
  has as much again beside its weights, it is all memory / oversubscription.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from harness import ROOT, Row
from workloads import formulas
from workloads.formulas import Step

if TYPE_CHECKING:
    from pump_lab.profiles import Profile
    from pump_lab.sim.program import Program

DATA = ROOT / "lab" / "bench" / "data" / "workloads"
PROGRAMS = "inference", "lora", "experts"
POLICIES = "naive", "window", "planned"
RATIOS = (1.5, 2.0)
HOST_NS, GAP_NS = 8_000, 200_000
"""Of the host for a launch, and behind a wait: sampling, or the next batch."""


def retimed(program: Program, operations: int, compute_seconds: float) -> Program:
    """The last `operations` as its steady part, with times that depend on the program alone.

    compute_seconds: of all of these.
    """
    import numpy as np

    from pump_lab.sim.program import SYNC

    steps = program.steps.copy()
    first = int(np.flatnonzero(steps["seq"])[-operations])
    begin = int(np.flatnonzero(steps["kind"][:first] == SYNC)[-1])
    end = int(np.flatnonzero(steps["mark"])[-1])
    steps["mark"] = 0
    steps["mark"][[begin, end]] = 1
    sums = np.concatenate(([0], np.cumsum(program.uses["length_bytes"], dtype=np.float64)))
    used = steps["first_use"].astype(np.int64)
    reached = np.where(steps["seq"] > 0, sums[used + steps["uses"]] - sums[used], 0)
    steps["duration_ns"] = reached * (compute_seconds * 1e9 / reached[first:].sum())
    waited = np.concatenate(([False], steps["kind"][:-1] == SYNC))
    steps["host_ns"] = np.where(waited, GAP_NS, np.where(steps["seq"] > 0, HOST_NS, 0))
    facts = program.facts | {"steady_steps": len(steps) - begin - 1}
    return replace(program, steps=steps, facts=facts)


def rows(profile: Profile, folder: Path = DATA) -> Iterator[Row]:
    from pump_lab.sim import recording

    for name in PROGRAMS:
        facts = json.loads((folder / f"{name}.json").read_text())
        recorded = recording.program((folder / f"{name}.trace").read_bytes(), name)
        step = Step(**facts.pop("step"))
        compute_seconds = step.compute_seconds * facts["steps"]
        program = retimed(recorded, facts.pop("operations"), compute_seconds)
        for ratio in RATIOS:
            yield from _simulated(program, step, profile, ratio, **facts)


def _simulated(
    program: Program,
    step: Step,
    profile: Profile,
    ratio: float,
    *,
    steps: int,
    footprint_bytes: int,
) -> Iterator[Row]:
    from pump.model.bounds import without_reserve
    from pump_lab.sim import report
    from pump_lab.sim.named_policies import by_name, simulate
    from pump_lab.sim.simulation import Machine

    name, link = program.name, float(profile.values["link.prefetch_h2d_gbps"]) * 1e9
    machine = Machine(profile, int(footprint_bytes / ratio))
    full_duplex = replace(
        machine, profile=profile.changed({"link.duplex_in": "1", "link.duplex_out": "1"})
    )
    case = report.Case(program, machine)
    alone, least = report.unlimited(case).steady.seconds, report.floor(case)
    step = replace(step, gap_seconds=max(0.0, alone / steps - step.compute_seconds))
    budget = without_reserve(machine.memory_bytes, machine.reserve_percent)
    bound = formulas.bounds(step, budget, link)
    facts = {"oversubscription": ratio, "profile": profile.name, "simulated": True}
    for policy in POLICIES:
        steady = simulate(by_name(policy), program, machine).steady
        seconds = steady.seconds / steps
        more = {"of_bound": bound[policy] / seconds} if policy in bound else {}
        yield Row(
            f"sim.{name}.{policy}",
            seconds,
            "s",
            to_gpu=steady.h2d_bytes / steps,
            to_host=steady.d2h_bytes / steps,
            of_floor=least.seconds / steady.seconds,
            faults=steady.counters["fault_pages"] / steps,
            unlimited_s=alone / steps,
            **more,
            **facts,
        )
        if policy not in bound:
            continue
        faster = simulate(by_name(policy), program, full_duplex).steady
        yield Row(
            f"sim.{name}.{policy}.full_duplex",
            faster.seconds / steady.seconds,
            "x",
            to_gpu=faster.h2d_bytes / steps,
            to_host=faster.d2h_bytes / steps,
            **facts,
        )
    for system, seconds_of in formulas.OTHERS.items():
        yield Row(
            f"sim.{name}.{system}",
            seconds_of(step, machine.memory_bytes, link),
            "s",
            computed=True,
            **{**facts, "simulated": False},
        )
