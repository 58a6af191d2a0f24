"""Statistics of the benchmarks: percentiles, medians of paired ratios, their intervals. Pure.

DESIGN
  A comparison is a list of pairs: both sides are measured directly one after the other, so that
  other load on the machine affects both. Its figure is the median of the pairs' ratios.

  The interval of that median comes from the sign test (Conover, Practical Nonparametric
  Statistics, 3.2): of n independent ratios the number below the true median is binomial(n, 1/2),
  so the k-th smallest and the k-th largest ratio enclose it with a probability of n and k alone.
  It assumes no distribution, and the same values give the same interval. With fewer than six
  pairs no interval reaches 95 %, and there is none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Paired:
    """Result of a comparison: `ratio` is the median of first / second over the pairs.

    The medians are in the unit of the measurements. `interval` holds the true median
    of the ratio with at least 95 %; None if there are too few pairs for one.
    """

    first_median: float
    second_median: float
    ratio: float
    interval: tuple[float, float] | None
    pairs: int


def percentile(values: Sequence[float], percent: float) -> float:
    """Value below which `percent` of the values lie, linear between neighbours.

    Raises ValueError for no values, or a percent outside 0 to 100.
    """
    if not values:
        raise ValueError("a percentile of no values")
    if not 0 <= percent <= 100:
        raise ValueError(f"percent is {percent}; it must lie in 0 to 100")
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def coverage(count: int, rank: int) -> float:
    """Probability that the rank-th smallest and the rank-th largest of `count` values enclose the
    median."""
    outside = sum(math.comb(count, below) for below in range(rank))
    return float(1 - outside / (1 << (count - 1)))


def interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Narrowest pair of order statistics that holds the true median with 95 %, or None."""
    count = len(values)
    ranks = [r for r in range(1, count // 2 + 1) if coverage(count, r) >= CONFIDENCE]
    if not ranks:
        return None
    ordered = sorted(values)
    return ordered[ranks[-1] - 1], ordered[-ranks[-1]]


def compare(first: Sequence[float], second: Sequence[float]) -> Paired:
    """Comparison of measurements that were taken in pairs.

    Raises ValueError for sides of different length, no pairs, or values not above 0.
    """
    if len(first) != len(second):
        raise ValueError(f"{len(first)} measurements against {len(second)}")
    for value in (*first, *second):
        if not (value > 0 and math.isfinite(value)):
            raise ValueError(f"{value} cannot be part of a ratio; it must be above 0")
    ratios = [a / b for a, b in zip(first, second, strict=True)]
    return Paired(median(first), median(second), median(ratios), interval(ratios), len(ratios))
