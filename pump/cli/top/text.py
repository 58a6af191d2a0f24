"""Lines of a screen, and sparklines. No I/O.

Names come from users: a line holds no control character.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from rich.text import Text

from pump.names import printable

SPARKS = "▁▂▃▄▅▆▇█"
ASCII_SPARKS = "_.-=+*%#"


def line(*parts: str | Text | tuple[str, str]) -> Text:
    """Returns a line of texts and of (text, style), which a narrow screen cuts."""
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
    """Returns as much of a text as `width` columns hold. pad: filled up with blanks."""
    shown = Text(printable(text))
    shown.truncate(max(0, width), overflow="ellipsis", pad=pad)
    return shown.plain


def sparkline(values: Iterable[float], width: int, marks: str = SPARKS) -> str:
    """Returns the last `width` values as one character each, the largest as the highest mark.
    Only 0 has the lowest mark. Filled up with blanks."""
    last = list(values)[-width:]
    most = max(last, default=0.0)
    top = len(marks) - 1
    drawn = (marks[math.ceil(value / most * top)] if most > 0 else marks[0] for value in last)
    return "".join(drawn).ljust(width)
