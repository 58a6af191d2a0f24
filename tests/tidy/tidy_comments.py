"""Texts that engineers read: comments and docstrings, by folder of two levels."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import defaultdict
from functools import cache
from pathlib import Path

from tidy_sources import files, name, python_files, text
from tidy_texts import Text

WORDS_LEAST = 200
"""Folders with fewer words count with their parent."""


def _paragraphs(path: Path, line: int, content: str) -> list[Text]:
    """Splits at empty lines, list items and indented tables; joins the lines of each part."""
    parts = re.split(r"\n\s*\n|\n\s*(?:[-*]|\d\.) |\n(?= {2,}\S.*\S {2,}\S)", content)
    return [Text(path, line, " ".join(part.split())) for part in parts if part.strip()]


def of_python(path: Path, source: str) -> list[Text]:
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


def of_c(path: Path, source: str) -> list[Text]:
    """Returns the block comments."""
    found = []
    for match in re.finditer(r"/\*(.*?)\*/", source, re.DOTALL):
        content = re.sub(r"(?m)^[ ]*\*[ ]?", "", match[1]).strip("-= \n")
        found += _paragraphs(path, source.count("\n", 0, match.start()) + 1, content)
    return found


@cache
def comments() -> dict[str, list[Text]]:
    """Returns the comments of all code, by folder of two levels."""
    python = set(python_files())
    found: dict[str, list[Text]] = defaultdict(list)
    for path in files():
        read = of_python if path in python else of_c if path.suffix in {".c", ".h"} else None
        if read is not None:
            found["/".join(name(path).split("/")[:-1][:2]) or "."] += read(path, text(path))
    words = {key: sum(len(one.content.split()) for one in some) for key, some in found.items()}
    for key in [key for key, count in words.items() if count < WORDS_LEAST]:
        found[key.split("/")[0]] += found.pop(key)
    return found
