"""Means over cases, and the tables of docs/evidence.md, from rows of suites/evidence.py. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import geometric_mean
from typing import TYPE_CHECKING, Any, Final

from published.table import markdown

if TYPE_CHECKING:
    from evidence.cases import Case

Fields = dict[str, Any]
MEAN_LEAST: Final = 0.01
ROW_LEAST: Final = 0.05
"""Least gain of a mechanism that pays: in the mean of all cases, or in any one of them."""
SHOWN_BY: Final = {"gain": "the model", "not modelled": "question", "invariant": "test"}
"""By class of mechanism (mechanisms.toml)."""


def figures(ratios: Mapping[Case, float]) -> Fields:
    """Returns the mean of all ratios and of each group, both extremes, and means by host. Means by
    host cover only the cases that all hosts have."""
    hosts = list(dict.fromkeys(case.host for case in ratios))
    common = [case for case in ratios if all(case._replace(host=host) in ratios for host in hosts)]
    best = max(ratios, key=lambda case: ratios[case])
    worst = min(ratios, key=lambda case: ratios[case])
    return {
        "mean": geometric_mean(ratios.values()),
        "means": {host: geometric_mean(ratios[case] for case in common if case.host == host)
                  for host in hosts},
        "groups": {group: geometric_mean(ratios[case] for case in ratios if case.group == group)
                   for group in dict.fromkeys(case.group for case in ratios)},
        "best": [ratios[best], best.text()],
        "worst": [ratios[worst], worst.text()],
        "cases": len(ratios),
    }  # fmt: skip


def pays(row: Fields) -> bool:
    """Returns whether a change costs enough that its mechanism pays."""
    return bool(row["value"] >= 1 + MEAN_LEAST or row["best"][0] >= 1 + ROW_LEAST)


def lines(rows: list[Fields]) -> Iterator[str]:
    """Yields the lines of the tables: mechanisms, then changes."""
    rows = [row for row in rows if "mechanism" in row]
    mechanisms: dict[str, list[Fields]] = {}
    for row in rows:
        mechanisms.setdefault(row["mechanism"], []).append(row)
    yield from markdown(
        ["mechanism", "decision", "lines", "mean gain", "best", "shown by"],
        (_mechanism(name, changes) for name, changes in mechanisms.items()),
    )
    yield ""
    yield from markdown(
        ["mechanism", "instead", "desktop", "server", "vm", "cases", "best", "worst", "pays"],
        (_change(row) for row in rows if row["value"] is not None),
    )


def _mechanism(name: str, changes: list[Fields]) -> list[str]:
    first = changes[0]
    measured = first["value"] is not None
    decisions = ", ".join(one[:4] for one in first["decisions"])
    return [
        f"**{name}**: {first['what']}",
        decisions,
        str(first["lines"]),
        percent(first["value"]) if measured else "",
        percent(first["best"][0]) if measured else "",
        " ".join([SHOWN_BY[first["class"]], *(f"`{one}`" for one in first["proof"])]),
    ]


def _change(row: Fields) -> list[str]:
    means = [row["means"].get(host) for host in ("desktop", "server", "vm")]
    best, worst = (f"{percent(row[end][0])} ({row[end][1]})" for end in ("best", "worst"))
    return [
        row["mechanism"],
        row["change"],
        *("" if one is None else percent(one) for one in means),
        str(row["cases"]) + (f" of {row['cases'] + row['missing']}" if row["missing"] else ""),
        best,
        worst,
        "yes" if pays(row) else "no",
    ]


def percent(ratio: float) -> str:
    """Returns a gain in percent as text: 1.02 is +2.0. Larger ones are factors."""
    return f"{(ratio - 1) * 100:+.1f}" if ratio < 3 else f"{ratio:.1f}x"
