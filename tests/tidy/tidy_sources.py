"""The project's own source files, for the tests of this folder."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SKIPPED = {"build", "dist", "node_modules", "__pycache__", "results"}
TEXT = {".py", ".c", ".h", ".S", ".cu", ".md", ".toml", ".cmake", ".txt", ".yml", ".map", ""}


def _walk(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        hidden = path.name.startswith(".") and path.name != ".ci"
        if hidden or path.name in SKIPPED or path.name.endswith(".egg-info"):
            continue
        if path.is_dir():
            yield from _walk(path)
        elif path.suffix in TEXT:
            yield path


@cache
def files() -> list[Path]:
    """Returns every text file of the project, except for built and measured files."""
    return list(_walk(ROOT))


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def python_files(*folders: str) -> list[Path]:
    """Returns Python sources and scripts without an ending; only below `folders` if given."""
    return [
        path
        for path in files()
        if (path.suffix == ".py" or (not path.suffix and "python" in text(path)[:64]))
        and (not folders or name(path).startswith(folders))
    ]


def _for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def imports(path: Path, *, at_run_time: bool = False) -> set[str]:
    """Returns the full names of all modules that a file imports anywhere.

    at_run_time: excludes imports that are only for types.
    """
    found: set[str] = set()
    tree = ast.parse(text(path))
    typed = {
        id(part)
        for node in ast.walk(tree)
        if at_run_time and _for_types(node)
        for part in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in typed:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name(path)}: write imports in full, not relative"
            module = node.module or ""
            found |= {module} | {f"{module}.{alias.name}" for alias in node.names}
    return found
