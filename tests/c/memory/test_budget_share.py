"""Tests how the shim follows requested and shared budgets, and holds, under a sanitizer."""

import re
from pathlib import Path

import pytest
from c_build import build, run

TEXT, HOLD_TEXT = (
    Path(__file__).with_name(f"{name}.c").read_text() for name in ("budget_share", "hold_turns")
)
SCENARIOS, HOLD_SCENARIOS = (re.findall(r"SCENARIO\((\w+)\),", text) for text in (TEXT, HOLD_TEXT))


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_budgets_follow_what_is_asked_and_what_others_need(scenario: str) -> None:
    program = build(
        "address,undefined",
        "budget_share",
        "memory/devices.c",
        "memory/drain.c",
        "memory/share.c",
        "base/settings.c",
    )
    run(program, scenario)


@pytest.mark.parametrize("scenario", HOLD_SCENARIOS)
def test_a_job_is_held_for_as_long_as_it_was_said(scenario: str) -> None:
    run(build("address,undefined", "hold_turns", "memory/drain.c"), scenario)


@pytest.mark.parametrize(
    ("text", "scenarios"), [(TEXT, SCENARIOS), (HOLD_TEXT, HOLD_SCENARIOS)], ids=["budget", "hold"]
)
def test_no_scenario_of_a_budget_or_a_hold_is_left_out(text: str, scenarios: list[str]) -> None:
    functions = re.findall(r"^static void (\w+)\(void\) \{", text, re.M)
    assert functions and set(functions) == set(scenarios)
