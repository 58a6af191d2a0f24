"""Tables of docs/sparse.md, from JSON rows of suites/remote.py. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from published.table import markdown

Fields = dict[str, Any]
A100, H100 = "remote.a100.", "remote.h100."
SHOWN = re.compile(
    r"table\.2x\.(128|512)\..*|table\.4x\.128\.64th|zipf\.100\.hashed\.hot"
    r"|paged\.(8th|half|all)|(mixed|many)\.64th|dense\.[128]"
)
"""Cases in the tables; the stored results have all."""
HEAD = ["case", "naive", "window", "in place", "without misses", "naive / in place",
        "window / in place", "the same, H100", "0.8 / share"]  # fmt: skip


def lines(rows: Iterable[Fields]) -> Iterator[str]:
    """Yields one table, of the A100 but for one column. Times are of a step."""
    found = {row["name"]: row for row in rows}
    cases = [name.removeprefix(A100) for name in found if name.startswith(A100)]
    shown = filter(SHOWN.fullmatch, cases)
    yield from markdown(HEAD, (_cells(one, found[A100 + one], found[H100 + one]) for one in shown))


def _cells(case: str, a100: Fields, h100: Fields) -> list[str]:
    return [
        case,
        f"{a100['naive_least_s']:.3g}-{a100['naive_most_s']:.3g} s",
        _ms(a100["window_s"]),
        _ms(a100["value"]),
        _ms(a100["no_walks_s"]),
        _times(a100["over_naive"]),
        *(_over_window(row) for row in (a100, h100)),
        _times(0.8 / a100["share"]),
    ]


def _over_window(row: Fields) -> str:
    met = row["over_window"] >= 0.8 / row["share"]
    return _times(row["over_window"]) + ("" if met else " (less)")


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds < 0.9995 else f"{seconds:.3g} s"


def _times(value: float) -> str:
    return f"{value:.0f}" if value >= 99.5 else f"{value:.2g}"
