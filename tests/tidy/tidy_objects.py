"""Includes of the C code, and the symbols of its objects, for the tests of rooms."""

from __future__ import annotations

import concurrent.futures
import functools
import json
import os
import re
import shlex
import subprocess
from pathlib import Path

import builds
from tidy_sources import ROOT, name, text


def room_of(path: Path) -> str:
    return name(path).rpartition("/")[0]


def includes(path: Path) -> list[Path]:
    """Returns the project's own files that a file includes."""
    return [
        next(
            place.resolve()
            for place in (path.parent / asked, ROOT / asked, ROOT / "shim/include" / asked)
            if place.exists()
        )
        for asked in re.findall(r'#include "([^"]+)"', text(path))
    ]


@functools.cache
def libraries() -> dict[str, dict[Path, Path]]:
    """Returns the objects of each library by source, compiled as the build would, unoptimised."""
    build = builds.once("objects", _compile)
    found: dict[str, dict[Path, Path]] = {}
    for library, source, compiled in json.loads((build / "libraries.json").read_text()):
        found.setdefault(library, {})[Path(source)] = Path(compiled)
    return found


def _compile(build: Path) -> None:
    configure = ["cmake", "-S", str(ROOT), "-B", str(build), "-DCMAKE_BUILD_TYPE=Debug"]
    configure.append("-DCMAKE_EXPORT_COMPILE_COMMANDS=ON")
    done = subprocess.run(configure, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: list[tuple[str, str, str]] = []
    objects: dict[Path, Path] = {}
    compiling: list[list[str]] = []
    for entry in json.loads((build / "compile_commands.json").read_text()):
        source = Path(entry["file"]).resolve()
        if not source.is_relative_to(ROOT):
            continue  # made by the build
        command = shlex.split(entry["command"])
        place = command.index("-o") + 1
        library = re.search(r"(\w+)\.dir/", command[place])
        assert library, command
        if source not in objects:
            objects[source] = build / f"{len(objects)}.o"
            command[place] = str(objects[source])
            compiling.append(command)
        found.append((library[1], str(source), str(objects[source])))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for done in pool.map(functools.partial(subprocess.run, capture_output=True), compiling):
            assert done.returncode == 0, done.stderr.decode()
    (build / "libraries.json").write_text(json.dumps(found))


def symbols(objects: dict[Path, Path]) -> tuple[dict[str, Path], dict[Path, set[str]]]:
    """Returns where each symbol is defined, and which ones each source uses and does not define."""
    defined: dict[str, Path] = {}
    used: dict[Path, set[str]] = {}
    for source, compiled in objects.items():
        rows = _symbols(compiled)
        defined |= {symbol: source for symbol, kind in rows if kind.isupper() and kind != "U"}
        used[source] = {symbol for symbol, kind in rows if kind == "U"}
    return defined, used


@functools.cache
def _symbols(compiled: Path) -> list[tuple[str, str]]:
    listing = subprocess.run(
        ["nm", "-P", str(compiled)], capture_output=True, text=True, check=True
    )
    return [(symbol, kind) for symbol, kind, *_ in map(str.split, listing.stdout.splitlines())]
