"""Groups of results, and the tables of docs/published.md, from JSON rows of suites/published.py.
Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator
from typing import Any

Fields = dict[str, Any]


def groups(rows: Iterable[Fields]) -> list[Fields]:
    """Returns statistics of the ratios model / published in each group.

    `mean`: the geometric mean; None if a ratio is not above 0. `spread`: the geometric standard
    deviation, a factor. `mean_server`: the mean with a server as each host. `sources`: their
    number.
    """
    members: dict[str, list[Fields]] = {}
    for row in rows:
        members.setdefault(row["group"], []).append(row)
    found = []
    for group, figures in members.items():
        ratios = [row["ratio"] for row in figures]
        mean, spread = _geometric(ratios)
        found.append(
            {
                "case": group,
                "mean": mean,
                "spread": spread,
                "least_ratio": min(ratios),
                "most_ratio": max(ratios),
                "mean_server": _geometric([row["ratio_server"] for row in figures])[0],
                "figures": len(figures),
                "sources": len({row["sources"][0] for row in figures}),
            }
        )
    return found


def _geometric(ratios: list[float]) -> tuple[float | None, float | None]:
    """Returns the geometric mean and standard deviation, or None unless all are above 0."""
    if min(ratios) <= 0:
        return None, None
    logs = [math.log(ratio) for ratio in ratios]
    return math.exp(statistics.fmean(logs)), math.exp(statistics.pstdev(logs))


def lines(rows: list[Fields]) -> Iterator[str]:
    """Yields the lines of three tables: groups, results, and the sources by number."""
    numbers: dict[str, int] = {}
    for row in rows:
        for source in row["sources"]:
            numbers.setdefault(source, len(numbers) + 1)
    yield from markdown(
        ["group", "values", "sources", "mean", "least to most", "spread", "mean, all as server"],
        (
            [
                found["case"],
                str(found["figures"]),
                str(found["sources"]),
                _number(found["mean"]),
                f"{_number(found['least_ratio'])} to {_number(found['most_ratio'])}",
                _number(found["spread"]),
                _number(found["mean_server"]),
            ]
            for found in groups(rows)
        ),
    )
    yield ""
    yield from markdown(
        ["name", "GPU", "host", "kind", "quantity", "published", "model", "ratio", "source"],
        (
            [
                row["id"] + (" (profiled)" if row["profiled"] else ""),
                row["card"] or "not named",
                row["host"],
                row["kind"],
                row["quantity"],
                f"{row['baseline']:.4g} {row['unit']}".removesuffix(" 1"),
                f"{row['value']:.4g} {row['unit']}".removesuffix(" 1"),
                _number(row["ratio"]),
                ", ".join(str(numbers[source]) for source in row["sources"]),
            ]
            for row in rows
        ),
    )
    yield ""
    yield from markdown(
        ["number", "source"], ([str(number), source] for source, number in numbers.items())
    )


def constants(rows: Iterable[Fields]) -> Iterator[str]:
    """Yields the lines of a table with the evidence for each constant of the host, then a line with
    the constants that have none."""
    found = sorted(rows, key=lambda row: -row["value"])
    yield from markdown(
        ["constant", "values", "sources", "most moved", "best factor", "without one source"],
        (
            [
                f"`{row['case']}`",
                f"{row['value']:.0f}",
                str(len(row["sources"])),
                ", ".join(
                    f"{name} {by:g}x"
                    for name, by in sorted(
                        row["moves"].items(), key=lambda one: -abs(math.log(one[1]))
                    )[:3]
                ),
                f"{row['best']:g}" if "best" in row else "",
                ", ".join(f"{by:g}" for by in sorted(row.get("left_out", {}).values())),
            ]
            for row in found
            if row["moves"]
        ),
    )
    yield ""
    bare = ", ".join(f"`{row['case']}`" for row in found if not row["moves"])
    yield f"Assumed, because no published value depends on them: {bare}."


def markdown(head: list[str], cells: Iterable[list[str]]) -> Iterator[str]:
    """Yields the lines of a table in Markdown."""
    for texts in (head, ["---"] * len(head), *cells):
        safe = (text.replace("|", "/").replace("<", "&lt;") for text in texts)
        yield f"| {' | '.join(safe)} |"


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.2f}"
