"""The table of papers as Markdown, from JSON rows of suites/papers.py. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

COLUMNS = "published", "reproduction", "pump", "bound"

DIGITS = {"x": 2, "%": 1, "GiB": 0}
"""Digits after the decimal point, by unit."""
UNITS = {"x": "x", "%": " %", "GiB": ""}

Fields = dict[str, Any]


def lines(rows: Iterable[Fields]) -> list[str]:
    """Returns a row for each experiment, with the options of the command that makes its cells."""
    found: dict[tuple[str, str], dict[str, Fields]] = {}
    for row in rows:
        if row["name"].startswith("papers."):
            found.setdefault((row["paper"], row["experiment"]), {})[row["column"]] = row
    head = ["paper", "experiment", *COLUMNS, "options"]
    texts = [head, ["---"] * len(head)]
    for (paper, experiment), cells in found.items():
        commands = {cell["command"] for cell in cells.values() if cell["command"]}
        options = {command.partition(f" --only {paper.lower()} ")[2] for command in commands}
        made = " or ".join(f"`{one}`" for one in sorted(options - {""}))
        texts.append([paper, experiment, *(cell_text(cells[one]) for one in COLUMNS), made])
    return ["| " + " | ".join(cells) + " |" for cells in texts]


def cell_text(cell: Fields) -> str:
    """Returns the value with the least and the most of several traces, or why there is none."""
    if cell["value"] is None:
        return str(cell["text"])
    if cell["column"] == "published":  # with its own digits
        return f"{cell['text']} {cell['value']:g}{UNITS[cell['unit']]}".strip()
    text = f"{cell['text']} {number(cell['value'], cell['unit'])}".strip()
    values = (cell.get("by_trace") or {}).values()
    if len(values) > 1:
        digits = DIGITS[cell["unit"]]
        text += f" ({min(values):.{digits}f} to {max(values):.{digits}f})"
    return text


def number(value: float, unit: str) -> str:
    """Returns the value with its unit."""
    return f"{value:.{DIGITS[unit]}f}{UNITS[unit]}"
