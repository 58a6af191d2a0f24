"""Tests the program's events as evidence of progress, under sanitizers."""

import re
from pathlib import Path

import pytest
from c_build import SANITIZERS
from executor_build import run

TEXT = (Path(__file__).parent / "case_event.c").read_text()


@pytest.mark.parametrize("sanitizer", SANITIZERS)
@pytest.mark.parametrize("scenario", re.findall(r"^SCENARIO\((\w+)\)", TEXT, re.M))
def test_events_tell_no_more_than_they_prove(scenario: str, sanitizer: str) -> None:
    run(sanitizer, scenario)
