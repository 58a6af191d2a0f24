"""How slow programs get with half of the memory that they need, from compute-bound to link-bound.

Run it after scripts/setup examples,simulate:

    .venv/bin/python lab/bench/workloads/intensity.py

DESIGN
  The cost of oversubscription depends most on how long kernels take for the bytes that they need.
  Each program is simulated (pump_lab.sim) with all of its kernel times multiplied by one number.
  Then kernels take X times as long as the link needs for the least bytes that any policy must move.
  A program with an X of 1/32 waits for the link, one with an X of 8 computes. Values are times /
  the same program's with memory for everything and the same kernel times.

  `programs`    The quickstart's training, made from examples/mlp.py; the recordings of PyTorch in
                lab/bench/data/workloads; the training traces of lab/bench/data/g10.
  `given_x`     X of the program with its own kernel times. These come from the profile (quickstart:
                chosen rates, profiles/a100-pcie4.toml), from the virtual GPU (workloads), or from
                an A100 (g10).

  Writes docs/pictures/intensity.json and the pictures that pages show with it. Everything is
  simulated; nothing here is from a real GPU.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "lab" / "bench"), str(ROOT / "examples")]

if TYPE_CHECKING:
    from pump_lab.profiles import Profile
    from pump_lab.sim.program import Program
    from pump_lab.sim.report import Case

PROFILE = "a100-pcie4"
RATIO = 2.0
POWERS = tuple(range(-5, 4))
"""Exponents: the values of X are 2 to these powers."""
POLICIES = "naive", "window", "planned"
RECORDED = "inference", "lora"
TRACES = "bert_base_b128", "vit_b256"
COLOURS = {"naive": "#d62728", "window": "#1f77b4", "planned": "#2ca02c", "floor": "#555555"}
FOLDER = ROOT / "docs" / "pictures"
DATA = FOLDER / "intensity.json"
PICTURED = "bert_base_b128", "inference"
"""Programs whose curves pages show. The table in docs/guides/choose.md has all of them."""


def programs(profile: Profile) -> Iterator[Program]:
    """Yields all programs, with their own kernel times."""
    from workloads import simulated
    from workloads.formulas import Step

    from pump_lab.sim import recording, tensors

    yield training(profile)
    for name in RECORDED:
        facts = json.loads((simulated.DATA / f"{name}.json").read_text())
        recorded = recording.program((simulated.DATA / f"{name}.trace").read_bytes(), name)
        seconds = Step(**facts["step"]).compute_seconds * facts["steps"]
        timed = simulated.retimed(recorded, facts["operations"], seconds)
        yield replace(timed, peak_bytes=facts["footprint_bytes"])
    for name in TRACES:
        file = ROOT / "lab" / "bench" / "data" / "g10" / f"{name}_marginal.json.xz"
        yield replace(tensors.program(tensors.parse(file.read_bytes(), file.name)), name=name)


def training(profile: Profile, iterations: int = 6) -> Program:
    """Returns the training whose speed scripts/quickstart shows, in the simulator's form."""
    import numpy as np
    from mlp import Operation
    from quickstart.workload import SPEED

    from pump_lab.sim import program as form

    tensors = SPEED.model.tensors()
    numbers = {name: number for number, name in enumerate(tensors)}
    ranges, blocks = form.ranges_in_a_row(list(tensors.values()))

    def uses(operation: Operation) -> list[form.Use]:
        ways = (
            (operation.reads, form.READ),
            (operation.updates, form.WRITE),
            (operation.overwrites, form.OVERWRITE),
        )
        return [(numbers[n], 0, tensors[n], way) for names, way in ways for n in names]

    def duration_ns(operation: Operation) -> int:
        kernels = {key: float(value) for key, value in profile.values.items() if "gbps" in key}
        rate = kernels.get(f"kernel.{operation.kernel}.gbps", kernels["kernels.default_gbps"])
        return round(sum(use[2] for use in uses(operation)) / rate)

    once = form.Builder()
    for operation in SPEED.model.iteration():
        once.operation(
            form.KERNEL,
            uses(operation),
            duration_ns=duration_ns(operation),
            host_ns=8_000,
            signature=form.signature_of((operation.kernel, operation.items)),
        )
    once.sync(mark=True)
    steps, used = once.tables()
    start = form.Builder()
    for number in range(len(ranges)):
        start.alloc(number)
    start.sync()
    whole = np.concatenate((start.tables()[0], form.repeated(steps, iterations)))
    facts = {"iterations": iterations, "steps_per_iteration": len(steps)}
    return form.Program("quickstart", whole, used, ranges, blocks, 1, SPEED.footprint_bytes, facts)


