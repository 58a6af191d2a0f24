"""Runs of a command: their logs, and the reasons for their ends."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest
from supervisor_client import eventually

from pump.measure import runs
from pump.measure.runs import Ran, Stop


def run(folder: Path, script: str, seconds_most: float | None = None) -> Ran:
    with Stop() as stop:
        return runs.run(["sh", "-c", script], os.environ, folder / "log", stop, seconds_most)


def gone(pid: int) -> bool:
    """Returns whether a process has ended; its parent may not have waited for it."""
    try:
        return ") Z " in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True


def test_both_outputs_are_in_the_log_and_there_is_no_input(tmp_path: Path) -> None:
    ran = run(tmp_path, "echo out; echo err >&2; cat; exit 3")
    assert ran.failure() == "exit status 3"
    assert runs.tail(ran.log) == "out\nerr"


def test_a_signal_that_ends_a_run_is_named(tmp_path: Path) -> None:
    assert run(tmp_path, "kill -SEGV $$").failure() == "ended by SIGSEGV"


def test_what_a_run_leaves_behind_is_ended_with_it(tmp_path: Path) -> None:
    ran = run(tmp_path, "sleep 1000 & echo $!")
    left = int(ran.log.read_text())
    assert not ran.failure()
    eventually(lambda: gone(left), "what was left behind to end")


def test_a_run_beyond_its_time_is_killed_and_says_so(tmp_path: Path) -> None:
    ran = run(tmp_path, "sleep 1000", seconds_most=0.1)
    assert ran.too_long
    assert ran.failure().startswith("still running after ")


def test_a_signal_ends_the_run_instead_of_this_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with Stop() as stop:
            start = stop.begun

            def interrupt(group: int) -> None:
                start(group)
                if group:
                    signal.raise_signal(signal.SIGINT)

            monkeypatch.setattr(stop, "begun", interrupt)
            ran = runs.run(["sleep", "1000"], os.environ, tmp_path / "log", stop)
            assert (stop.number, ran.status) == (signal.SIGINT, -signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_second_signal_kills_what_ignores_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Stop() as stop:
        start = stop.begun

        def interrupt(group: int) -> None:
            start(group)
            if group:
                eventually((tmp_path / "ready").exists, "the run to ignore the signal")
                signal.raise_signal(signal.SIGTERM)
                signal.raise_signal(signal.SIGTERM)

        monkeypatch.setattr(stop, "begun", interrupt)
        script = f"trap '' TERM; touch '{tmp_path}/ready'; while :; do sleep 0.01; done"
        ran = runs.run(["sh", "-c", script], os.environ, tmp_path / "log", stop)
    assert ran.status == -signal.SIGKILL


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Stop():
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize(
    ("output", "status", "expected"),
    [
        ("RuntimeError: CUDA out of memory. Tried to allocate", 1, True),
        ("CUDA_ERROR_OUT_OF_MEMORY", 1, True),
        ("torch.OutOfMemoryError: x", 1, True),
        ("RESOURCE_EXHAUSTED: Out of memory while trying", 1, True),
        ("CUDA out of memory, trying a smaller batch", 0, False),
        ("pump: the program got out-of-memory because\nValueError: no such file", 1, False),
        ("BLOOM", 1, False),
    ],
)
def test_lack_of_memory_is_known_from_what_a_failing_run_says(
    tmp_path: Path, output: str, status: int, expected: bool
) -> None:
    (tmp_path / "log").write_text(output)
    assert Ran(status, 1.0, tmp_path / "log").out_of_memory is expected


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("took 3.5 s\ntook 2.5 s\n", 2.5),
        ("took 1e-3 s", 0.001),
        ("nothing", None),
        ("took 0 s", None),
        ("took .e s", None),
    ],
)
def test_the_last_time_that_a_run_prints_counts(
    tmp_path: Path, output: str, expected: float | None
) -> None:
    (tmp_path / "log").write_text(output)
    pattern = re.compile(rb"took ([0-9.e-]+) s")
    assert Ran(0, 1.0, tmp_path / "log").last(pattern) == expected


def test_the_end_of_a_log_cannot_drive_the_terminal(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"\x1b[2Jgone \xff\nlast\n")
    shown = runs.tail(tmp_path / "log")
    assert "\x1b" not in shown
    assert shown.endswith("\nlast")
