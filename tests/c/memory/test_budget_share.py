"""Budgets that are asked for or shared: how the shim's figures follow, under a sanitizer."""

import re
from pathlib import Path

import pytest
from c_build import build, run

TEXT = Path(__file__).with_name("budget_share.c").read_text()
SCENARIOS = re.findall(r"SCENARIO\((\w+)\),", TEXT)


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


def test_no_scenario_of_a_budget_is_left_out() -> None:
    functions = re.findall(r"^static void (\w+)\(void\) \{", TEXT, re.M)
    assert functions and set(functions) == set(SCENARIOS)
