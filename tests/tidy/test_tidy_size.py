"""Limits on the parts of the product: attributes of a class, lines of a function."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tidy_sources import files, name, python_files, text

ATTRIBUTES_MAX = 15
LINES_MAX = 60
C_FUNCTION = re.compile(
    r"^(?=\w)(?:[^\n;{}]*\n)*?[^\n;]*\{\n(?:(?!\}).*\n)*\}$", flags=re.MULTILINE
)
"""A signature at the start of a line, and all lines up to a brace at the start of a line."""


def is_state(node: ast.ClassDef) -> bool:
    """Returns whether the annotated names of a class are state of its objects: fields of a
    dataclass that is not frozen. Frozen ones, tuples and frames are records."""
    return any(
        ast.unparse(one).startswith("dataclass") and "frozen=True" not in ast.unparse(one)
        for one in node.decorator_list
    )


def attributes(node: ast.ClassDef) -> set[str]:
    """Returns the names that the methods of a class set on `self`, and its fields."""
    fields = {
        ast.unparse(one.target)
        for one in node.body
        if isinstance(one, ast.AnnAssign) and is_state(node)
    }
    return fields | {
        one.attr
        for one in ast.walk(node)
        if isinstance(one, ast.Attribute)
        and isinstance(one.ctx, ast.Store)
        and ast.unparse(one.value) == "self"
    }


def functions() -> Iterator[tuple[str, int]]:
    """Yields each function of the product, and its number of lines."""
    for path in python_files("pump/", "daemon/"):
        for node in ast.walk(ast.parse(text(path))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert node.end_lineno is not None
                yield f"{name(path)}: {node.name}", node.end_lineno - node.lineno + 1
    for path in files():
        if path.suffix in {".c", ".h"} and name(path).startswith(("shim/", "daemon/")):
            for found in C_FUNCTION.findall(text(path)):
                yield f"{name(path)}: {found.splitlines()[0]}", found.count("\n") + 1


def test_a_class_has_few_attributes() -> None:
    counts = {
        f"{name(path)}: {node.name}": len(attributes(node))
        for path in python_files("pump/", "daemon/")
        for node in ast.walk(ast.parse(text(path)))
        if isinstance(node, ast.ClassDef)
    }
    assert counts["daemon/pumpd/lease/lease_client.py: Attached"] == 8, "fields count"
    many = {one: count for one, count in counts.items() if count > ATTRIBUTES_MAX}
    assert not many, f"more than {ATTRIBUTES_MAX}: split the class along its purposes"


def test_a_function_fits_on_a_screen() -> None:
    lines = dict(functions())
    known = {"daemon/pumpd/worker/worker.py: tick", "shim/life/start.c: static void start(void) {"}
    assert known <= lines.keys()
    long = {one: count for one, count in lines.items() if count > LINES_MAX}
    assert not long, f"more than {LINES_MAX} lines: split the function"
