"""Formats lines of a screen, and sparklines. No I/O.

Names come from users, so control characters are replaced.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from rich.text import Text

from pump.base.names import printable

SPARKS = "▁▂▃▄▅▆▇█"
ASCII_SPARKS = "_.-=+*%#"


def line(*parts: str | Text | tuple[str, str]) -> Text:
    """Returns a line of texts and of (text, style). A narrow screen cuts the line."""
    clean = [
        (printable(part[0]), part[1])
        if isinstance(part, tuple)
        else printable(part)
        if isinstance(part, str)
        else part
        for part in parts
    ]
    return Text.assemble(*clean, no_wrap=True, overflow="ellipsis")


def cut(text: str, width: int, *, pad: bool = False) -> str:
    """Returns a text, cut to `width` columns. pad: fill up with blanks."""
    shown = Text(printable(text))
    shown.truncate(max(0, width), overflow="ellipsis", pad=pad)
    return shown.plain


def sparkline(values: Iterable[float], width: int, marks: str = SPARKS) -> str:
    """Returns the last `width` values as one character each, filled up with blanks. The largest
    value has the highest mark; only 0 has the lowest mark."""
    last = list(values)[-width:]
    most = max(last, default=0.0)
    top = len(marks) - 1
    drawn = (marks[math.ceil(value / most * top)] if most > 0 else marks[0] for value in last)
    return "".join(drawn).ljust(width)
