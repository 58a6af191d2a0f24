#!/usr/bin/env python3
"""Prints the tests that a change touches, the nearest first; for scripts/test --quick.

The change: files of the working tree that differ from the last commit, or, if there are none, the
files of the last commit.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
ALWAYS = ("tests/tidy", "tests/endtoend/promises/test_same_bits.py")
NEAR: dict[str, tuple[str, ...]] = {
    "shim/include": ("tests/abi", "tests/c"),
    "shim/driver": ("tests/loader", "tests/c/record"),
    "shim/hooks": ("tests/c/record", "tests/endtoend/calls"),
    "shim/base": ("tests/c/life", "tests/c/link"),
    "shim": ("tests/c/{room}", "tests/c"),
    "daemon/core/extents": ("tests/unit/daemon/core",),
    "daemon/core/predict": ("tests/unit/daemon/core", "tests/unit/pump/model"),
    "daemon/core": ("tests/unit/pump/model", "tests/unit/daemon/worker", "tests/sim"),
    "daemon/pumpd/lease": ("tests/unit/daemon/job", "tests/unit/daemon/service"),
    "daemon/pumpd": ("tests/unit/daemon/{room}", "tests/unit/daemon"),
    "daemon/launcher": ("tests/endtoend/starters",),
    "pump": ("tests/unit/pump/{room}", "tests/unit/pump"),
    "lab/bench": ("tests/unit/benchmarks",),
    "lab/gpu": ("tests/virtual/gpu", "tests/sim"),
    "lab/simulate": ("tests/sim",),
    "lab/pump_lab": ("tests/unit/lab", "tests/sim"),
    "lab/image": ("tests/virtual/driver", "tests/fuzz"),
    "lab": ("tests/virtual/{room}", "tests/virtual"),
    "examples": ("tests/unit/examples",),
    "docs": ("tests/unit/project",),
    "packaging": ("tests/unit/project",),
    "scripts": ("tests/unit/project",),
}
"""By folder, the longest that matches: its tests. {room}: the next part of the file's path."""


def near(path: str) -> tuple[str, ...]:
    """Returns the tests of a changed file that exist."""
    if path.startswith("tests/"):
        name = Path(path).name
        return (path,) if name.startswith("test_") and name.endswith(".py") else _folder(path)
    parts = path.split("/")
    for length in range(len(parts), 0, -1):
        rule = NEAR.get("/".join(parts[:length]))
        if rule is not None:
            room = parts[length] if length < len(parts) - 1 else ""
            found = (one.format(room=room) for one in rule if room or "{room}" not in one)
            return tuple(one for one in found if (ROOT / one).exists())
    return ()


def _folder(path: str) -> tuple[str, ...]:
    """Returns the folder of a helper, unless all tests may use it."""
    folder = str(Path(path).parent)
    shared = folder in ("tests", "tests/support")
    return () if shared or not list((ROOT / folder).glob("test_*.py")) else (folder,)


def touched(paths: Iterable[str]) -> list[str]:
    """Returns the tests of all files, without tests of a folder that is named as well."""
    found = list(dict.fromkeys([one for path in paths for one in near(path)] + [*ALWAYS]))
    found = [one for one in found if (ROOT / one).exists()]
    return [
        one
        for at, one in enumerate(found)
        if not any(one.startswith(f"{other}/") for other in found[:at])
    ]


def changed() -> list[str]:
    """Returns the paths of the change. Raises CalledProcessError outside a clone."""

    def git(*words: str) -> list[str]:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    here = git("diff", "--name-only", "HEAD")
    here += git("ls-files", "--others", "--exclude-standard")
    return here or git("diff", "--name-only", "HEAD~1")


if __name__ == "__main__":
    print(*touched(changed()), sep="\n")
