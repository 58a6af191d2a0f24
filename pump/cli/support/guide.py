"""Splits the guide docs/guides/why.md into entries, its sections and table rows, and finds them.

The rows below "Messages" are lines that pump prints, with "..." for names and numbers.
CMakeLists.txt installs the guide next to the libraries.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pump.base import inputs, paths

FILE = "why.md"
MESSAGES = "Messages"


class Entry(NamedTuple):
    """One section, or one table row. `key`: the heading or first cell, without Markdown. `section`:
    the heading of level 2 above it. `text`: Markdown. `row`: whether the entry is a table row."""

    key: str
    section: str
    text: str
    row: bool

    @property
    def is_message(self) -> bool:
        """Returns whether the key is a line that pump prints."""
        return self.row and self.section == MESSAGES


def load() -> list[Entry]:
    """Returns the entries of the installed guide. Raises MissingFileError."""
    return list(parse(inputs.text(paths.library(FILE))))


def parse(page: str) -> Iterator[Entry]:
    """Yields each section below the page's title and, after it, the rows of its tables."""
    section = ""
    for part in re.split(r"^(?=##+ )", page, flags=re.MULTILINE)[1:]:
        heading, _, body = part.partition("\n")
        level, _, title = heading.partition(" ")
        section = title if level == "##" else section
        yield Entry(title, section, body.strip("\n"), row=False)
        for table in re.findall(r"^\|.*\n\|[-|]+\n((?:\|.*\n?)+)", body, re.MULTILINE):
            for line in table.splitlines():
                key, text = _cells(line)
                yield Entry(key.strip("`"), section, text, row=True)


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split(" | ")]


def matches(key: str, line: str) -> bool:
    """Returns whether a printed line contains the message `key`, with any text for each "..."."""
    known = key.removeprefix("...").strip()
    pattern = ".*?".join(map(re.escape, known.split("...")))
    begin = r"\b" if known[0].isalnum() else ""
    return re.search(rf"{begin}{pattern}(?!\d)", line) is not None


def named(words: str, entries: Sequence[Entry]) -> list[Entry]:
    """Returns the entries with this key."""
    return [entry for entry in entries if _folded(entry.key) == _folded(words)]


def find(words: str, entries: Sequence[Entry]) -> list[Entry]:
    """Returns the entries with this key. If there are none: the messages that the words contain,
    else the entries with the words in their key, else in their text."""
    words = " ".join(words.split())
    if not _folded(words):
        return []
    whole = re.compile(rf"(?<!\w){re.escape(_folded(words))}(?!\w)")
    return (
        named(words, entries)
        or [entry for entry in entries if entry.is_message and matches(entry.key, words)]
        or [entry for entry in entries if whole.search(_folded(entry.key))]
        or [entry for entry in entries if not entry.row and whole.search(_folded(entry.text))]
    )


def _folded(text: str) -> str:
    """Converts to lower case, replaces "-" and "_" by blanks, and removes a final "?"."""
    return re.sub(r"[\s_-]+", " ", text).strip(" ?").lower()


def plain(markdown: str, keys: Sequence[str], width: int) -> Iterator[str]:
    """Yields the lines of a Markdown text, wrapped to `width` columns. An emphasized text that is
    one of `keys` becomes the command that explains it."""

    def command(found: re.Match[str]) -> str:
        key = found[1]
        if key not in keys:
            return key
        return f"`pump explain {key}`" if key.isascii() and " " not in key else f'"{key}"'

    text = re.sub(r"(?<![*\w])\*([^*\n]+)\*(?!\*)", command, markdown)
    for number, block in enumerate(re.split(r"\n\s*\n", text)):
        yield from [""] if number else []
        if block.startswith("    "):
            yield from block.splitlines()
        elif block.startswith("|"):
            for line in block.splitlines()[2:]:
                key, meaning = _cells(line)
                yield from _wrapped(f"{key.strip('`')}: {meaning}", width, "    ")
        else:
            for item in re.split(r"\n(?=- |\d+\. )", block):
                hanging = re.match(r"- |\d+\. |", item)
                yield from _wrapped(item, width, " " * len(hanging[0]) if hanging else "")


def _wrapped(text: str, width: int, indent: str) -> list[str]:
    """Wraps a paragraph, but never within `code`, so that commands can be copied."""
    whole = re.sub(r"`[^`]+`", lambda code: code[0].replace(" ", "\0"), " ".join(text.split()))
    lines = textwrap.wrap(
        whole,
        width,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace("\0", " ") for line in lines]
