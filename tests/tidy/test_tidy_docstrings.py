"""Public Python has docstrings, which name the raised errors."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TypeGuard

from tidy_sources import name, python_files, text

PUBLIC = ("pump/", "daemon/pumpd/")
Documented = ast.FunctionDef | ast.ClassDef


def is_documented(node: ast.stmt) -> TypeGuard[Documented]:
    return isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_")


def public() -> Iterator[tuple[str, Documented]]:
    """Yields public classes and functions of modules and of public classes, with their places."""
    for path in python_files(*PUBLIC):
        inside = list(filter(is_documented, ast.parse(text(path)).body))
        for node in inside:
            yield f"{name(path)}:{node.lineno} {node.name}", node
            if isinstance(node, ast.ClassDef):
                inside += filter(is_documented, node.body)


def names(node: ast.expr | None) -> set[str]:
    """Returns the last words of an exception, of its call, or of several exceptions in a tuple."""
    parts = node.elts if isinstance(node, ast.Tuple) else [node]
    called = [part.func if isinstance(part, ast.Call) else part for part in parts]
    return {ast.unparse(part).rpartition(".")[2] for part in called if part is not None}


def raised(function: ast.FunctionDef) -> set[str]:
    """Returns the errors that a function raises itself and does not catch."""
    found: set[str] = set()
    caught: set[str] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Raise):
            found |= names(node.exc)
        elif isinstance(node, ast.ExceptHandler):
            caught |= names(node.type)
    return {error for error in found - caught if error.endswith("Error")}


def test_public_classes_and_functions_have_docstrings() -> None:
    assert [place for place, node in public() if not ast.get_docstring(node)] == []


def test_public_functions_name_the_errors_that_they_raise() -> None:
    silent = [
        f"{place} raises {error}"
        for place, node in public()
        if isinstance(node, ast.FunctionDef)
        for error in sorted(raised(node))
        if error not in (ast.get_docstring(node) or "")
    ]
    assert silent == []
