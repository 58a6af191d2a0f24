"""Tests streams, markers and synchronisations with a fake driver under sanitizers."""

import pytest
from c_build import SANITIZERS
from executor_build import run

SCENARIOS = [
    "an_operation_that_touches_many_bytes_gets_a_marker_of_its_own",
    "a_marker_goes_every_sixteen_operations_or_two_hundred_microseconds",
    "executed_follows_the_stream_and_never_runs_ahead_or_back",
    "a_stream_that_is_stuck_does_not_hold_up_another_one",
    "a_burst_that_meets_a_small_pool_is_marked_thinly_to_its_end",
    "a_burst_of_a_full_launch_queue_is_marked_to_its_last_operation",
    "operations_without_a_marker_are_presumed_executed_after_the_last_sign",
    "an_empty_pool_costs_a_marker_and_nothing_else",
    "nothing_is_recorded_on_a_capturing_stream",
    "a_failing_query_advances_nothing",
    "the_time_of_an_operation_lies_between_two_events_around_it",
    "a_time_that_cannot_be_taken_costs_nothing",
    "strides_between_times_vary_and_follow_the_pace",
    "markers_with_timing_end_with_their_context",
    "the_programs_own_synchronisations_advance_progress",
    "streams_keep_their_slots_and_gone_ones_are_reused",
    "default_streams_are_told_apart_by_context_and_thread",
    "many_threads_issue_on_shared_and_own_streams",
    "a_thread_that_issues_waits_behind_it_for_the_jobs_turn",
    "a_signal_ends_the_wait_for_the_jobs_turn",
    "nothing_waits_for_a_turn_where_nothing_is_reported_any_more",
    "markers_survive_the_end_of_their_context",
]


@pytest.mark.parametrize("sanitizer", SANITIZERS)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_progress_keeps_its_promises(scenario: str, sanitizer: str) -> None:
    run(sanitizer, scenario)
