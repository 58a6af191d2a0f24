"""Lines of a screen: spans of text with a style, and sparklines. No I/O.

Names come from users: a line holds no control character, and is cut at the screen's width.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pump.cli.support.columns import columns_of, cut
from pump.names import printable

SGR = {"bold": "1", "dim": "2", "chosen": "7", "title": "1;36"}
SGR |= {"good": "32", "warn": "33", "bad": "31", "bar": "36", "in": "36", "out": "35"}
"""Styles, as ECMA-48's parameters of Select Graphic Rendition."""
PLAIN = frozenset(("bold", "chosen"))
"""Styles that stay where colour is not wanted: they tell something."""
SPARKS = "▁▂▃▄▅▆▇█"
ASCII_SPARKS = "_.-=+*%#"


class Span(NamedTuple):
    """Some text of a line in one style, a key of SGR or ""."""

    text: str
    style: str = ""


Line = Sequence[Span]


def line(*parts: str | Span | tuple[str, str]) -> list[Span]:
    """A line of texts and of (text, style), without control characters."""
    spans = [Span(part) if isinstance(part, str) else Span(*part) for part in parts]
    return [Span(printable(span.text), span.style) for span in spans]


def plain(spans: Line) -> str:
    """A line without its styles."""
    return "".join(span.text for span in spans).rstrip()


def painted(spans: Line, width: int, *, colour: bool) -> str:
    """A line for a terminal, cut at `width` columns."""
    shown, left = [], width
    for text, style in spans:
        part = cut(text, left)
        left -= columns_of(part)
        code = SGR.get(style, "") if colour or style in PLAIN else ""
        shown.append(f"\x1b[{code}m{part}\x1b[m" if code and part else part)
        if part != text:
            break
    return "".join(shown)


def sparkline(values: Iterable[float], width: int, marks: str = SPARKS) -> str:
    """The last `width` values as one character each, the largest of them the highest; what is
    not nothing does not look like it."""
    last = list(values)[-width:]
    most = max(last, default=0.0)
    top = len(marks) - 1
    drawn = (marks[math.ceil(value / most * top)] if most > 0 else marks[0] for value in last)
    return "".join(drawn).rjust(width)
