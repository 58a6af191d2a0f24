"""Invariant 8: converted bytes never outgrow the host's headroom, summed over processes."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from act_build import build
from test_act_limit import GIB, MIB, OUT_OF_MEMORY, SAN, Host, big_host

EDGE_GIB = 56
"""60 GiB available less 5 % of 64 GiB, in whole GiB."""


class Process:
    """limit_script as a process that goes on (act_case_limit.c)."""

    def __init__(self, host: Host, ledger: Path, group: str = "") -> None:
        """group: the cgroup that it sees as the root of all, as in a container."""
        self.process = subprocess.Popen(
            [str(build(SAN)), "limit_script"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            bufsize=1,
            env={
                "PUMP_PROC_ROOT": str(host.proc),
                "PUMP_CGROUP_ROOT": str(host.cgroups / group),
                "PUMP_LEDGER": str(ledger),
            },
        )

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")

    def answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def admit(self, bytes_: int) -> bool:
        self.say(f"admit {bytes_}")
        answer = self.answer()
        assert answer in ("0", OUT_OF_MEMORY)
        return answer == "0"

    def left(self) -> int:
        self.say("report")
        return int(self.answer().split()[0])

    def end(self) -> str:
        """What it said on stderr."""
        return self.process.communicate(timeout=20)[1]

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    folder = tmp_path / "ledger"
    folder.mkdir()
    return folder


@contextlib.contextmanager
def processes(count: int, host: Host, ledger: Path) -> Iterator[list[Process]]:
    found = [Process(host, ledger) for _ in range(count)]
    try:
        yield found
    finally:
        for one in found:
            one.kill()


def test_of_two_that_want_seven_tenths_the_second_is_told_who_has_the_rest(
    tmp_path: Path, ledger: Path
) -> None:
    with processes(2, big_host(tmp_path), ledger) as (first, second):
        assert first.admit(40 * GIB)
        assert not second.admit(40 * GIB)
        assert second.left() == pytest.approx((EDGE_GIB - 40) * GIB, abs=GIB)
        assert second.admit(16 * GIB)
        assert not first.admit(GIB)
        line, *_ = second.end().splitlines()
        assert "this host's memory leaves" in line
        assert f"40.0 GiB by 1 other process under pump (most by {first.process.pid})" in line
        assert "wait for the other jobs, or free host memory" in line


def test_what_is_returned_can_be_had_by_others(tmp_path: Path, ledger: Path) -> None:
    with processes(2, big_host(tmp_path), ledger) as (first, second):
        assert first.admit(40 * GIB) and not second.admit(20 * GIB)
        first.say(f"return {20 * GIB}")
        assert first.left() < 40 * GIB  # it has carried that out
        assert second.admit(20 * GIB)


def test_the_claim_of_a_process_that_was_killed_is_gone_with_it(
    tmp_path: Path, ledger: Path
) -> None:
    with processes(2, big_host(tmp_path), ledger) as (first, second):
        assert first.admit(40 * GIB) and not second.admit(40 * GIB)
        first.kill()
        assert second.admit(40 * GIB)
        (name,) = (path.name for path in ledger.iterdir())
        assert name.split("-")[1] == str(second.process.pid)


@pytest.mark.parametrize("seed", range(3))
def test_of_many_that_ask_at_once_as_many_get_it_as_there_is_room_for(
    tmp_path: Path, ledger: Path, seed: int
) -> None:
    size = 13 * GIB + seed * 64 * MIB  # four times that is within the 56.8 GiB
    with processes(8, big_host(tmp_path), ledger) as all_:
        for one in all_:
            assert one.left() > size  # it has started
        for one in all_:
            one.say(f"admit {size}")
        answers = [one.answer() for one in all_]
        assert answers.count("0") <= 4, "more than the host can take"
        late = sum(one.admit(size) for one in all_)
        assert answers.count("0") + late == 4


def test_pages_that_others_have_on_the_host_already_are_not_counted_twice(
    tmp_path: Path, ledger: Path
) -> None:
    host = big_host(tmp_path)
    with processes(2, host, ledger) as (first, second):
        assert first.admit(30 * GIB)
        first.say("active 1")
        assert first.admit(2 * MIB)  # says so as it claims more
        host.meminfo.write_text(host.meminfo_text(30 * GIB))  # its blocks have left the GPU
        assert second.left() == pytest.approx((EDGE_GIB - 30) * GIB, abs=GIB)
        assert second.admit(25 * GIB) and not second.admit(2 * GIB)


def test_what_has_gone_while_everybody_fits_was_taken_by_others(
    tmp_path: Path, ledger: Path
) -> None:
    host = big_host(tmp_path)
    with processes(2, host, ledger) as (first, second):
        assert first.admit(20 * GIB)
        host.meminfo.write_text(host.meminfo_text(30 * GIB))
        assert not second.admit(10 * GIB)  # 30 less the reserve less 20 that may still come
        assert second.admit(6 * GIB)


def test_groups_with_limits_of_their_own_share_the_machine_alone(
    tmp_path: Path, ledger: Path
) -> None:
    host = big_host(tmp_path)
    for name in ("a", "b"):
        host.group(name, {"memory.max": str(20 * GIB), "memory.current": "0"})
    first, second, third = (Process(host, ledger, name) for name in ("a", "b", "b"))
    try:
        assert first.admit(18 * GIB) and second.admit(15 * GIB)
        assert not third.admit(5 * GIB), "its group's room is claimed"
        assert third.admit(3 * GIB)
        host.meminfo.write_text(host.meminfo_text(40 * GIB))
        first.say("sleep 200")
        assert first.left() < GIB, "of the machine's 36.8 GiB the other group claims 18"
        assert f"cgroup {host.cgroups}/b leaves" in third.end()
    finally:
        for one in (first, second, third):
            one.kill()


def test_a_folder_full_of_rubbish_misleads_nobody(tmp_path: Path, ledger: Path) -> None:
    with processes(2, big_host(tmp_path), ledger) as (first, second):
        assert first.admit(10 * GIB)
        (mine,) = ledger.iterdir()
        sound = mine.read_bytes()
        uid = os.geteuid()
        (ledger / f"{uid}-1-short").write_bytes(sound[:40])
        (ledger / f"{uid}-1-torn").write_bytes(sound[:-1] + b"\xff")
        (ledger / f"{uid}-1-long").write_bytes(b"\xff" * 100_000)
        (ledger / f"{uid + 1}-1-notmine").write_bytes(sound)  # not of the user it names
        (ledger / "no-number").write_bytes(sound)
        (ledger / f"{uid}-1-link").symlink_to(mine)
        (ledger / f"{uid}-1-folder").mkdir()
        os.mkfifo(ledger / f"{uid}-1-fifo")
        assert second.left() == pytest.approx((EDGE_GIB - 10) * GIB, abs=GIB)
        assert second.admit(46 * GIB) and not second.admit(GIB)


def test_files_that_their_processes_never_wrote_are_swept(tmp_path: Path, ledger: Path) -> None:
    old, new, link = (ledger / f"{os.geteuid()}-7-{name}" for name in ("old", "new", "link"))
    for path in (old, new, tmp_path / "target"):
        path.touch()
    link.symlink_to(tmp_path / "target")
    for path in (old, tmp_path / "target"):
        os.utime(path, (1, 1))
    with processes(1, big_host(tmp_path), ledger) as (one,):
        assert one.admit(GIB)
        assert not old.exists()
        assert new.exists() and link.is_symlink() and (tmp_path / "target").exists()


def test_without_a_ledger_each_looks_at_the_host_alone_and_says_why(
    tmp_path: Path, ledger: Path
) -> None:
    nowhere = ledger / "none"
    with processes(2, big_host(tmp_path), nowhere) as (first, second):
        assert first.admit(40 * GIB) and second.admit(40 * GIB)
        said = second.end()
        assert re.search(r"cannot keep the ledger of host memory at \S*none \(No such file", said)