def case_of(program: Program, profile: Profile) -> Case:
    """Returns the program on a GPU with half of the memory that it needs."""
    from pump_lab.sim.report import Case
    from pump_lab.sim.simulation import Machine

    return Case(program, Machine(profile, int(program.peak_bytes / RATIO)))


def least(case: Case) -> tuple[float, float]:
    """Returns seconds of kernels, and of the link for the least bytes to the GPU, in the measured
    part. The greater of both is the floor of scripts/quickstart."""
    from quickstart.workload import link_bytes_per_second

    from pump_lab.floor import least_traffic
    from pump_lab.sim import report
    from pump_lab.sim.named_policies import iteration_steps
    from pump_lab.sim.touches import touches

    program = case.program
    first = len(program.steps) - iteration_steps(program)
    repeats = report.FLOOR_REPEATS if "iterations" in program.facts else 1
    moved = least_traffic(touches(program, first), repeats, case.machine.memory_bytes)
    link_seconds = moved.h2d_bytes / repeats / link_bytes_per_second(PROFILE)
    return report.busy_seconds(program.steps[first:]), link_seconds


def point(case: Case, times: float) -> dict[str, float]:
    """Returns slow-downs by policy, and of the floor, with kernel times multiplied."""
    from pump_lab.sim import report
    from pump_lab.sim.named_policies import by_name, simulate

    steps = case.program.steps.copy()
    steps["duration_ns"] = steps["duration_ns"] * times
    here = replace(case, program=replace(case.program, steps=steps))
    seconds = report.unlimited(here).steady.seconds
    runs = {p: simulate(by_name(p), here.program, here.machine) for p in POLICIES}
    found = {policy: run.steady.seconds / seconds for policy, run in runs.items()}
    found["floor"] = max(1.0, max(least(here)) / seconds)
    return {name: round(value, 3) for name, value in found.items()}


def curve(program: Program, profile: Profile) -> dict[str, Any]:
    """Returns all points of one program."""
    case = case_of(program, profile)
    compute_seconds, link_seconds = least(case)
    own = compute_seconds / link_seconds
    return {
        "program": program.name,
        "given_x": round(own, 3),
        "points": [{"x": 2.0**power, **point(case, 2.0**power / own)} for power in POWERS],
    }


def picture(found: dict[str, Any]) -> str:
    """Returns the curve of one program as SVG: both axes are logarithmic."""
    from pump.report import svg
    from pump_lab.sim.picture import curves

    points = found["points"]
    xs = [math.log2(point["x"]) for point in points]
    return curves(
        f"{found['program']}: slowdown with half of the memory (simulated, {PROFILE})",
        xs,
        [
            svg.Series(name, colour, [math.log2(point[name]) for point in points])
            for name, colour in COLOURS.items()
        ],
        x=svg.axis(min(xs), max(xs), _power),
        y=svg.axis(0.0, 8.0, lambda power: f"{2**power:.3g}x"),
        x_unit="time of kernels / time of the link",
        mark=("this program", math.log2(found["given_x"])),
    )


def table() -> str:
    """Returns the table of docs/guides/choose.md: for each X, least and greatest slow-down."""
    curves = json.loads(DATA.read_text(encoding="utf-8"))["curves"]
    lines = [
        "| time of kernels / time of the link | pump | Unified Memory | floor |",
        "|---|---|---|---|",
    ]
    for points in reversed(list(zip(*(curve["points"] for curve in curves), strict=True))):
        cells = [f"{points[0]['x']:.3g}"]
        for names in (("window", "planned"), ("naive",), ("floor",)):
            found = [point[name] for point in points for name in names]
            cells.append(" to ".join(dict.fromkeys(f"{end(found):.1f}" for end in (min, max))))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _power(power: float) -> str:
    """Returns a power of 2 as text: "1/16", "4"."""
    return f"1/{2**-power:.3g}" if power < 0 else f"{2**power:.3g}"


def main() -> int:
    """Simulates all programs, writes data and pictures."""
    from pump_lab import profiles

    profile = profiles.load(PROFILE)
    curves = []
    for program in programs(profile):
        curves.append(curve(program, profile))
        print(json.dumps(curves[-1]), flush=True)
    FOLDER.mkdir(exist_ok=True)
    data = {"profile": PROFILE, "oversubscription": RATIO, "simulated": True, "curves": curves}
    DATA.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    for found in curves:
        if found["program"] not in PICTURED:
            continue
        file = FOLDER / f"intensity-{found['program']}.svg"
        file.write_text(picture(found), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
