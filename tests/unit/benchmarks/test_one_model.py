"""README's chart: picture, data and simulator agree."""

from __future__ import annotations

import json

import pytest
from workloads import intensity, one_model

from pump_lab import profiles
from pump_lab.sim.report import Case
from pump_lab.sim.simulation import Machine


def test_the_picture_shows_the_data() -> None:
    found = json.loads(one_model.DATA.read_text())
    assert one_model.PICTURE.read_text() == one_model.picture(found)


def test_the_simulator_still_gives_these_numbers() -> None:
    found = json.loads(one_model.DATA.read_text())
    profile = profiles.load(found["profile"])
    (program,) = (one for one in intensity.programs(profile) if one.name == found["model"])
    assert program.peak_bytes == found["footprint_bytes"]
    case = Case(program, Machine(profile, int(program.peak_bytes / 2.0)))
    assert intensity.point(case, 1.0) == pytest.approx(found["times"]["2.0"], rel=0.05)
