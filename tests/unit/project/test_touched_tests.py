"""scripts/test --quick: each room of the code has tests, which exist."""

from __future__ import annotations

import pytest
from places import ROOT
from touched_tests import ALWAYS, NEAR, near, touched

HOUSES = "shim", "daemon", "daemon/core", "daemon/pumpd", "pump", "lab"
ROOMS = sorted(
    str(folder.relative_to(ROOT))
    for house in HOUSES
    for folder in (ROOT / house).iterdir()
    if folder.is_dir() and [*folder.glob("*.[ch]"), *folder.glob("*.py")]
)


@pytest.mark.parametrize("room", ROOMS)
def test_a_change_in_each_room_has_tests(room: str) -> None:
    found = near(f"{room}/changed.c")
    assert found and all((ROOT / one).exists() for one in found)


def test_all_named_tests_exist() -> None:
    named = [*ALWAYS, *(one for rule in NEAR.values() for one in rule if "{room}" not in one)]
    assert [one for one in named if not (ROOT / one).exists()] == []


def test_the_nearest_tests_come_first_and_each_once() -> None:
    found = touched(["shim/progress/gates.c", "tests/c/progress/case_gates.c", "README.md"])
    assert found == ["tests/c/progress", "tests/c", *ALWAYS]
    assert touched(["tests/c/progress/test_gates.py"])[0] == "tests/c/progress/test_gates.py"
    assert touched([]) == [*ALWAYS]
