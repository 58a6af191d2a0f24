"""Tests hello, attach, the worker's death and return; the test itself plays pumpd."""

import os
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
from c_build import SANITIZERS
from executor_build import build, run
from other_users import ATTACKER, VICTIM, needs_root

from pumpd.common.link import ABI_VERSION

SCENARIOS = [
    "attach_carries_ranges_devices_and_counters_over",
    "commands_of_the_daemon_are_carried_out_and_a_dead_worker_is_replaced",
    "a_budget_that_a_worker_asks_for_is_adopted_at_its_ring",
    "memory_that_is_not_as_agreed_is_not_attached",
    "a_worker_that_has_not_begun_is_waited_for_while_its_socket_is_open",
    "a_descriptor_that_the_program_took_over_is_left_alone",
    "workers_may_die_at_any_moment_under_load",
]

OF_TABLES = [
    "a_close_of_the_link_never_hits_a_descriptor_of_the_program",
    "the_program_sees_no_descriptor_of_the_link",
    "what_the_program_closes_ends_for_its_readers_although_the_link_lives",
    "a_program_that_has_used_up_its_descriptors_is_attached_nonetheless",
    "all_numbers_stay_the_programs_own_while_workers_come_and_go",
]
"""For ThreadSanitizer a process has only one table of descriptors."""


def lines_of(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("pump: ")]


@pytest.mark.parametrize("sanitizer", SANITIZERS)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_link_keeps_its_promises(scenario: str, sanitizer: str) -> None:
    run(sanitizer, scenario)


@pytest.mark.parametrize("scenario", OF_TABLES)
def test_the_link_has_a_table_of_descriptors_to_itself(scenario: str) -> None:
    run("address,undefined", scenario)


def test_a_worker_that_stops_beating_is_left_for_a_new_one() -> None:
    done = run(
        "address,undefined",
        "a_worker_that_stops_beating_is_left_for_a_new_one",
        {"PUMP_LOG_LEVEL": "info"},
    )
    assert sum("lost the worker" in line for line in lines_of(done.stderr)) == 1


@pytest.mark.parametrize(
    "scenario",
    [
        "a_recorded_start_does_not_wait_where_nothing_listens",
        "a_pumpd_that_listens_and_is_slow_is_waited_for",
    ],
)
def test_a_recorded_start_waits_for_a_pumpd_that_is_there(scenario: str) -> None:
    run("address,undefined", scenario)


def test_workers_that_die_young_are_asked_for_ever_more_rarely() -> None:
    run("address,undefined", "workers_that_die_young_are_asked_for_ever_more_rarely")


def test_a_forked_child_gives_the_socket_and_the_mapping_up() -> None:
    run("address,undefined", "a_forked_child_gives_the_socket_and_the_mapping_up")
    run("address,undefined", "a_forked_child_closes_its_copy_of_a_socket_among_the_programs")


def test_a_pumpd_of_another_version_is_named_once_with_both_versions() -> None:
    done = run("address,undefined", "a_pumpd_of_another_version_is_named_once")
    (line,) = lines_of(done.stderr)
    assert (
        f"protocol version {ABI_VERSION}, " in line
        and f"pumpd has {ABI_VERSION + 1}" in line
        and "from one release" in line
    )


@needs_root
def test_a_pumpd_of_another_user_is_named_once_and_told_nothing() -> None:
    done = run("address,undefined", "a_pumpd_of_another_user_is_named_once_and_told_nothing")
    (line,) = lines_of(done.stderr)
    assert "is not served by this user or root" in line


@needs_root
@pytest.mark.parametrize(
    ("scenario", "user", "mode"),
    [
        ("in_a_user_namespace_a_pumpd_of_another_user_is_told_nothing", ATTACKER, 0o755),
        ("in_a_user_namespace_the_pumpd_of_the_own_closed_folder_is_trusted", VICTIM, 0o700),
    ],
)
def test_in_a_user_namespace_the_folder_says_whose_pumpd_it_is(
    scenario: str, user: int, mode: int
) -> None:
    """In a user namespace every user may have the same number."""
    with tempfile.TemporaryDirectory(prefix="pump-link-", dir="/tmp") as made:
        Path(made).chmod(0o755)
        folder = Path(made) / "job"
        folder.mkdir()
        folder.chmod(mode)
        os.chown(folder, user, user)
        run("address,undefined", scenario, {"FOLDER": str(folder)})


def test_without_a_daemon_the_job_goes_on_and_says_so_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    done = run(
        "address,undefined",
        "without_a_daemon_the_job_goes_on_and_says_so_once",
        {"PUMP_LOG_FILE": str(log)},
    )
    assert done.stderr == "" and done.stdout == ""
    (line,) = lines_of(log.read_text())
    assert "no pumpd answers at /nonexistent/pumpd.sock" in line


@needs_root
def test_a_socket_that_may_not_be_reached_is_not_called_silent(tmp_path: Path) -> None:
    done = run(
        "address,undefined",
        "a_socket_that_may_not_be_reached_is_named_with_the_reason",
        {"FOLDER": str(tmp_path)},
    )
    (line,) = lines_of(done.stderr)
    assert "cannot reach pumpd at" in line and "Permission denied" in line


def test_a_process_without_address_space_does_not_blame_pumpd() -> None:
    scenario = "memory_for_which_there_is_no_address_space_is_named_with_its_remedy"
    (line,) = lines_of(run("address,undefined", scenario).stderr)
    assert "Cannot allocate memory" in line and "Raise ulimit -v" in line


def test_a_line_of_the_link_comes_while_the_program_runs() -> None:
    command = [str(build("address,undefined")), "without_a_daemon_the_job_goes_on_and_says_so_once"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert "no pumpd answers" in process.stderr.readline()
        assert process.poll() is None, "it sleeps for four seconds"
        process.kill()


def test_a_daemon_that_never_answers_holds_neither_the_program_nor_its_exit_up() -> None:
    run("address,undefined", "a_daemon_that_never_answers_holds_no_thread_up")
    begin = time.monotonic()
    run("address,undefined", "a_daemon_that_never_answers_holds_no_thread_up")
    assert time.monotonic() - begin < 1.5
