"""Tests launches that wait in their stream for memory, with a fake driver under sanitizers."""

import pytest
from c_build import SANITIZERS
from executor_build import run

SCENARIOS = [
    "a_launch_waits_in_its_stream_until_its_memory_is_there",
    "a_large_launch_waits_for_its_memory_while_a_worker_brings_it",
    "a_silent_worker_opens_the_gates_of_large_launches_and_gets_none",
    "gates_of_large_launches_that_are_forced_open_become_rare",
    "gates_open_when_the_job_yields_no_longer",
    "gates_open_by_the_clock_where_nothing_moves_and_none_is_made_for_a_while",
    "no_gate_stays_shut_however_much_moves",
    "no_gate_where_none_may_stand",
    "a_driver_that_registers_no_word_has_no_gates",
    "a_word_of_an_earlier_life_of_its_context_is_registered_anew",
    "at_the_end_all_gates_open",
    "a_forked_child_leaves_the_words_of_its_parent_alone",
]


@pytest.mark.parametrize("sanitizer", SANITIZERS)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_no_stream_waits_for_ever(scenario: str, sanitizer: str) -> None:
    run(sanitizer, scenario)
