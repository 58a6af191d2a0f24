"""Tests several contexts on one device, and special markers, under sanitizers."""

import pytest
from c_build import SANITIZERS
from executor_build import run

SCENARIOS = [
    "another_context_of_the_device_takes_over_at_once",
    "threads_leave_every_context_of_a_device_and_come_back_to_one_that_is_left",
    "markers_of_every_context_of_a_device_tell_its_progress",
    "a_context_that_ends_leaves_the_markers_of_the_others_alone",
    "contexts_come_and_go_while_another_one_works",
    "a_marker_after_a_long_pause_is_seen_at_once",
    "a_marker_that_meets_the_thread_falling_asleep_is_seen_at_once",
    "a_program_that_goes_on_wakes_no_thread",
    "chained_launches_get_few_markers_and_not_none",
]


@pytest.mark.parametrize("sanitizer", SANITIZERS)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_contexts_keep_apart(scenario: str, sanitizer: str) -> None:
    run(sanitizer, scenario)
