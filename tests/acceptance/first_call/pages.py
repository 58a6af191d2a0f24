"""Fills docs/first-card.md with the answers of an adopted folder of results."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from probe.transfer import GVISOR, KEY

from acceptance import results
from acceptance.contract import Json
from acceptance.first_call.reports import transferable
from acceptance.first_card import page as first_card

CARD = "card.json"
"""Labels of a folder of results; a folder without it was not adopted."""


def newest(place: Path) -> Path | None:
    """Returns the folder whose answers docs/first-card.md shows; None without one.

    Chooses the newest one with a report. One from gVisor, with fewer answers, is the last resort.
    """
    found = []
    for file in place.glob(f"*/{CARD}"):
        card = results.read(file)
        if card and not card.get("quick") and (file.parent / "probe/gpu_probe.json").exists():
            name = file.parent.name  # a number at its end makes it longer
            rank = (card.get("runtime") != GVISOR, str(card.get("date")), len(name), name)
            found.append((rank, file.parent))
    return max(found)[1] if found else None


def first_card_page(folder: Path | None) -> str:
    """Returns the page with the transferable answers in `folder`; None means no GPU was asked yet.

    Raises ValueError if the folder has neither a report nor the results of a stage.
    """
    if folder is None:
        return first_card.page(None, {})
    report, stages = first_card.load(folder)
    card = results.read(folder / CARD) or {}
    if report is not None:
        report = {**transferable(report), "device": {"name": card.get("label", "")}}
    held = {name: _held(result) for name, result in stages.items()}
    text = first_card.page(report, held)
    filled = first_card.origin(report or next(iter(held.values())))
    return text.replace(filled, f"**Filled in:** {card.get('label', folder.name)}\n")


def _held(result: Mapping[str, Any]) -> Mapping[str, Json]:
    """Returns a stage's result; without its items if they hold only for one runtime."""
    reasons = [item["values"][KEY] for item in result["items"] if item["values"].get(KEY)]
    return {**result, "items": [], "not_adopted": reasons[0]} if reasons else result
