"""Only inputs.py, outputs.py and folders.py of pump/base open files.

A plain open() blocks at a named pipe, reads without a bound, follows links of other users, and
makes files that others can read.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tidy_sources import name, python_files, text

PLAIN = {"open", "read_text", "read_bytes", "write_text", "write_bytes", "makedirs"}
"""Functions, and methods of pathlib, os, io, gzip and other modules."""
PLAIN_IN = {("shutil", "copy"), ("shutil", "copy2"), ("shutil", "copyfile"), ("shutil", "copytree")}
KERNELS = ("/proc/", "/sys/", "/dev/")
"""Paths with these prefixes belong to the kernel: no user can replace them."""

ALLOWED = {
    "pump/base/inputs.py": "the one way to read",
    "pump/base/outputs.py": "the one way to write",
    "pump/base/folders.py": "the one way into a user's folder",
    "pump/base/paths.py": "open_log: the one way to append to a log",
    "pump/trace/place.py": "the drafts of recordings, by descriptors of their folder",
    "pump/wire/server.py": "a folder, with a flag that the kernel allows to its owner only",
    "pump/measure/": "folders and logs of measuring runs, which pump has made for itself",
    "pump/cli/support/repeated.py": "the lock of such a folder",
    "daemon/pumpd/common/last_line.py": "the terminal or log of the job, which it opened itself",
    "daemon/pumpd/worker/run_delay.py": "counters of threads, below /proc",
}
"""Files or folders that may open files themselves, and the reasons."""


def plain(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yields line and name of each call that opens a file with a plain function."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        word = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
        owner = called.value if isinstance(called, ast.Attribute) else None
        module = owner.id if isinstance(owner, ast.Name) else ""
        parents = word == "mkdir" and any(one.arg == "parents" for one in node.keywords)
        if not parents and word not in PLAIN and (module, word) not in PLAIN_IN:
            continue
        path = owner.args if isinstance(owner, ast.Call) else node.args
        if not (path and is_kernel_file(path[0])):
            yield node.lineno, word


def is_kernel_file(path: ast.expr) -> bool:
    """Returns whether an expression is os.devnull, or a text that starts with one of KERNELS."""
    if isinstance(path, ast.JoinedStr) and path.values:
        path = path.values[0]
    if isinstance(path, ast.Constant):
        return str(path.value).startswith(KERNELS)
    return ast.unparse(path) == "os.devnull"


def test_files_are_opened_in_one_way() -> None:
    found = [
        f"{name(path)}:{line}: {word}: use pump.base.inputs, pump.base.outputs or pump.base.folders"
        for path in python_files("pump/", "daemon/")
        if not name(path).startswith(tuple(ALLOWED))
        for line, word in plain(ast.parse(text(path)))
    ]
    assert not found, "\n".join(found)


def test_each_exception_is_needed() -> None:
    for place in ALLOWED:
        trees = [ast.parse(text(path)) for path in python_files(place)]
        assert any(True for tree in trees for _ in plain(tree)), place


def test_the_plain_ways_are_found() -> None:
    plainly = (
        "open(p)", "p.open()", "os.open(p, 0)", "Path(p).read_text()", "p.write_bytes(b'')",
        "gzip.open(p)", "json.load(open(p))", "tomllib.load(p.open('rb'))", "os.makedirs(p)",
        "shutil.copy(p, q)", "p.mkdir(parents=True)", "open(f'{p}/proc/')",
    )  # fmt: skip
    kernels = ("open('/proc/self/maps')", "Path(f'/proc/{p}/stat').read_text()", "d.copy()")
    assert all(len(list(plain(ast.parse(code)))) == 1 for code in plainly)
    assert not any(list(plain(ast.parse(code))) for code in kernels)
