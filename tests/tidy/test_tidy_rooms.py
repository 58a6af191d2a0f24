"""The order of the C folders: a file includes and uses only files of lower folders.

test_tidy_imports.py has the layers of Python.
"""

from __future__ import annotations

import collections
import graphlib
import re

import pytest
from tidy_objects import includes, libraries, room_of, symbols
from tidy_sources import ROOT, files, name, python_files, text

SHIM = (
    "base",
    "driver",
    "memory",
    "progress",
    "record",
    "execute",
    "pool",
    "link",
    "hooks",
    "life",
)
DRIVER = ("base", "card", "timeline", "memory", "code", "graph", "calls")
BELOW: dict[str, set[str]] = {
    "shim/include": set(),
    **{
        f"shim/{room}": {"shim/include", *(f"shim/{lower}" for lower in SHIM[:at])}
        for at, room in enumerate(SHIM)
    },
    "daemon/core": {"shim/include"},
    "daemon/core/extents": {"shim/include", "shim/base"},
    "daemon/core/predict": {"shim/include", "daemon/core"},
    "daemon/core/timing": {"shim/include", "daemon/core"},
    "daemon/core/model": {
        *("shim/include", "daemon/core", "daemon/core/extents", "daemon/core/predict"),
        "daemon/core/timing",
    },
    "daemon/core/schedule": {"shim/include", "daemon/core/model"},
    "daemon/core/worker": {
        *("shim/include", "daemon/core", "daemon/core/model", "daemon/core/schedule"),
    },
    "lab/gpu": {"lab/pump_lab/profiles"},
    "lab/image": {"shim/include"},
    **{
        f"lab/driver/{room}": {
            *("shim/include", "shim/base", "shim/driver", "lab/gpu", "lab/image"),
            *(f"lab/driver/{lower}" for lower in DRIVER[:at]),
        }
        for at, room in enumerate(DRIVER)
    },
    "lab/nvml": {"lab/driver/calls"},
    "daemon/launcher": set(),
    "lab/runtime": {"shim/include", "lab/driver/base"},
    "lab/runtime/kernels": {"shim/include", "lab/driver/base", "lab/runtime"},
    "lab/simulate": {
        *("shim/include", "shim/progress", "shim/execute", "daemon/core", "daemon/core/model"),
        *("daemon/core/schedule", "daemon/core/worker", "lab/gpu"),
    },
}
UPCALLS = {"pump_upcalls", "vd_upcalls", "vd_hooks"}
"""Intentionally used from below: tables that the highest folder fills (shim/base/upcalls.h)."""

CALLED_BY_NAME = re.compile(r"_*cu|nvml[A-Z]|dlsym$|dlerror$|_ZN3c10|pump_(host|touch|cycles)_")
"""Functions that programs and PyTorch call, and kernel functions."""


def may_use(room: str, other: str) -> bool:
    return other == room or other in BELOW[room]


def test_each_c_file_has_its_room() -> None:
    rooms = {
        room_of(path)
        for path in files()
        if path.suffix in {".c", ".h"} and name(path).startswith(("shim/", "daemon/", "lab/"))
    }
    assert {room for room in rooms if not room.startswith("lab/bench/")} == set(BELOW)


def test_rooms_stand_in_no_circle() -> None:
    assert tuple(graphlib.TopologicalSorter(BELOW).static_order())  # raises on a cycle


def test_no_include_runs_up() -> None:
    found = []
    for path in files():
        if path.suffix not in {".c", ".h"} or room_of(path) not in BELOW:
            continue
        found += [
            f"{name(path)} -> {name(included)}"
            for included in includes(path)
            if not may_use(room_of(path), room_of(included))
        ]
    assert not found


def test_no_symbol_of_a_higher_room_is_used() -> None:
    built = libraries()
    assert {"pump", "pump_core", "pump_lab", "pump_virtual"} <= set(built)
    together = {"pump_core and pump_lab": {**built["pump_core"], **built["pump_lab"]}}
    found = []
    for library, objects in {**built, **together}.items():
        defined, used = symbols(objects)
        found += [
            f"{library}: {name(source)} -> {name(defined[symbol])}: {symbol}"
            for source, wanted in used.items()
            for symbol in sorted((wanted & set(defined)) - UPCALLS)
            if not may_use(room_of(source), room_of(defined[symbol]))
        ]
    assert not found


def test_each_function_has_a_caller_in_the_product() -> None:
    """Callers are other objects, Python, or other lines of the same source, but not tests."""
    sources = [path for path in files() if name(path).startswith(("shim/", "daemon/", "lab/"))]
    sources = [path for path in sources if path.suffix in {".c", ".cmake"}] + python_files(
        "pump/", "daemon/", "lab/"
    )
    code = (re.sub(r"/\*.*?\*/", "", text(path), flags=re.DOTALL) for path in sources)
    mentions = collections.Counter(word for part in code for word in re.findall(r"\w+", part))
    found = set()
    for objects in libraries().values():
        defined, used = symbols(objects)
        called = set().union(*used.values())
        found |= {
            f"{name(source)}: {symbol}"
            for symbol, source in defined.items()
            if symbol not in called and mentions[symbol] < 2 and not CALLED_BY_NAME.match(symbol)
        }
    assert not found


@pytest.mark.parametrize(
    ("library", "table", "below", "filled"),
    [
        ("pump", "pump_upcalls", "shim/base", "shim/life"),
        ("pump_virtual", "vd_upcalls", "lab/driver/base", "lab/driver/calls"),
    ],
)
def test_calls_that_run_up_have_one_table(
    library: str, table: str, below: str, filled: str
) -> None:
    defined, used = symbols(libraries()[library])
    assert {name(defined[symbol]) for symbol in UPCALLS & set(defined)} == {f"{filled}/upcalls.c"}
    header = text(ROOT / below / "upcalls.h")
    members = set(re.findall(r"\(\*(\w+)\)\(|\*const \*(\w+);", header))
    calls = {one or other for one, other in members}
    calling = [text(source) for source, wanted in used.items() if table in wanted]
    assert calls == {call for call in calls if any(f"{table}.{call}" in t for t in calling)}
    assert len(calls) <= 10, "a room that has to call up this often stands too low"
