"""From hooks to events: parameter scan, extents, capture, loss, under a sanitizer."""

import re
from pathlib import Path

import pytest
from observe_build import build, run

SOURCES = ["event", "params", "range", "launch", "copy", "stream"]
SCENARIOS = re.findall(
    r"SCENARIO\((\w+)\),", (Path(__file__).parent / "observe_operations.c").read_text()
)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_operations_are_reported(scenario: str) -> None:
    sources = [f"observe_{name}.c" for name in SOURCES]
    run(build("address,undefined", "observe_operations", *sources), scenario)


def test_no_scenario_is_left_out() -> None:
    text = (Path(__file__).parent / "observe_operations.c").read_text()
    functions = re.findall(r"^static void (\w+)\(void\) \{", text, re.M)
    assert set(functions) - {"set_up"} == set(SCENARIOS)
