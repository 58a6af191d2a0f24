"""pumpd's line about a job whose first process could not print its own line."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pump.base.paths import NOTES_NAME
from pump.wire.abi import ffi, lib
from pumpd.common import last_line
from pumpd.common.last_line import Cut, Notes
from pumpd.worker import ended

S = 10**9
CUT = Cut(4 * S, 2 * S, int(1.9 * S), int(2.1 * S), 3 << 30, 2 << 30)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / NOTES_NAME).write_text("client\n")
    return tmp_path


def test_the_figures_of_a_process_that_was_cut_short_are_its_jobs_line(folder: Path) -> None:
    last_line.note(str(folder), CUT)
    found = last_line.notes(str(folder))
    assert found == Notes(1, [], False, [CUT])
    assert last_line.of_job(found) == (
        "ended by a signal or _exit; lost about 50 % of 4.00 s to memory"
    )
    assert last_line.details(found) == [
        "time lost to memory: about 50 % of 4.00 s (1.90 s to 2.10 s) (to measure: pump "
        "compare -- COMMAND)",
        "memory: peak 3.0 GiB, budget 2.0 GiB",
    ]


def test_of_several_the_one_that_was_followed_longest_counts(folder: Path) -> None:
    for cut in (CUT, CUT._replace(of_ns=9 * S, lost_ns=2 * S), CUT):
        last_line.note(str(folder), cut)
    found = last_line.notes(str(folder))
    said = last_line.of_job(found)
    assert said is not None and "of 9.00 s" in said
    assert "the longest of 3 processes" in last_line.details(found)[0]


def test_a_job_that_had_its_line_has_no_second_one(folder: Path) -> None:
    last_line.note(str(folder), CUT)
    with (folder / NOTES_NAME).open("a") as file:
        file.write("said\n")
    assert last_line.of_job(last_line.notes(str(folder))) is None


@pytest.mark.parametrize(
    ("notes", "line"),
    [
        ("client\n", "ended by a signal or _exit; pump's effect is unknown"),
        ("", "ended by a signal or _exit; no process of this job used CUDA"),
        ("client\nended 5 lost much: why\tran\n", "ended by a signal or _exit; ran"),
        ("client\nended 5 lost much: why\tran\nleft 0\n", "lost much: why"),
        ("client\nended 5 lost much: why\tran\nleft 3\n", "failed with status 3; ran"),
        ("client\nclient\nended 5 a\tb\nended 7 c\td\nleft 0\n", "c"),
        ("failed cuInit failed with error 803: why\nleft 1\n", "cuInit failed with error 803: why"),
    ],
)
def test_what_processes_noted_makes_the_line(folder: Path, notes: str, line: str) -> None:
    (folder / NOTES_NAME).write_text(notes)
    assert last_line.of_job(last_line.notes(str(folder))) == line


@pytest.mark.parametrize(
    "line", ["cut", "cut 1 2 3 4 5", "cut 1 2 3 4 5 -6", "cut 1 2 3 4 5 " + "9" * 21]
)
def test_notes_that_make_no_sense_are_passed_over(folder: Path, line: str) -> None:
    with (folder / NOTES_NAME).open("a") as file:
        file.write(line + "\n")
    assert last_line.notes(str(folder)).cut == []


@pytest.mark.parametrize("least", [0, 1, 10**9, 2**64 - 1])
@pytest.mark.parametrize("whole", [0, 1, 999_499_999, 59 * S, 2**63, 2**64 - 1])
def test_whatever_a_process_noted_makes_a_short_line(folder: Path, whole: int, least: int) -> None:
    last_line.note(str(folder), Cut(whole, whole, least, 2**64 - 1, least, whole))
    said = last_line.of_job(last_line.notes(str(folder)))
    assert said is not None and " of " in said and said.endswith(" to memory")
    assert len(f"pump: {said}") <= last_line.LINE_MAX


def test_a_line_that_another_process_forged_is_cut(folder: Path) -> None:
    (folder / NOTES_NAME).write_text("client\nended 5 " + "x" * 500 + "\ty\nleft 0\n")
    said = last_line.of_job(last_line.notes(str(folder)))
    assert said is not None and len(f"pump: {said}") == last_line.LINE_MAX


def client(state: int, of_ns: int = 4 * S) -> Any:
    """Returns a mapping of a client with one device."""
    shm = ffi.new("struct pump_shm *")
    shm.header.device_count = 1
    shm.devices[0].device_state = state
    shm.devices[0].budget_bytes = CUT.budget_bytes
    shm.shim_counters.converted_bytes_peak = CUT.peak_bytes
    shm.worker_counters.lost_of_ns = of_ns
    shm.worker_counters.lost_ns = CUT.lost_ns
    shm.worker_counters.lost_least_ns = CUT.least_ns
    shm.worker_counters.lost_most_ns = CUT.most_ns
    return SimpleNamespace(shm=shm)


def test_a_worker_notes_its_clients_figures_where_pump_moved_memory(folder: Path) -> None:
    ended.note(client(lib.PUMP_DEVICE_ACTIVE).shm, str(folder))
    assert last_line.notes(str(folder)).cut == [CUT]


def test_a_worker_notes_nothing_of_a_client_that_was_left_alone(folder: Path) -> None:
    ended.note(client(lib.PUMP_DEVICE_DORMANT).shm, str(folder))
    ended.note(client(lib.PUMP_DEVICE_ACTIVE, of_ns=0).shm, str(folder))
    ended.note(client(lib.PUMP_DEVICE_ACTIVE).shm, "")
    assert last_line.notes(str(folder)).cut == []
