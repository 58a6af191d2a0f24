"""Gates: set only where they open by themselves, and opened whatever happens."""

import re
from pathlib import Path

import pytest
from act_build import SANITIZERS, run

TEXT = (Path(__file__).parent / "act_case_gate.c").read_text()
SCENARIOS = re.findall(r"^SCENARIO\((\w+)\)", TEXT, re.M)
FORKS = "a_forked_child_has_no_gates_and_the_parent_keeps_its_own"
ON = {"PUMP_GATE": "1"}


@pytest.mark.parametrize("sanitizer", SANITIZERS)
@pytest.mark.parametrize("scenario", [name for name in SCENARIOS if name != FORKS])
def test_gates_keep_their_promises(scenario: str, sanitizer: str) -> None:
    run(sanitizer, scenario, ON)


def test_a_forked_child_has_none() -> None:
    # ThreadSanitizer knows nothing of a child's threads.
    run("address,undefined", FORKS, ON)


@pytest.mark.parametrize("env", [{}, {"PUMP_GATE": ""}, {"PUMP_GATE": "0"}])
def test_nobody_who_has_not_asked_for_gates_gets_any(env: dict[str, str]) -> None:
    done = run("address,undefined", "without_the_setting_nothing_is_registered", env)
    assert done.stderr == ""


def test_one_line_says_why_there_are_none() -> None:
    for scenario, why in (
        ("a_driver_that_refuses_a_wait_is_not_asked_again", "the driver refused a wait"),
        ("without_stream_memory_operations_there_are_no_gates", "no stream memory operations"),
    ):
        lines = run("address,undefined", scenario, ON).stderr.splitlines()
        assert len(lines) == 1 and why in lines[0], lines
