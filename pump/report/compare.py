"""Compares the times of two runs of one program. Pure.

The other run has enough memory, so the difference is the time lost to memory, measured and not
estimated. Both runs are compared up to the last operation that both executed. So a recording that
was cut off can be compared, too. The error is half the time between two points of a recording's
pace, which has pump.report.gather.POINTS points. It does not include chance: `pump compare` repeats
runs for that.
"""

from __future__ import annotations

from typing import Any, Final

SAME: Final = 0.9
"""Least share of each run's launches whose kernels the other run has, too."""


class OtherProgramError(ValueError):
    """The recordings are of different programs; the text is the reason."""


def compared(report: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Returns the comparison of two reports (pump.report.gather), for JSON. Seconds count up to the
    last operation that both runs executed. lost_share: share of the first run's time; negative if
    the first run was faster.

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
    """Returns the share of the report's launches whose kernels the other report has, too."""
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
    """Returns when `count` operations had executed, in seconds from the first launch, and its
    error. The pace between two points is assumed to be even."""
    operations: list[float] = report["pace"]["operations"]
    seconds: list[float] = report["pace"]["seconds"]
    place = next(i for i, done in enumerate(operations) if done >= count)
    before, since = (operations[place - 1], seconds[place - 1]) if place else (0.0, 0.0)
    if operations[place] == count:
        return seconds[place], 0.0
    part = (count - before) / (operations[place] - before)
    span = seconds[place] - since
    return since + part * span, span / 2
