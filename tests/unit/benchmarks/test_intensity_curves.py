"""The curves of docs/pictures over arithmetic intensity: data, pictures and simulator agree."""

from __future__ import annotations

import json
from typing import Any

import pytest
from places import DOCS, ROOT
from workloads import intensity

from pump_lab import profiles

FOUND: dict[str, Any] = json.loads(intensity.DATA.read_text())
CURVES = FOUND["curves"]


@pytest.mark.parametrize("program", intensity.PICTURED)
def test_each_picture_shows_the_data(program: str) -> None:
    (found,) = (one for one in CURVES if one["program"] == program)
    file = intensity.FOLDER / f"intensity-{program}.svg"
    assert file.read_text() == intensity.picture(found)


def test_there_is_no_picture_without_data() -> None:
    pictures = {path.name for path in intensity.FOLDER.glob("intensity-*.svg")}
    assert pictures == {f"intensity-{program}.svg" for program in intensity.PICTURED}


def test_there_is_no_picture_that_no_page_shows() -> None:
    pages = "".join(page.read_text() for page in [*DOCS.rglob("*.md"), ROOT / "README.md"])
    pictures = [path.name for path in intensity.FOLDER.glob("*.svg")]
    shown = [name for name in pictures if name in pages]
    assert len(shown) > len(intensity.PICTURED) and shown == pictures


def test_the_simulator_still_gives_these_figures() -> None:
    profile = profiles.load(FOUND["profile"])
    case = intensity.case_of(intensity.training(profile), profile)
    compute_seconds, link_seconds = intensity.least(case)
    (found,) = (one for one in CURVES if one["program"] == "quickstart")
    assert compute_seconds / link_seconds == pytest.approx(found["given_x"], rel=1e-3)
    for kept in (found["points"][1], found["points"][5]):
        now = intensity.point(case, kept["x"] / found["given_x"])
        assert {"x": kept["x"], **now} == pytest.approx(kept, rel=0.05)


@pytest.mark.parametrize("found", CURVES, ids=lambda found: found["program"])
def test_no_policy_beats_the_floor_and_a_program_that_computes_long_loses_little(
    found: dict[str, Any],
) -> None:
    for point in found["points"]:
        assert min(point[policy] for policy in intensity.POLICIES) >= 0.999 * point["floor"]
    last = found["points"][-1]
    assert last["floor"] == 1.0 and last["window"] < 1.2 and last["planned"] < 1.2
