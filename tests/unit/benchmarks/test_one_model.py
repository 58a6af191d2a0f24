"""README's chart: picture, data and simulator agree."""

from __future__ import annotations

import json

import pytest
from workloads import band, intensity, one_model

from pump_lab.sim.report import Case
from pump_lab.sim.simulation import Machine


def test_the_picture_shows_the_data() -> None:
    found = json.loads(one_model.DATA.read_text())
    assert one_model.PICTURE.read_text() == one_model.picture(found)


def test_the_simulator_still_gives_these_numbers() -> None:
    found = json.loads(one_model.DATA.read_text())
    profile = band.machines()["server"]
    (program,) = (one for one in intensity.programs(profile) if one.name == found["model"])
    assert program.peak_bytes == found["footprint_bytes"]
    case = Case(program, Machine(profile, int(program.peak_bytes / found["oversubscription"])))
    kept = {name: figure["value"] for name, figure in found["times"].items()}
    assert intensity.point(case, 1.0) == pytest.approx(kept, rel=0.05)


def test_a_band_holds_its_value_and_each_machine_is_another() -> None:
    machines = band.machines()
    assert len({profile.hash() for profile in machines.values()}) == len(machines) == 5
    found = band.over(lambda profile: {"factor": float(profile.values["uvm.host_factor"])})
    assert found == {"factor": {"value": 1.0, "least": 0.7, "most": 1.5}}
