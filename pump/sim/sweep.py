"""The slow-down over memory sizes of a GPU, as a table and as a drawing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

from pump.model.bounds import BLOCK_BYTES
from pump.report import svg
from pump.sim import report
from pump.sim.named_policies import NamedPolicy, simulate
from pump.sim.report import GIB, Case, Figures

SHARES: Final = (1.05, 1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.25, 0.2)
"""Of the trace's peak, largest first."""

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
    """Slow-downs of every candidate, and of the floor, at each share of the peak. step: entered
    for each size, with its name, as Progress.step."""
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
    return {**head, "unlimited_seconds": seconds, "points": points, "left_out": left_out}


def sizes(case: Case) -> list[int]:
    """Memory sizes of the curve: whole blocks, largest first, each once: a small peak has few."""
    peak_bytes = case.program.peak_bytes
    found = [int(peak_bytes * share) // BLOCK_BYTES * BLOCK_BYTES for share in SHARES]
    return list(dict.fromkeys(max(size, LEAST_BYTES) for size in found))


def as_text(found: Figures) -> str:
    """A line for each size."""
    names = list(found["points"][0]["slowdown"])
    lines = [
        *report.heading(found),
        f"{'profile':<12} {found['profile']} {found['profile_hash']}",
        "",
    ]
    rows = [["GPU memory", "of peak", *names]]
    for point in found["points"]:
        size = point["gpu_memory_bytes"]
        cells = (f"{point['slowdown'][name]:.2f}x" for name in names)
        rows.append([report.gib(size), f"{size / found['peak_bytes']:.0%}", *cells])
    return "\n".join([*lines, *report.table(rows), *report.caveats(found)])


def as_svg(found: Figures) -> str:
    """The curve as an SVG picture."""
    points = found["points"]
    names = list(points[0]["slowdown"])
    unit, unit_bytes = ("GiB", GIB) if points[0]["gpu_memory_bytes"] >= GIB else ("MiB", GIB >> 10)
    return svg.curves(
        f"{found['trace']}: slow-down by GPU memory (simulated)",
        [point["gpu_memory_bytes"] / unit_bytes for point in points],
        [
            svg.Series(
                name,
                FLOOR_COLOUR if name == "floor" else COLOURS[number % len(COLOURS)],
                [point["slowdown"][name] for point in points],
            )
            for number, name in enumerate(names)
        ],
        words=lambda slowdown: f"{slowdown:.1f}x",
        x_unit=f"{unit} of GPU memory",
    )
