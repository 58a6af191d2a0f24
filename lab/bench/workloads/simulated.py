"""Recordings of inference, LoRA and experts, simulated: part of suites/sim.py.

DESIGN
  lab/bench/data/workloads has a recording of each program of examples/pytorch, made with enough
  memory, and the program's own results. A recording has the operations of the program, in order.
  The times of kernels and the host depend on other load on the machine, so both are replaced. A
  kernel takes the time of the bytes that it reaches. All kernels together take the time that the
  virtual GPU counted, and each launch takes HOST_NS of the host, as in JSON traces. So the same
  recording gives the same results. Rows, of the steps after the first ones:

    `sim.<program>.<policy>`               Seconds of a step. `least`, `most`: over the machines of
                                           band.py. `to_gpu`, `to_host`: bytes. `of_floor`,
                                           `of_bound`: the floor, and the bound of
                                           workloads/formulas.py / its seconds. `faults`.
    `sim.<program>.<system>`               Seconds with another system, computed by formulas.py.
    `sim.<program>.<policy>.full_duplex`   Seconds on a link that carries both directions at full
                                           rate / on the profile's: more than 1 if departures run
                                           ahead of arrivals
                                           (docs/decisions/0053-departures-ahead.md).

  Memory is weights / oversubscription, as for a model that a user wants to run. LoRA has as much
  memory again for other data, so it gets all memory / oversubscription. RESULTS keeps the rows of
  `scripts/bench sim -- --only workloads`, and pages show them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import ROOT, Row
from workloads import band, formulas
from workloads.formulas import Step

if TYPE_CHECKING:
    from pump_lab.profiles import Profile
    from pump_lab.sim.program import Program

DATA = ROOT / "lab" / "bench" / "data" / "workloads"
RESULTS = ROOT / "lab" / "bench" / "results" / "workloads.jsonl"
PROGRAMS = "inference", "lora", "experts"
POLICIES = "naive", "window", "planned"
RATIOS = (1.5, 2.0)
HOST_NS, GAP_NS = 8_000, 200_000
"""Host time for a launch, and after a wait: sampling, or the next batch."""


def retimed(program: Program, operations: int, compute_seconds: float) -> Program:
    """Makes the last `operations` the steady part, with times that depend only on the program.

    `compute_seconds`: of all these operations.
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


WORDS = {
    "naive": ("`naive`: Unified Memory without pump", "simulated"),
    "window": ("`--policy window`", "simulated"),
    "planned": ("`--policy planned` (default)", "simulated"),
    "zero_copy": ("zero copy: kernels read host RAM, like llama.cpp with GreenBoost", "computed"),
    "layer_offload": (
        "layers or experts in host RAM, copied when they run: accelerate",
        "computed",
    ),
    "zero_inference": ("all layers in host RAM, prefetched one ahead: DeepSpeed", "computed"),
}


def lines(program: str, unit: str) -> Iterator[str]:
    """Yields the lines of a page's table for a program, from RESULTS. `unit`: a step's name."""
    kept = [json.loads(line) for line in RESULTS.read_text(encoding="utf-8").splitlines()]
    kept = [row for row in kept if row["name"].startswith(f"sim.{program}.")]
    yield f"| time of a {unit} | source | {' | '.join(f'{r:g}x' for r in RATIOS)} | to the GPU |"
    yield "|---" * (3 + len(RATIOS)) + "|"
    for name, (words, source) in WORDS.items():
        found = [row for row in kept if row["name"] == f"sim.{program}.{name}"]
        moved = [f"{row['to_gpu'] / 1e9:.2f}" for row in found if "to_gpu" in row]
        cells = [_cell(row) for row in found] + [f"{', '.join(moved)} GB" if moved else ""]
        yield f"| {words} | {source} | {' | '.join(cells)} |".replace("|  |", "| |")


def _cell(row: dict[str, Any]) -> str:
    # Three digits, without an exponent.
    times = [
        f"{float(f'{row[key] * 1e3:.3g}'):g}" for key in ("value", "least", "most") if key in row
    ]
    return f"{times[0]} ms ({times[1]} to {times[2]})" if len(times) == 3 else f"{times[0]} ms"


def rows(folder: Path = DATA) -> Iterator[Row]:
    from pump_lab.sim import recording

    for name in PROGRAMS:
        facts = json.loads((folder / f"{name}.json").read_text())
        recorded = recording.program((folder / f"{name}.trace").read_bytes(), name)
        step = Step(**facts.pop("step"))
        compute_seconds = step.compute_seconds * facts["steps"]
        program = retimed(recorded, facts.pop("operations"), compute_seconds)
        for ratio in RATIOS:
            yield from _simulated(program, step, ratio, **facts)


def _simulated(
    program: Program,
    step: Step,
    ratio: float,
    *,
    steps: int,
    footprint_bytes: int,
) -> Iterator[Row]:
    from pump.model.bounds import without_reserve
    from pump_lab.sim import report
    from pump_lab.sim.named_policies import by_name, simulate
    from pump_lab.sim.simulation import Machine

    def seconds_on(one: Profile) -> dict[str, float]:
        there = replace(machine, profile=one)
        return {p: simulate(by_name(p), program, there).steady.seconds / steps for p in POLICIES}

    profile = band.machines()["server"]
    name, link = program.name, float(profile.values["link.prefetch_h2d_gbps"]) * 1e9
    machine = Machine(profile, int(footprint_bytes / ratio))
    full_duplex = replace(
        machine, profile=profile.changed({"link.duplex_in": "1", "link.duplex_out": "1"})
    )
    case = report.Case(program, machine)
    alone, least = report.unlimited(case).steady.seconds, report.floor(case)
    step = replace(step, gap_seconds=max(0.0, alone / steps - step.compute_seconds))
    budget = without_reserve(machine.memory_bytes, machine.reserve_percent)
    # Evictions have as many bytes as arrivals.
    bound = formulas.bounds(step, budget, link * float(profile.values["link.duplex_in"]))
    facts = {"oversubscription": ratio, "profile": profile.name, "simulated": True}
    times = band.over(seconds_on)
    for policy in POLICIES:
        steady = simulate(by_name(policy), program, machine).steady
        seconds = steady.seconds / steps
        more = {"of_bound": bound[policy] / seconds} if policy in bound else {}
        yield Row(
            f"sim.{name}.{policy}",
            seconds,
            "s",
            least=times[policy]["least"],
            most=times[policy]["most"],
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
