"""Tests schedules, which executors carry out without commands, under sanitizers."""

import re
from pathlib import Path

import pytest
from c_build import SANITIZERS
from executor_build import run

TEXT = (Path(__file__).parent / "case_schedule.c").read_text()
SCENARIOS = re.findall(r"^SCENARIO\((\w+)\)", TEXT, re.M)
SCRIBBLES = "a_worker_that_scribbles_over_a_schedule_does_no_harm"


@pytest.mark.parametrize("sanitizer", SANITIZERS)
@pytest.mark.parametrize("scenario", [name for name in SCENARIOS if name != SCRIBBLES])
def test_executors_carry_out_schedules_as_they_must(scenario: str, sanitizer: str) -> None:
    run(sanitizer, scenario)


def test_a_worker_that_scribbles_over_a_schedule_does_no_harm() -> None:
    # Not under ThreadSanitizer: the unordered scribbling is an intentional race.
    run("address,undefined", SCRIBBLES)
