"""Texts that users of pump read: paragraphs of pages, and string literals in the code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tidy_sources import ROOT, files, name, python_files, text

PAGES = {
    "front pages": ("README.md", "docs/index.md"),
    "docs/start": ("docs/start/",),
    "docs/guides": ("docs/guides/",),
    "docs/reference": ("docs/reference/",),
    "docs/man": ("docs/man/",),
}
LITERALS = {
    "pump/cli": ("pump/cli/",),
    "pump/config": ("pump/config/",),
    "pump/report": ("pump/report/",),
    "pump": ("pump/",),
    "docs/made": ("docs/made/",),
    "shim": ("shim/",),
    "daemon": ("daemon/",),
    "lab": ("lab/driver/", "lab/gpu/", "lab/nvml/", "lab/runtime/", "lab/pump_lab/"),
    "scripts": ("scripts/",),
    "examples": ("examples/",),
}
"""Groups by path prefix; a file belongs to the first group that matches."""


class Text(NamedTuple):
    """A paragraph, cell or message, and its line in the file."""

    path: Path
    line: int
    content: str


def _flat(content: str) -> str:
    return re.sub(r"\s+", " ", content).strip()


def _markdown(source: str) -> Iterator[tuple[int, str]]:
    """Yields paragraphs, items and cells, without fenced code and link addresses."""
    source = re.sub(r"(?ms)^ *```.*?^ *```", lambda found: "\n" * found[0].count("\n"), source)
    source = re.sub(r"(?s)<!--.*?-->", lambda found: "\n" * found[0].count("\n"), source)
    source = re.sub(r"\]\([^)]*\)", "]", source)
    line = 1
    for block in re.split(r"(\n\s*\n|\n(?= *(?:[-*#|]|\d+\.) ?))", source):
        parts = block.split("|") if block.startswith("|") else [block]
        for part in parts:
            yield line, re.sub(r"^\s*(?:[-*#>]+|\d+\.) ", "", part)
        line += block.count("\n")


def _manual(source: str) -> Iterator[tuple[int, str]]:
    """Yields paragraphs of a man page, without its requests."""
    for number, line in enumerate(source.splitlines(), 1):
        if not line.startswith("."):
            yield number, re.sub(r"\\f[A-Z]", "", line).replace("\\", "")


def _joined(node: ast.JoinedStr) -> str:
    return "".join(
        str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values
    )


def _python(source: str) -> Iterator[tuple[int, str]]:
    """Yields string literals except docstrings; X replaces a formatted value."""
    tree = ast.parse(source)
    passed = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):
            passed.add(id(node.value))
        elif isinstance(node, ast.JoinedStr):
            passed |= {id(part) for part in node.values}
            yield node.lineno, _joined(node)
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and id(node) not in passed
            and isinstance(node.value, str)
        ):
            yield node.lineno, node.value


QUOTED = r'"(?:[^"\\\n]|\\.)*"'


def _c(source: str) -> Iterator[tuple[int, str]]:
    """Yields string literals outside of assertions; X replaces a number of fixed width."""
    blank = re.compile(r"/\*.*?\*/|//[^\n]*|_?[sS]tatic_assert\([^;]*;", re.DOTALL)
    whole = re.compile(f"(?P<text>{QUOTED})|{blank.pattern}", re.DOTALL)
    source = whole.sub(lambda m: m["text"] or "\n" * m[0].count("\n"), source)
    for found in re.finditer(rf"(?:{QUOTED}\s*|PRI[a-zA-Z0-9]+\s*)+", source):
        quoted = re.sub(r"PRI\w+", '"X"', found[0])
        content = "".join(part[1:-1] for part in re.findall(QUOTED, quoted))
        content = content.replace("\\n", "\n").replace('\\"', '"')
        yield source.count("\n", 0, found.start()) + 1, content


def _shell(source: str) -> Iterator[tuple[int, str]]:
    """Yields the script's first comment, which --help prints, and words in quotes."""
    comment = re.match(r"#![^\n]*\n((?:#[^\n]*\n)*)", source)
    for block in re.split(r"\n\s*\n", re.sub(r"(?m)^# ?", "", comment[1] if comment else "")):
        yield 2, block
    for number, line in enumerate(source.splitlines(), 1):
        if not line.lstrip().startswith("#"):
            for found in re.finditer(r'"((?:[^"\\]|\\.)*)"', line):
                yield number, found[1]


def _split(path: Path) -> Iterator[tuple[int, str]]:
    source = text(path)
    if path.suffix == ".md":
        return _markdown(source)
    if path.suffix == ".1":
        return _manual(source)
    if path in python_files():
        return _python(source)
    return _c(source) if path.suffix in {".c", ".h"} else _shell(source)


def is_prose(content: str) -> bool:
    """Returns whether the text has at least three words, and more words than other parts."""
    parts = content.split()
    words = [part for part in parts if re.fullmatch(r"[('\"`*]*[A-Za-z'-]+[.,;:!?)'\"`*]*", part)]
    return len(words) > 2 and len(words) > len(parts) / 2


def paths(group: str) -> list[Path]:
    """Returns the files of a group."""
    starts = {**PAGES, **LITERALS}[group]
    if group in PAGES:
        found = [*files(), *sorted((ROOT / "docs" / "man").glob("*.1"))]
        return [path for path in found if name(path).startswith(starts) and path.suffix != ".txt"]
    earlier = [
        one for other in list(LITERALS)[: list(LITERALS).index(group)] for one in LITERALS[other]
    ]
    return [
        path
        for path in files()
        if name(path).startswith(starts)
        and not name(path).startswith(tuple(earlier))
        and (path.suffix in {".py", ".c", ".h"} or text(path).startswith("#!"))
    ]


def texts_of(path: Path) -> list[Text]:
    """Returns the prose of a file that users read, one paragraph or message each."""
    return [
        Text(path, line, _flat(part))
        for line, content in _split(path)
        for part in re.split(r"\n(?=\s|- )", content)
        if is_prose(_flat(part))
    ]


def texts(group: str) -> list[Text]:
    """Returns all prose of a group, one paragraph or message each."""
    return [one for path in paths(group) for one in texts_of(path)]
