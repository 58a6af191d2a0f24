"""The slowdown over memory sizes of a GPU, as a table and as a plot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

from pump.model.bounds import BLOCK_BYTES
from pump.report import svg
from pump.report.words import percent
from pump_lab.sim import picture, report
from pump_lab.sim.named_policies import NamedPolicy, simulate
from pump_lab.sim.report import GIB, Case, Figures

SHARES: Final = (1.05, 1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.25, 0.2)
"""Shares of the trace's peak, largest first."""

LEAST_BYTES: Final = 8 * BLOCK_BYTES

COLOURS: Final = (
    *("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b", "#e377c2", "#17becf"),
    *("#bcbd22", "#000080", "#808000", "#ff00ff"),
)
FLOOR_COLOUR: Final = "#555555"


def over_memory(
    case: Case,
    candidates: Sequence[NamedPolicy],
    step: Callable[[str], AbstractContextManager[object]] = nullcontext,
) -> Figures:
    """Returns the slowdowns of every candidate and of the floor at each share of the peak. `step`:
    A context manager that is entered for each size, with its name, like Progress.step."""
    seconds = report.unlimited(case).steady.seconds
    runs, left_out = report.able(case, candidates)
    points: list[dict[str, Any]] = []
    for memory_bytes in sizes(case):
        here = case.with_memory(memory_bytes)
        with step(report.gib(memory_bytes)):
            slowdowns = {
                c.name: simulate(c, here.of(c) or program, here.machine).steady.seconds / seconds
                for c, program in runs
            }
            slowdowns["floor"] = max(1.0, report.floor(here).seconds / seconds)
        points.append({"gpu_memory_bytes": here.machine.memory_bytes, "slowdown": slowdowns})
    head = report.about(case)
    del head["gpu_memory_bytes"], head["oversubscription"]
    head |= report.as_recorded(case)
    return {**head, "unlimited_seconds": seconds, "points": points, "left_out": left_out}


def sizes(case: Case) -> list[int]:
    """Returns the memory sizes of the curve: whole blocks, without repetition, largest first."""
    peak_bytes = case.program.peak_bytes
    found = [int(peak_bytes * share) // BLOCK_BYTES * BLOCK_BYTES for share in SHARES]
    return list(dict.fromkeys(max(size, LEAST_BYTES) for size in found))


def as_text(found: Figures) -> str:
    """Returns the result at about half of the peak, and a line for each size."""
    names = list(found["points"][0]["slowdown"])
    half = min(
        found["points"], key=lambda p: abs(2 * int(p["gpu_memory_bytes"]) - found["peak_bytes"])
    )
    size = half["gpu_memory_bytes"]
    slowdowns = ", ".join(f"{n} {half['slowdown'][n]:.2f}x" for n in names if n != "floor")
    result = (
        f"With {report.gib(size)} ({percent(size / found['peak_bytes'])} of the peak): "
        f"{slowdowns} the time with enough memory"
    )
    rows = [["GPU memory", "of peak", *names]]
    for point in found["points"]:
        size = point["gpu_memory_bytes"]
        cells = (f"{point['slowdown'][name]:.2f}x" for name in names)
        rows.append([report.gib(size), f"{size / found['peak_bytes']:.0%}", *cells])
    lines = [*report.heading(found, result), *report.table(rows), ""]
    return "\n".join([*lines, *report.settings(found), *report.caveats(found)])


def as_svg(found: Figures) -> str:
    """Returns the curve as an SVG image."""
    points = found["points"]
    names = list(points[0]["slowdown"])
    unit, unit_bytes = ("GiB", GIB) if points[0]["gpu_memory_bytes"] >= GIB else ("MiB", GIB >> 10)
    xs = [point["gpu_memory_bytes"] / unit_bytes for point in points]
    most = max(max(point["slowdown"].values()) for point in points)
    return picture.curves(
        f"{found['trace']}: slowdown by GPU memory (simulated)",
        xs,
        [
            svg.Series(
                name,
                FLOOR_COLOUR if name == "floor" else COLOURS[number % len(COLOURS)],
                [point["slowdown"][name] for point in points],
            )
            for number, name in enumerate(names)
        ],
        x=svg.axis(min(xs), max(xs), lambda value: f"{value:.4g} {unit}"),
        y=svg.axis(1.0, max(1.01, most), lambda value: f"{value:.3g}x", whole=True),
        x_unit="GPU memory",
    )
