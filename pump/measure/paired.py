"""Orders measurements in rounds; computes medians of paired ratios, intervals, percentiles. Pure.

DESIGN
  A comparison is a list of pairs. Both sides of a pair are measured directly one after the other,
  so that other load on the machine affects both. The result is the median of the pairs' ratios.

  The interval of that median comes from the sign test (Conover, Practical Nonparametric Statistics,
  3.2). Among n independent ratios, the number below the true median is binomial(n, 1/2). So the
  k-th smallest and the k-th largest ratio enclose the median with a probability that depends only
  on n and k. The test assumes no distribution, and the same values give the same interval. With
  fewer than six pairs no interval reaches 95 %. `interval` then returns None, and `enclosing` the
  whole range with its confidence.

Standard library only: benchmarks and the acceptance of a GPU use it before pump is installed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import median
from typing import NamedTuple

CONFIDENCE = Fraction(95, 100)


@dataclass(frozen=True)
class Paired:
    """Result of a comparison: `ratio` is the median of first / second over the pairs.

    The medians are in the unit of the measurements. `interval` contains the true median of the
    ratio with a confidence of at least 95 %; None if there are too few pairs.
    """

    first_median: float
    second_median: float
    ratio: float
    interval: tuple[float, float] | None
    pairs: int


class Enclosed(NamedTuple):
    """A range that contains the true median of some values with this confidence, 0 to 1."""

    low: float
    high: float
    confidence: float


def in_rounds(names: Sequence[str], count: int) -> Iterator[tuple[int, str]]:
    """Yields (round, name) for `count` rounds. Each round has every name once.

    The order rotates by one place from round to round, so that no name always follows the same
    other name; two names alternate. Rounds begin with 0.
    """
    for turn in range(count):
        start = turn % len(names)
        for name in (*names[start:], *names[:start]):
            yield turn, name


def percentile(values: Sequence[float], percent: float) -> float:
    """Returns the value below which `percent` of the values are, linear between neighbours.

    Raises ValueError for no values, or a percent outside 0 to 100.
    """
    if not values:
        raise ValueError("a percentile of no values")
    if not 0 <= percent <= 100:
        raise ValueError(f"percent must be from 0 to 100, not {percent}")
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Returns the narrowest pair of values that encloses the true median with 95 %, or None."""
    if not values:
        return None
    found = enclosing(values)
    return (found.low, found.high) if found.confidence >= CONFIDENCE else None


def enclosing(values: Sequence[float]) -> Enclosed:
    """Returns the narrowest pair of values that encloses the true median with 95 %; with too few
    values, the least and the greatest one. Raises ValueError for no values."""
    if not values:
        raise ValueError("a range of no values")
    count = len(values)
    # There are 2^count equally likely ways in which values are above or below the true median. In
    # `ways` of these exactly `rank` values are below, in `outside` fewer.
    outside_max = int((1 - CONFIDENCE) / 2 * 2**count)
    rank, outside, ways = 0, 0, 1
    while rank == 0 or outside + ways <= outside_max:
        outside += ways
        ways = ways * (count - rank) // (rank + 1)
        rank += 1
    ordered = sorted(values)
    return Enclosed(ordered[rank - 1], ordered[-rank], float(1 - Fraction(2 * outside, 2**count)))


def compare(first: Sequence[float], second: Sequence[float]) -> Paired:
    """Returns the comparison of measurements that were taken in pairs.

    Raises ValueError for sides of different length, no pairs, or values not above 0.
    """
    if len(first) != len(second):
        raise ValueError(f"{len(first)} measurements against {len(second)}")
    for value in (*first, *second):
        if not (value > 0 and math.isfinite(value)):
            raise ValueError(f"a ratio needs values above 0, not {value}")
    ratios = [a / b for a, b in zip(first, second, strict=True)]
    return Paired(median(first), median(second), median(ratios), interval(ratios), len(ratios))
