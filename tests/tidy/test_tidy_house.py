"""The target order of the shim's folders, and the present uses that violate it.

`MOVING` lists files that must still move, and their target. `EXCEPTIONS` may only shrink: unlisted
uses fail, and so do entries without a use. `test_tidy_rooms.py` checks the order of the present
folders; for the worker's core this is already the target.
"""

from __future__ import annotations

import re
from pathlib import Path

from tidy_objects import includes, libraries, room_of, symbols
from tidy_sources import ROOT, files, name, text

ORDER = (
    *("include", "base", "driver", "host", "memory", "progress", "record", "execute", "convert"),
    *("pool vmm", "link", "hooks", "life"),
)
"""Folders of the shim, lower ones first. Folders in one entry do not use each other."""

MOVING = {
    "shim/host": {
        *("shim/memory/claims_of_others.c", "shim/memory/host.h", "shim/memory/host_claims.c"),
        *("shim/memory/host_claims.h", "shim/memory/host_memory.c"),
    },
    "shim/convert": {
        *("shim/pool/convert.c", "shim/pool/convert.h", "shim/pool/managed_variables.c"),
    },
    "shim/vmm": {
        *("shim/pool/mapped.h", "shim/pool/mapped_access.c", "shim/pool/mapped_handles.c"),
        *(
            "shim/pool/mapped_reservations.c",
            "shim/pool/mapped_ranges.c",
            "shim/pool/mapped_spans.h",
        ),
        "shim/pool/mapped_state.h",
    },
    "shim/hooks": {"shim/pool/context_end.c", "shim/pool/pointer_answers.c"},
}
"""Files that are not in their target folder yet. All other files stay in their folder."""

EXCEPTIONS = {
    "shim/memory/host.h -> shim/memory/memory.h",
    "shim/memory/host_claims.c -> shim/memory/devices.c: pump_device_read_use",
    "shim/pool/convert.c -> shim/pool/mapped.h",
    "shim/pool/convert.c -> shim/pool/mapped_access.c: pump_mapped_contains",
    "shim/pool/convert.c -> shim/pool/pool.h",
    "shim/pool/convert.c -> shim/pool/pool_serve.c: pump_pool_free_now",
    "shim/pool/convert.c -> shim/pool/pool_serve.c: pump_pool_free_idle",
    "shim/pool/mapped_handles.c -> shim/pool/pool.h",
    "shim/pool/mapped_handles.c -> shim/pool/pool_serve.c: pump_pool_free_idle",
    "shim/pool/pool_serve.c -> shim/pool/mapped.h",
    "shim/pool/pool_serve.c -> shim/pool/mapped_access.c: pump_mapped_piece",
    "shim/pool/stream_ordered.c -> shim/pool/mapped.h",
    "shim/pool/stream_ordered.c -> shim/pool/mapped_access.c: pump_mapped_contains",
}
"""Includes and uses of symbols that violate the order."""

UPCALLS = "pump_upcalls"
"""Intentionally used from lower folders: the table that shim/life fills (shim/base/upcalls.h)."""

RANKS = {f"shim/{room}": rank for rank, rooms in enumerate(ORDER) for room in rooms.split()}
HOMES = {file: room for room, moving in MOVING.items() for file in moving}


def home(path: Path) -> str:
    """Returns the folder of a file in the target layout."""
    return HOMES.get(name(path), room_of(path))


def runs_up(user: Path, used: Path) -> bool:
    """Returns whether a file of the shim uses a file that its folder may not use."""
    lower = RANKS.get(home(used), len(ORDER)) < RANKS[home(user)]
    return not lower and home(used) != home(user)


def uses_that_run_up() -> set[str]:
    """Returns each include and each use of a symbol that violates the order."""
    found = {
        f"{name(path)} -> {name(included)}"
        for path in files()
        if path.suffix in {".c", ".h"} and name(path).startswith("shim/")
        for included in includes(path)
        if runs_up(path, included)
    }
    defined, used = symbols(libraries()["pump"])
    return found | {
        f"{name(source)} -> {name(defined[symbol])}: {symbol}"
        for source, wanted in used.items()
        for symbol in (wanted & set(defined)) - {UPCALLS}
        if runs_up(source, defined[symbol])
    }


def test_no_new_use_runs_against_the_order_of_the_house() -> None:
    found = uses_that_run_up()
    assert not found - EXCEPTIONS, "a new arrow against the house: use lower rooms instead"
    assert not EXCEPTIONS - found, "no longer used: remove it from EXCEPTIONS"


def test_each_listed_file_still_has_to_move() -> None:
    names = {name(path) for path in files()}
    assert set(HOMES) <= names, "has moved or gone: remove it from MOVING"
    assert not [file for file, room in HOMES.items() if room_of(ROOT / file) == room]
    assert {home(path) for path in files() if path.suffix == ".c" and room_of(path) in RANKS} == {
        *(set(RANKS) - {"shim/include"})
    }


def test_the_product_names_no_file_of_the_laboratory() -> None:
    found = {
        name(path)
        for path in files()
        if name(path).startswith(("shim/", "daemon/"))
        and re.search(r"\b(virtual|lab|pump_lab)/\w", text(path))
    }
    assert not found
