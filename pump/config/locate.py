"""Finds the line of each key of a TOML file, for messages. No I/O.

tomllib does not report lines. This module scans a text that tomllib has accepted, so the syntax is
valid, and the scan only needs to recognise strings, comments and brackets to find keys. A key in an
inline table or an array has the line of the key that contains it.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator

Path = tuple[str, ...]
PARTS_MAX = 4
"""Most parts of a path; deeper keys have the line of their parent."""

_SKIPPED = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_TEXTS = (
    r'"""(?:[^\\]|\\.)*?"{3,5}',
    r"'''.*?'{3,5}",
    r'"(?:[^"\\\n]|\\.)*"',
    r"'[^'\n]*'",
)
_TEXT = re.compile("|".join(_TEXTS), re.DOTALL)
_PART = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')"""
_KEY = re.compile(rf"{_PART}(?:[ \t]*\.[ \t]*{_PART})*")
_FIRST = re.compile(rf"{_PART}(?:[ \t]*\.[ \t]*{_PART}){{,{PARTS_MAX - 1}}}")


def lines(text: str) -> dict[Path, int]:
    """Returns line numbers, from 1, by the path of a key: ("job",) for [job], ("job", "budget").

    The first line with a path counts.
    """
    found: dict[Path, int] = {}
    line, counted = 1, 0
    for path, position in _keys(text):
        line, counted = line + text.count("\n", counted, position), position
        for length in range(1, min(len(path), PARTS_MAX) + 1):
            found.setdefault(path[:length], line)
    return found


def _keys(text: str) -> Iterator[tuple[Path, int]]:
    table: Path = ()
    position = _end_of_match(_SKIPPED, text, 0)
    while position < len(text):
        start = position
        header = text[position] == "["
        while header and text[position] in "[ \t":
            position += 1
        key = _KEY.match(text, position)
        if key is None:
            return
        path = _parts(key[0])
        if header:
            table = path
            yield table, start
            end = text.find("\n", key.end())
            position = len(text) if end < 0 else end
        else:
            yield table + path, start
            position = _value_end(text, text.index("=", key.end()) + 1)
        position = _end_of_match(_SKIPPED, text, position)


def _parts(key: str) -> Path:
    """Returns the first names of a dotted key, as tomllib reads them."""
    parts: list[str] = []
    first = _FIRST.match(key)
    table = tomllib.loads(f"{first[0] if first else key} = 0")
    while True:
        name, content = next(iter(table.items()))
        parts.append(name)
        if not isinstance(content, dict):
            return tuple(parts)
        table = content


def _value_end(text: str, position: int) -> int:
    """Returns the end of the last line of the value that begins at `position`."""
    depth = 0
    while position < len(text):
        letter = text[position]
        if letter in "\"'":
            position = _end_of_match(_TEXT, text, position)
            continue
        if letter == "#":
            end = text.find("\n", position)
            position = len(text) if end < 0 else end
            continue
        if letter == "\n" and depth == 0:
            return position
        depth += (letter in "[{") - (letter in "]}")
        position += 1
    return position


def _end_of_match(pattern: re.Pattern[str], text: str, position: int) -> int:
    match = pattern.match(text, position)
    return match.end() if match and match.end() > position else position + (pattern is _TEXT)
