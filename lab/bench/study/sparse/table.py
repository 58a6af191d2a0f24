"""Tables of docs/sparse.md, from JSON rows of suites/remote.py. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from published.table import markdown

Fields = dict[str, Any]
CARDS = {"a100": "A100, 40 GB, PCIe 4", "h100": "H100, 79 GiB, PCIe 5"}
SHOWN = re.compile(
    r"table\..x\.(128|512)\..*|zipf\..*\.hashed\.hot|paged\..*|mixed\..*|(ascending|many)\.64th"
    r"|dense\.[128]"
)
"""Cases in the tables; the stored results have all."""
HEAD = ["case", "share", "naive", "window", "in place", "bound", "without misses",
        "naive / in place", "window / in place", "0.8 / share"]  # fmt: skip


def lines(rows: Iterable[Fields]) -> Iterator[str]:
    """Yields a table for each card. Times are of a step."""
    kept = list(rows)
    for card, title in CARDS.items():
        prefix = f"remote.{card}."
        own = [row for row in kept if row["name"].startswith(prefix)]
        shown = [row for row in own if SHOWN.fullmatch(row["name"].removeprefix(prefix))]
        yield f"{title}:"
        yield ""
        yield from markdown(HEAD, (_cells(row, len(prefix)) for row in shown))
        yield ""


def _cells(row: Fields, prefix: int) -> list[str]:
    share = row["share"]
    met = row["over_window"] >= 0.8 / share
    return [
        row["name"][prefix:],
        f"1/{round(1 / share)}" if share < 1 else f"{share:g}",
        f"{_ms(row['naive_least_s'])} to {_ms(row['naive_most_s'])}",
        _ms(row["window_s"]),
        _ms(row["value"]),
        _ms(row["bound_s"]),
        _ms(row["no_walks_s"]),
        _times(row["over_naive"]),
        _times(row["over_window"]) + ("" if met else " (less)"),
        _times(0.8 / share),
    ]


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds < 0.9995 else f"{seconds:.3g} s"


def _times(value: float) -> str:
    return f"{value:.0f}" if value >= 99.5 else f"{value:.2g}"
