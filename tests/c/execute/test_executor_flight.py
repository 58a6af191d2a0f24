"""Tests the controller of threads and slices, and the executors' slices in flight."""

import pytest
from c_build import SANITIZERS
from executor_build import run

CONTROLLER = [
    "threads_are_added_while_each_brings_its_share",
    "no_thread_is_added_that_the_link_cannot_feed",
    "no_thread_is_added_that_finds_no_processor",
    "a_thread_that_no_longer_pays_is_given_back",
    "one_in_thread_with_two_slices_is_enough_while_the_link_is_the_limit",
    "a_second_in_thread_comes_where_the_driver_is_the_limit",
    "the_best_number_is_found_within_few_slices_on_a_noisy_link_and_kept",
    "the_fourth_thread_is_not_a_matter_of_luck",
    "another_number_is_found_when_the_link_changes",
    "a_load_that_waits_for_the_link_takes_no_thread_from_one_that_does_not",
    "noise_does_not_swing_the_number_of_threads",
    "slices_that_no_queue_waited_behind_say_nothing_about_threads",
    "no_thread_is_added_that_the_bytes_in_flight_leave_nothing_for",
    "slices_of_other_lengths_do_not_mislead_a_trial",
    "whatever_is_measured_the_bounds_hold",
]

FLIGHT = [
    "an_in_thread_keeps_so_many_slices_in_flight_each_on_an_idle_stream",
    "lanes_have_a_priority_that_the_program_does_not_use",
    "fewer_lanes_share_the_only_priority_with_the_program",
    "fewer_lanes_share_a_priority_where_the_program_uses_all",
    "a_slice_in_flight_does_not_keep_the_next_command_waiting",
    "a_free_waits_for_all_slices_in_flight_and_cancels_what_is_queued",
    "no_more_than_the_bound_is_in_flight_whatever_the_worker_asks",
    "a_small_budget_bounds_what_is_in_flight_and_a_large_slice_goes_alone",
    "a_command_that_waited_for_room_is_judged_when_it_goes",
    "a_prefetch_of_blocks_that_are_there_is_carried_out_again",
    "what_is_dropped_is_counted_once_for_each_command",
    "a_thread_that_is_woken_alone_wakes_the_next_one_for_what_is_left",
    "a_thread_that_is_woken_alone_leaves_the_wake_up_to_those_that_sleep_on",
    pytest.param(
        "threads_come_when_measured_latencies_ask_for_them_and_rest_afterwards",
        marks=pytest.mark.alone,
    ),
]


@pytest.mark.parametrize("scenario", CONTROLLER)
def test_the_controller_finds_the_number_of_threads(scenario: str) -> None:
    run("address,undefined", scenario)


@pytest.mark.parametrize("sanitizer", SANITIZERS)
@pytest.mark.parametrize("scenario", FLIGHT)
def test_what_is_in_flight_stays_within_its_bounds(scenario: str, sanitizer: str) -> None:
    run(sanitizer, scenario)
