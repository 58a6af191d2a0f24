"""Constants that a policy or an estimate depends on name the origin of their values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from tidy_sources import ROOT, text

ORIGIN = re.compile(r"\[(measured:\s+([\w.]+)|published: [^\]]+|derived|guessed)\]")
"""Measured values name a decision or a page of docs, published ones a source."""
CONSTANT = {
    ".c": re.compile(r"#define ([A-Z][A-Z0-9_]*) +(\(?[A-Z0-9][^ /]*)"),
    ".py": re.compile(r"([A-Z][A-Z0-9_]*)(?:: Final)? = [-(\d]"),
}
COVERED = (
    "daemon/core/**/*.[ch]",
    "shim/base/limits.h",
    "shim/execute/adapt.c",
    "shim/execute/own_context.h",
    "shim/progress/marker_rule.h",
    "pump/model/bounds.py",
    "pump/policy/*.py",
)


def without_origin(source: str, suffix: str) -> Iterator[str]:
    """Yields constants whose comment names no origin. Constants of one group, without an empty line
    or a comment line between them, share a comment: before the group in C, after it in Python."""
    yield from (_of_python if suffix == ".py" else _of_c)([*source.splitlines(), ""])


def _of_python(lines: list[str]) -> Iterator[str]:
    group, comment = [], ""
    for line in lines:
        if found := CONSTANT[".py"].match(line):
            group.append(found[1])
            comment = ""
        elif group:
            comment += line + " "
            closed = comment.count('"""') == 2
            if closed or '"""' not in comment:
                yield from group if not ORIGIN.search(comment) else ()
                group = []


def _of_c(lines: list[str]) -> Iterator[str]:
    """A comment after a constant may name another origin than the group's."""
    group: dict[str, str] = {}
    comment = ""
    for line in lines:
        if found := CONSTANT[".c"].match(line):
            if not ORIGIN.search(comment + line):
                group[found[1]] = found[2]
        elif not line or line.startswith("/*"):
            yield from group if not _are_codes([*group.values()]) else ()
            group, comment = {}, line
        elif line.startswith(" *"):
            comment += line.removeprefix(" *")


def _are_codes(values: list[str]) -> bool:
    """Returns whether the constants of a group only name things: 0, 1, 2, 3, or 1, 2, 4, 8."""
    count = range(len(values))
    rows: list[Iterable[int]] = [count, (i + 1 for i in count), (1 << i for i in count)]
    return len(values) > 1 and values in [[*map(str, row)] for row in rows]


def test_groups_share_a_comment() -> None:
    c = "/* Two\n * [measured:\n * 0004]. */\n#define A 1\n#define B (2u * C) /* b */\n\n"
    c += "#define D 3 /* x */\n#define E 3 /* y [guessed] */\n\n"
    c += "#define KIND_A 0 /* a */\n#define KIND_B 1\n\n/* Bits. */\n#define F 1\n#define G 2\n"
    assert list(without_origin(c + "/* One. */\n#define H 0\n", ".c")) == ["D", "H"]
    python = (
        'A = 1\nB: Final = (2, 3)\n"""Two\n[guessed]."""\n\nC = 1\n"""One."""\nD = 4\n\nE = {}\n'
    )
    assert list(without_origin(python, ".py")) == ["C", "D"]


@pytest.mark.parametrize("pattern", COVERED)
def test_constants_name_their_origin(pattern: str) -> None:
    files = sorted(ROOT.glob(pattern))
    assert files
    found = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in files
        for name in without_origin(text(path), path.suffix)
    ]
    assert found == []


@pytest.mark.parametrize("pattern", COVERED)
def test_the_page_that_has_measured_a_constant_exists(pattern: str) -> None:
    docs = ROOT / "docs"
    pages = {path.name[:4] for path in (docs / "decisions").glob("0*.md")}
    pages |= {path.name for path in docs.glob("*.md")}
    named = {
        number
        for path in ROOT.glob(pattern)
        for number in re.findall(r"\[measured:[ \n*]+([\w.]+)\]", Path(path).read_text())
    }
    assert named <= pages
