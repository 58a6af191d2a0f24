"""Executors, populate, quiesce and exit, against a fake driver under sanitizers."""

import time

import pytest
from act_build import SANITIZERS, run

SCENARIOS = [
    "commands_move_bytes_both_ways_and_are_counted",
    "a_command_that_makes_no_sense_is_invalid",
    "a_managed_range_may_begin_and_end_inside_a_block",
    "an_eviction_of_bytes_used_since_the_decision_is_stale",
    "a_prefetch_whose_operation_has_executed_is_late",
    "a_command_for_a_freed_range_is_dead",
    "a_command_for_an_earlier_range_of_the_slot_is_dead",
    "a_free_waits_for_the_running_slice_and_for_nothing_else",
    "frees_against_commands_in_flight_never_meet_a_running_slice",
    "a_full_ring_is_worked_off_in_parallel_and_in_bounds",
    "a_driver_error_is_reported_and_sixteen_in_a_row_end_the_prefetching",
    "a_driver_that_cannot_create_streams_or_events_fails_commands_until_it_can",
    "a_driver_that_is_torn_down_ends_the_threads_quietly",
    "quiesce_leaves_nothing_in_a_context_and_the_next_one_works",
    "quiesce_under_a_stream_of_commands_and_frees_is_safe",
    "threads_have_the_processors_of_the_process_and_not_of_who_started_them",
    "nothing_is_populated_beyond_the_budget",
    "a_range_freed_while_it_waits_is_not_populated",
]


@pytest.mark.parametrize("sanitizer", SANITIZERS)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_executors_keep_their_promises(scenario: str, sanitizer: str) -> None:
    run(sanitizer, scenario)


def test_a_forked_child_is_inert_until_its_own_start() -> None:
    # ThreadSanitizer cannot start threads in a forked child.
    run("address,undefined", "a_forked_child_is_inert_until_its_own_start")


def test_executors_block_every_signal_and_carry_names() -> None:
    run("address,undefined", "executors_block_every_signal_and_carry_names")


def test_a_worker_that_scribbles_over_the_rings_does_no_harm() -> None:
    # Not under ThreadSanitizer: scribbling without order is a race on purpose.
    run("address,undefined", "a_worker_that_scribbles_over_the_rings_does_no_harm")


@pytest.mark.parametrize(
    "scenario",
    [
        "exit_with_work_in_flight_ends_within_a_second_or_so",
        "exit_with_a_stuck_driver_does_not_hang",
        "exit_from_a_signal_handler_on_top_of_our_code_does_not_hang",
    ],
)
def test_exit_is_prompt(scenario: str) -> None:
    run("address,undefined", scenario)  # built and warm
    begin = time.monotonic()
    run("address,undefined", scenario, timeout=20)
    assert time.monotonic() - begin < 5


def test_driver_errors_are_logged_once_per_code() -> None:
    done = run(
        "address,undefined", "a_driver_error_is_reported_and_sixteen_in_a_row_end_the_prefetching"
    )
    lines = [line for line in done.stderr.splitlines() if line.startswith("pump: ")]
    assert sum("CUDA error 999" in line and "failed" in line for line in lines) == 1
    assert sum("no prefetches there" in line for line in lines) == 1
