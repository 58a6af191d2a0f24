"""Summarizes samples: percentiles, summaries, line fits. Pure; no driver."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from statistics import median as median  # noqa: PLC0414
from typing import Any

Json = dict[str, Any]


def percentile(ordered: Sequence[float], share: float) -> float:
    """Returns the value at `share` (0..1) of an ascending sequence, by linear interpolation."""
    if not ordered:
        raise ValueError("percentile of nothing")
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def rounded(value: float) -> float:
    """Rounds to five significant digits: precise enough here, and readable in JSON."""
    return float(f"{value:.5g}")


def summary(samples: Iterable[float], scale: float = 1.0) -> Json:
    """Returns median and spread of samples multiplied by `scale`; {"n": 0} if there are none."""
    ordered = sorted(sample * scale for sample in samples)
    if not ordered:
        return {"n": 0}
    points = {"median": 0.5, "p10": 0.1, "p90": 0.9, "p99": 0.99, "min": 0.0, "max": 1.0}
    return {"n": len(ordered)} | {k: rounded(percentile(ordered, v)) for k, v in points.items()}


def us(samples_ns: Iterable[float]) -> Json:
    """Returns a summary in microseconds of samples in nanoseconds."""
    return summary(samples_ns, 1e-3)


def line_fit(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Returns (intercept, slope) by least squares of relative errors; needs two different x.

    Errors are relative because a cost's noise grows with the cost. With absolute errors only the
    largest size would count, and its error would become the intercept.
    """
    weighted = [(x, y, 1.0 / max(abs(y), 1e-9) ** 2) for x, y in points]
    total = sum(w for _, _, w in weighted) or 1.0
    mean_x = sum(w * x for x, _, w in weighted) / total
    mean_y = sum(w * y for _, y, w in weighted) / total
    spread = sum(w * (x - mean_x) ** 2 for x, _, w in weighted)
    if len({x for x, _ in points}) < 2 or spread == 0:
        raise ValueError("a line needs at least two different x values")
    slope = sum(w * (x - mean_x) * (y - mean_y) for x, y, w in weighted) / spread
    return mean_y - slope * mean_x, slope


def gbps(length_bytes: float, time_ns: float) -> float:
    """Returns bytes per nanosecond, which equals GB/s (1e9)."""
    return rounded(length_bytes / time_ns) if time_ns > 0 else 0.0


def undisturbed(samples: Iterable[float]) -> float:
    """Returns the 10th percentile, because other work on the machine only adds to a cost."""
    return percentile(sorted(samples), 0.1)


def now() -> int:
    return time.perf_counter_ns()
