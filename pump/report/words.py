"""Formats numbers as text, for all verbs."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from pump.base.names import printable


def size(count: float, decimals: int = 1) -> str:
    """Returns bytes with a unit: "1.5 GiB". decimals: of GiB and TiB; smaller units have one."""
    if abs(count) < 1024:
        return f"{count:,.0f} bytes"
    for unit in ("KiB", "MiB", "GiB"):
        count /= 1024
        if abs(count) < 1024:
            return f"{count:.{decimals if unit == 'GiB' else 1}f} {unit}"
    return f"{count / 1024:,.{decimals}f} TiB"


def seconds(value: float, decimals: int = 1) -> str:
    """Returns a time: "12.3 ms", "4.56 s". decimals: of ms; seconds have at least two."""
    return f"{value * 1e3:.{decimals}f} ms" if value < 1 else f"{value:,.{max(2, decimals)}f} s"


def many(count: int, word: str) -> str:
    """Returns a count with its noun: "1 job", "2,000 jobs"."""
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def plain(text: object, most: int = 80) -> str:
    """Returns text from a file or a program, at most `most` characters, with "?" for control
    characters."""
    shown = printable(str(text))
    return shown if len(shown) <= most else shown[: most - 3] + "..."


def percent(part: float, decimals: int = 0) -> str:
    """Returns a part of 1 as text: "6 %"."""
    return f"{100 * part:.{decimals}f} %"


def share(part: float, whole: float) -> str:
    """Returns a percentage for narrow columns: "6.0%"; "-" if the whole is 0."""
    return f"{part / whole:.1%}" if whole else "-"


def memory(device: Mapping[str, Any]) -> str:
    """Returns the memory and the budget of a recording's device, with the range of a budget that
    changed."""
    least, most = device["least_budget_bytes"], device["most_budget_bytes"]
    notes = ["set by --budget or a lease"] if device["emulated"] else []
    notes += [f"{size(least)} to {size(most)} while recorded"] if least < most else []
    note = f" ({'; '.join(notes)})" if notes else ""
    return f"{size(device['total_bytes'])}, budget {size(device['budget_bytes'])}{note}"


def ranked(kernels: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns a recording's kernels, those with the most missed blocks and time first."""
    return sorted(
        kernels, key=lambda k: (-k["estimated_missed_blocks"], -(k["estimated_seconds"] or 0.0))
    )


def command(words: object) -> str:
    """Returns the command line of a list of arguments; "?" if it is not known."""
    return plain(shlex.join(map(str, words)), 200) if isinstance(words, list) and words else "?"
