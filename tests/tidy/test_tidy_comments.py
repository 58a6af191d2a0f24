"""Engineers read technical English: countable rules for comments and docstrings, by folder."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
from tidy_english import hits, sentences
from tidy_sources import files, name, python_files, text

HITS_MAX = 2.0
"""Allowed constructions per thousand words that technical English does not use."""
SENTENCE_MAX = 30
MEAN_MAX = 18
WORDS_LEAST = 200
"""Folders with fewer words count with their parent."""


class Comment(NamedTuple):
    path: Path
    line: int
    content: str


def _paragraphs(path: Path, line: int, content: str) -> list[Comment]:
    """Splits at empty lines, list items and indented tables; joins the lines of each part."""
    parts = re.split(r"\n\s*\n|\n\s*(?:[-*]|\d\.) |\n(?= {2,}\S.*\S {2,}\S)", content)
    return [Comment(path, line, " ".join(part.split())) for part in parts if part.strip()]


def of_python(path: Path, source: str) -> list[Comment]:
    """Returns docstrings, also of variables, and comments; consecutive lines together."""
    found = [
        one
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node.value.value, str)
        for one in _paragraphs(path, node.lineno, node.value.value)
    ]
    groups: list[list[tokenize.TokenInfo]] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and not re.match(r"#!|# (?:fmt|type|noqa)", token.string):
            above = (token.start[0] - 1, token.start[1])
            if groups and groups[-1][-1].start == above:
                groups[-1].append(token)
            else:
                groups.append([token])
    for group in groups:
        content = "\n".join(token.string.lstrip("# ") for token in group)
        found += _paragraphs(path, group[0].start[0], content)
    return found


def of_c(path: Path, source: str) -> list[Comment]:
    """Returns the block comments."""
    found = []
    for match in re.finditer(r"/\*(.*?)\*/", source, re.DOTALL):
        content = re.sub(r"(?m)^[ ]*\*[ ]?", "", match[1]).strip("-= \n")
        found += _paragraphs(path, source.count("\n", 0, match.start()) + 1, content)
    return found


@cache
def comments() -> dict[str, list[Comment]]:
    """Returns the comments of all code, by folder of two levels."""
    python = set(python_files())
    found: dict[str, list[Comment]] = defaultdict(list)
    for path in files():
        read = of_python if path in python else of_c if path.suffix in {".c", ".h"} else None
        if read is not None:
            found["/".join(name(path).split("/")[:-1][:2]) or "."] += read(path, text(path))
    words = {key: sum(len(one.content.split()) for one in some) for key, some in found.items()}
    for key in [key for key, count in words.items() if count < WORDS_LEAST]:
        found[key.split("/")[0]] += found.pop(key)
    return found


def _at(one: Comment) -> str:
    return f"{name(one.path)}:{one.line}"


def test_comments_are_found_without_code() -> None:
    python = '"""A.\n\nB c\nd."""\nx = "# no"  # e\n# f\n# g\ny = 1\n"""h"""\n'
    assert [one.content for one in of_python(Path(), python)] == ["A.", "B c d.", "h", "e", "f g"]
    c = "/* A.\n *\n *   - b\n *     c\n */\nint x; /* d */\n"
    assert [one.content for one in of_c(Path(), c)] == ["A.", "- b c", "d"]


@pytest.mark.parametrize("folder", sorted(comments()))
def test_comments_have_the_constructions_of_technical_english(folder: str) -> None:
    found = comments()[folder]
    words = sum(len(one.content.split()) for one in found)
    bad = [f"{_at(one)}: '{hit}' in: {one.content}" for one in found for hit in hits(one.content)]
    share = 1000 * len(bad) / max(words, WORDS_LEAST)
    assert share <= HITS_MAX, f"{share:.1f} in 1,000 of {words} words\n" + "\n".join(bad)


@pytest.mark.parametrize("folder", sorted(comments()))
def test_sentences_of_comments_are_short(folder: str) -> None:
    found = [(one, part) for one in comments()[folder] for part in sentences(one.content)]
    lengths = [len(part.split()) for _, part in found]
    long = [
        f"{_at(one)}: {len(part.split())} words: {part}"
        for one, part in found
        if len(part.split()) > SENTENCE_MAX
    ]
    assert not long, "\n".join(long)
    assert sum(lengths) / len(lengths) <= MEAN_MAX
