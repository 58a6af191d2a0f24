"""What a run took longer than another one of the same program. Pure.

The other one is a run with memory for everything, so the difference is the time lost to memory:
measured, not estimated. Both are compared up to the last operation that both have executed, so a
recording that was cut off compares too. The error is that of the two points between which that
operation lies: a recording's pace has pump.report.gather.POINTS points. How much two runs differ
by chance it does not hold: `pump compare` repeats runs for that.
"""

from __future__ import annotations

from typing import Any, Final

SAME: Final = 0.9
"""Least share of the launches of each that are of kernels of both."""


class OtherProgramError(ValueError):
    """The recordings are not of one program; the text says why."""


def compared(report: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """The comparison of two reports (pump.report.gather), for JSON. Seconds are those up to the
    last operation that both executed. lost_share: of the first run's time; negative where
    the first was faster.

    Raises OtherProgramError.
    """
    if min(_shared(report, other), _shared(other, report)) < SAME:
        raise OtherProgramError(f"it launches other kernels than {report['file']}")
    count = min(_executed(report), _executed(other))
    if not count:
        raise OtherProgramError("no operation of one of the recordings is known to have executed")
    (mine, error), (others, other_error) = _until(report, count), _until(other, count)
    lost = mine - others
    return {
        "file": other["file"],
        "operations": int(count),
        "seconds": mine,
        "other_seconds": others,
        "lost_seconds": lost,
        "lost_share": lost / mine if mine > 0 else 0.0,
        "error_seconds": error + other_error,
        "other_fits": all(
            device["allocated_bytes_peak"] <= device["budget_bytes"] for device in other["devices"]
        ),
    }


def _shared(report: dict[str, Any], other: dict[str, Any]) -> float:
    """The share of the report's launches that are of kernels which the other has, too."""
    known = {kernel["name"] for kernel in other["kernel_list"]}
    counts: dict[str, int] = {
        kernel["name"]: kernel["count"]
        for kernel in report["kernel_list"]
        if not kernel["name"].startswith("(")  # copies and memsets
    }
    whole = sum(counts.values())
    return sum(n for name, n in counts.items() if name in known) / whole if whole else 1.0


def _executed(report: dict[str, Any]) -> float:
    operations: list[float] = report["pace"]["operations"]
    return max([0.0, *operations])


def _until(report: dict[str, Any], count: float) -> tuple[float, float]:
    """When so many operations had executed, in seconds from the first issue, and how far that may
    be off: between the points around it the pace is taken as even."""
    operations: list[float] = report["pace"]["operations"]
    seconds: list[float] = report["pace"]["seconds"]
    place = next(i for i, done in enumerate(operations) if done >= count)
    before, since = (operations[place - 1], seconds[place - 1]) if place else (0.0, 0.0)
    if operations[place] == count:
        return seconds[place], 0.0
    part = (count - before) / (operations[place] - before)
    span = seconds[place] - since
    return since + part * span, span / 2
