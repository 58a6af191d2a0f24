"""Rooms of the C code and the arrows between them: a file includes what lies below it."""

from __future__ import annotations

import re
from collections import Counter

from tidy_sources import ROOT, files, name, text

SHIM = (
    "base",
    "driver",
    "memory",
    "record",
    "progress",
    "execute",
    "pool",
    "link",
    "hooks",
    "life",
)
BELOW: dict[str, set[str]] = {
    "shim/include": set(),
    **{
        f"shim/{room}": {"shim/include", *(f"shim/{lower}" for lower in SHIM[:at])}
        for at, room in enumerate(SHIM)
    },
    "daemon/core": {"shim/include"},
    "daemon/core/extents": {"shim/include"},
    "daemon/core/predict": {"shim/include"},
    "daemon/core/model": {
        *("shim/include", "daemon/core", "daemon/core/extents", "daemon/core/predict"),
    },
    "daemon/core/worker": {"shim/include", "daemon/core", "daemon/core/model"},
    "virtual/gpu": {"pump/profiles"},
    "virtual/driver": {"shim/include", "shim/base", "shim/driver", "virtual/gpu"},
    **{
        f"virtual/driver/{room}": {"shim/include", "virtual/gpu", "virtual/driver"}
        for room in ("card", "code", "graph", "memory", "timeline")
    },
    "virtual/runtime": {"shim/include", "virtual/driver"},
    "virtual/simulate": {
        *("shim/include", "shim/execute", "daemon/core", "daemon/core/model"),
        *("daemon/core/worker", "virtual/gpu"),
    },
}
UPWARDS = {
    "shim/base -> shim/driver/hooks.h": 3,
    "shim/base -> shim/execute/act.h": 1,
    "shim/base -> shim/execute/act_private.h": 1,
    "shim/base -> shim/pool/pool_map.h": 1,
    "shim/driver -> shim/execute/act.h": 2,
    "shim/memory -> shim/execute/act.h": 6,
    "shim/memory -> shim/execute/act_private.h": 4,
    "shim/memory -> shim/record/observe.h": 3,
    "shim/memory -> shim/record/observe_blocks.h": 1,
    "shim/record -> shim/execute/act.h": 5,
    "shim/progress -> shim/execute/act.h": 3,
    "shim/progress -> shim/execute/act_private.h": 3,
    "shim/progress -> shim/pool/pool.h": 1,
}
"""Includes that still run up, and how often: the list may only become shorter."""


def test_each_c_file_has_its_room() -> None:
    rooms = {
        name(path).rpartition("/")[0]
        for path in files()
        if path.suffix in {".c", ".h"} and name(path).startswith(("shim/", "daemon/", "virtual/"))
    }
    assert rooms == set(BELOW)


def test_no_include_runs_up_but_those_that_are_listed() -> None:
    found: Counter[str] = Counter()
    for path in files():
        room = name(path).rpartition("/")[0]
        if path.suffix not in {".c", ".h"} or room not in BELOW:
            continue
        for asked in re.findall(r'#include "([^"]+)"', text(path)):
            included = next(
                place
                for place in (path.parent / asked, ROOT / asked, ROOT / "shim/include" / asked)
                if place.exists()
            )
            other = name(included).rpartition("/")[0]
            if other != room and other not in BELOW[room]:
                found[f"{room} -> {name(included)}"] += 1
    assert found == UPWARDS
