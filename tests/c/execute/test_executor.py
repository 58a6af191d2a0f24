"""Tests executors, populate, quiesce and exit with a fake driver under sanitizers."""

import os
import time
from pathlib import Path

import pytest
from c_build import SANITIZERS
from executor_build import run

SCENARIOS = [
    "commands_move_bytes_both_ways_and_are_counted",
    "a_command_with_advice_moves_nothing_and_reports_the_drivers_answer",
    "a_command_that_makes_no_sense_is_invalid",
    "a_managed_range_may_begin_and_end_inside_a_block",
    "an_eviction_of_bytes_used_since_the_decision_is_stale",
    "a_prefetch_whose_operation_has_executed_is_late",
    "a_command_for_a_freed_range_is_dead",
    "a_command_for_an_earlier_range_of_the_slot_is_dead",
    "a_free_waits_for_the_running_slice_and_for_nothing_else",
    "frees_against_commands_in_flight_never_meet_a_running_slice",
    "a_full_schedule_is_worked_off_in_parallel_and_in_bounds",
    "a_driver_error_is_reported_and_sixteen_in_a_row_end_the_prefetching",
    "a_driver_that_cannot_create_streams_or_events_fails_commands_until_it_can",
    "a_driver_that_is_torn_down_ends_the_threads_quietly",
    "quiesce_leaves_nothing_in_a_context_and_the_next_one_works",
    "quiesce_under_a_stream_of_commands_and_frees_is_safe",
    "threads_have_the_processors_of_the_process_not_of_their_parent",
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


@pytest.mark.parametrize(
    "scenario",
    [
        "exit_with_work_in_flight_ends_within_a_second_or_so",
        "exit_with_a_stuck_driver_does_not_hang",
        "exit_from_a_signal_handler_on_top_of_our_code_does_not_hang",
    ],
)
def test_exit_is_prompt(scenario: str) -> None:
    run("address,undefined", scenario)  # builds the program and warms up
    begin = time.monotonic()
    run("address,undefined", scenario, timeout=20)
    assert time.monotonic() - begin < 5


def test_driver_errors_are_logged_once_per_code() -> None:
    done = run(
        "address,undefined", "a_driver_error_is_reported_and_sixteen_in_a_row_end_the_prefetching"
    )
    lines = [line for line in done.stderr.splitlines() if line.startswith("pump: ")]
    assert sum("CUDA error 999" in line and "failed" in line for line in lines) == 1
    assert sum("prefetching pauses there" in line for line in lines) == 1


def machine(root: Path, nodes: dict[int, str], card: int) -> Path:
    """Makes a /sys with the CPU cores of each node, and the fake driver's GPU at one node."""
    device = root / "bus" / "pci" / "devices" / "0000:41:00.0"
    device.mkdir(parents=True)
    (device / "numa_node").write_text(f"{card}\n")
    for node, processors in nodes.items():
        folder = root / "devices" / "system" / "node" / f"node{node}"
        folder.mkdir(parents=True)
        (folder / "cpulist").write_text(f"{processors}\n")
    return root


MINE = sorted(os.sched_getaffinity(0))
ALL = ",".join(map(str, MINE))
FIRST = str(MINE[0])
REST = ",".join(map(str, MINE[1:])) or FIRST  # a machine with one CPU core has one node


@pytest.mark.parametrize(
    ("by_driver", "by_kernel", "nodes", "expected"),
    [
        pytest.param(1, -1, {0: REST, 1: FIRST}, FIRST, id="the driver reports the NUMA node"),
        pytest.param(-1, 1, {0: REST, 1: FIRST}, FIRST, id="the kernel reports it"),
        pytest.param(-1, 0, {0: REST, 1: FIRST}, REST, id="the other node"),
        pytest.param(0, -1, {0: f"{FIRST}-1023"}, ALL, id="one node"),
        pytest.param(-1, -1, {0: REST, 1: FIRST}, ALL, id="nothing reports it"),
        pytest.param(1, 1, {0: ALL, 1: "1022-1023"}, ALL, id="none of its processors is ours"),
        pytest.param(1, 1, {0: ALL, 1: ""}, ALL, id="a node without processors"),
        pytest.param(2, -1, {0: REST, 1: FIRST}, ALL, id="the kernel does not know the node"),
    ],
)
def test_movers_stay_at_the_cards_numa_node(
    tmp_path: Path, by_driver: int, by_kernel: int, nodes: dict[int, str], expected: str
) -> None:
    root = machine(tmp_path, nodes, by_kernel)
    environment = {"PUMP_SYS_ROOT": str(root), "NODE": str(by_driver), "EXPECTED": expected}
    run("address,undefined", "movers_have_the_processors_of_the_cards_node", env=environment)
