"""Constants that a policy or an estimate depends on name the origin of their values."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tidy_sources import ROOT, text

ORIGIN = re.compile(r"\[(measured: \d{4}|published: [^\]]+|derived|guessed)\]")
"""Measured values name a decision, published ones a source."""
CONSTANT = {
    ".c": re.compile(r"#define ([A-Z][A-Z0-9_]*) +\(?[A-Z0-9]"),
    ".py": re.compile(r"([A-Z][A-Z0-9_]*)(?:: Final)? = [-(\d]"),
}
COVERED = (
    "daemon/core/schedule/*.[ch]",
    "shim/execute/adapt.c",
    "shim/execute/own_context.h",
    "shim/progress/marker_rule.h",
    "pump/model/bounds.py",
    "pump/policy/*.py",
)


def without_origin(source: str, suffix: str) -> Iterator[str]:
    """Yields constants whose comment names no origin. Constants of one group, without an empty line
    or a comment between them, share a comment: before the group in C, after it in Python."""
    pattern, group, comment = CONSTANT[".py" if suffix == ".py" else ".c"], [], ""
    for line in [*source.splitlines(), ""]:
        found = pattern.match(line)
        if suffix == ".py":
            if found:
                group.append(found[1])
                comment = ""
            elif group:
                comment += line + " "
                closed = comment.count('"""') == 2
                if closed or '"""' not in comment:
                    yield from group if not ORIGIN.search(comment) else ()
                    group = []
        elif found:
            if "/*" in line:
                comment = line
            if not ORIGIN.search(comment):
                yield found[1]
        elif not line:
            comment = ""
        elif line.startswith(("/*", " *")):
            comment = line if line.startswith("/*") else comment + line.removeprefix(" *")


def test_groups_share_a_comment() -> None:
    c = "/* Two\n * [measured:\n * 0004]. */\n#define A 1\n#define B (2u * C)\n\n"
    c += "#define D 3 /* x */\n"
    assert list(without_origin(c, ".c")) == ["D"]
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
def test_the_decision_that_has_measured_a_constant_exists(pattern: str) -> None:
    decisions = {path.name[:4] for path in (ROOT / "docs" / "decisions").glob("0*.md")}
    numbers = {
        number
        for path in ROOT.glob(pattern)
        for number in re.findall(r"\[measured:[ \n*]+(\d{4})\]", Path(path).read_text())
    }
    assert numbers <= decisions
