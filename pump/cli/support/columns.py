"""Text in columns of a terminal, where some characters take two and some none. No I/O."""

from __future__ import annotations

import unicodedata

MORE = "…"


def columns_of(text: str) -> int:
    """How many columns a terminal takes for a text (Unicode's East Asian Width)."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def _columns(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def cut(text: str, width: int) -> str:
    """As much of a text as `width` columns hold, with "…" for what is left out."""
    if columns_of(text) <= width:
        return text
    kept, used = "", 0
    for character in text:
        used += _columns(character)
        if used > width - 1:
            break
        kept += character
    return kept + MORE if width > 0 else ""


def fitted(text: str, width: int, *, left: bool = False) -> str:
    """A text in exactly `width` columns: cut, or filled up with blanks. left: aligned there."""
    shown = cut(text, width)
    blanks = " " * (width - columns_of(shown))
    return shown + blanks if left else blanks + shown
