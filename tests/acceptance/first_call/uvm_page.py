"""Marks the rows of docs/uvm.md that a GPU has confirmed or corrected. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from acceptance.contract import Json
from acceptance.first_call.claims import CLAIMS, WRONG, judged

TAG = "[M]"
SAID_MOST = 120


def marked(page: str, report: Mapping[str, Json], card: str) -> tuple[str, list[str]]:
    """Returns the page with a mark in each row that the report settles, and a line for each mark.

    `report`: only the transferable part (reports.transferable). `card`: name, driver, runtime,
    date. A mark goes to the end of the row's second cell and replaces an earlier mark of the same
    GPU.
    """
    lines = page.splitlines(keepends=True)
    told = []
    for claim in CLAIMS:
        found = judged(claim, report)
        at = [n for n, line in enumerate(lines) if line.startswith(f"| {claim.row}")]
        if found is None or len(at) != 1:
            continue
        verdict, value = found
        mark = f"{TAG} {f'**{verdict}**' if verdict == WRONG else verdict}, {card}: {_cell(value)}"
        cells = lines[at[0]].split(" | ")
        last = len(cells) == 2
        cell = cells[1].removesuffix("\n").removesuffix(" |") if last else cells[1]
        cell = re.sub(rf"; {re.escape(TAG)} \S+, {re.escape(card)}: [^;]*", "", cell)
        cells[1] = f"{cell}; {mark}" + (" |\n" if last else "")
        lines[at[0]] = " | ".join(cells)
        told.append(f"{verdict}: {claim.row} ... ({_cell(value)})")
    return "".join(lines), told


def _cell(value: str) -> str:
    """Returns a value as text for a table cell, without the character that ends a mark."""
    clean = "".join(
        " " if letter in "|`<>" or not letter.isprintable() else letter for letter in value
    )
    text = " ".join(clean.replace(";", ",").split())
    return text if len(text) <= SAID_MOST else f"{text[: SAID_MOST - 3]}..."
