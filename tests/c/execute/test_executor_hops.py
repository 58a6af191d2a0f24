"""Tests the times of slices in recordings, with a controlled clock, under sanitizers."""

import re
from pathlib import Path

import pytest
from c_build import SANITIZERS
from executor_build import run

TEXT = (Path(__file__).parent / "case_hops.c").read_text()
SCENARIOS = re.findall(r"^SCENARIO\((\w+)\)", TEXT, re.M)


@pytest.mark.parametrize("sanitizer", SANITIZERS)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_slice_is_charged_with_what_it_lost(scenario: str, sanitizer: str) -> None:
    run(sanitizer, scenario)
