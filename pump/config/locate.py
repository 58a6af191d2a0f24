"""On which line of a TOML file a key stands. For messages only; no I/O.

tomllib tells no places. This reads a text that tomllib has accepted, so it may trust its
syntax: it has to know strings, comments and brackets well enough to find where keys begin.
What lies in an inline table or in an array is placed on the line of the key that holds it.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator

Path = tuple[str, ...]

_SKIPPED = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_TEXTS = (
    r'"""(?:[^\\]|\\.)*?"{3,5}',
    r"'''.*?'{3,5}",
    r'"(?:[^"\\\n]|\\.)*"',
    r"'[^'\n]*'",
)
_TEXT = re.compile("|".join(_TEXTS), re.DOTALL)
_KEY = re.compile(
    r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')"""
    r"""(?:[ \t]*\.[ \t]*(?:[A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'))*"""
)


def lines(text: str) -> dict[Path, int]:
    """Line numbers, from 1, by the path of a key: ("job",) of [job], ("job", "budget").

    The first line where a path appears counts.
    """
    found: dict[Path, int] = {}
    for path, position in _keys(text):
        for length in range(1, len(path) + 1):
            found.setdefault(path[:length], text.count("\n", 0, position) + 1)
    return found


def _keys(text: str) -> Iterator[tuple[Path, int]]:
    table: Path = ()
    position = _after(_SKIPPED, text, 0)
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
        position = _after(_SKIPPED, text, position)


def _parts(key: str) -> Path:
    """The names of a dotted key, as tomllib reads them."""
    parts: list[str] = []
    table = tomllib.loads(f"{key} = 0")
    while True:
        name, content = next(iter(table.items()))
        parts.append(name)
        if not isinstance(content, dict):
            return tuple(parts)
        table = content


def _value_end(text: str, position: int) -> int:
    """Where the line ends on which the value that begins at `position` does."""
    depth = 0
    while position < len(text):
        letter = text[position]
        if letter in "\"'":
            position = _after(_TEXT, text, position)
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


def _after(pattern: re.Pattern[str], text: str, position: int) -> int:
    match = pattern.match(text, position)
    return match.end() if match and match.end() > position else position + (pattern is _TEXT)
