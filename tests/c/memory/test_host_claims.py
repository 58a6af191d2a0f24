"""Invariant 8: converted bytes never exceed the host's headroom, summed over processes."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from executor_build import build
from test_shim_limit import GIB, MIB, OUT_OF_MEMORY, SAN, Host, big_host

EDGE_GIB = 56
"""60 GiB available less 5 % of 64 GiB, in whole GiB."""


class Process:
    """Runs limit_script as a long-lived process (case_limit.c)."""

    def __init__(
        self,
        host: Host,
        ledger: Path,
        group: str = "",
        *,
        user: int | None = None,
        before: tuple[str, ...] = (),
        scenario: str = "limit_script",
        job: str = "",
        limit: str = "",
    ) -> None:
        """Starts the process. `group`: the cgroup that it sees as root, as in a container.
        `before`: arguments before the command. `user`: owner of the process, None for ours. `job`,
        `limit`: PUMP_JOB and PUMP_LIMIT."""
        self.process = subprocess.Popen(
            [*before, str(build(SAN)), scenario],
            user=user,
            group=user,
            extra_groups=None if user is None else [],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            bufsize=1,
            env={
                "PUMP_PROC_ROOT": str(host.proc),
                "PUMP_CGROUP_ROOT": str(host.cgroups / group),
                "PUMP_LEDGER": "" if ledger == Path() else str(ledger),
                "PUMP_JOB": job,
                "PUMP_LIMIT": limit,
                "PATH": os.environ["PATH"],
            },
        )

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")

    def answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def ask(self, line: str) -> str:
        self.say(line)
        return self.answer()

    def admit(self, bytes_: int) -> bool:
        self.say(f"admit {bytes_}")
        answer = self.answer()
        assert answer in ("0", OUT_OF_MEMORY)
        return answer == "0"

    def left(self) -> int:
        self.say("report")
        return int(self.answer().split()[0])

    def end(self) -> str:
        """Ends the process and returns its stderr."""
        return self.process.communicate(timeout=20)[1]

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


def entries(ledger: Path) -> list[Path]:
    """Returns the entries of this process's user."""
    folder = ledger / str(os.geteuid())
    return sorted(p for p in folder.glob("*") if p.name.isdigit())


def entry_of(process: Process, ledger: Path) -> Path:
    pid = process.process.pid.to_bytes(8, "little")
    (found,) = (path for path in entries(ledger) if path.read_bytes()[16:24] == pid)
    return found


def eventually(holds: Callable[[], bool], seconds: float = 10) -> bool:
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


@contextlib.contextmanager
def processes(
    count: int, host: Host, ledger: Path, *, job: str = "", limit: str = ""
) -> Iterator[list[Process]]:
    found = [Process(host, ledger, job=job, limit=limit) for _ in range(count)]
    try:
        yield found
    finally:
        for one in found:
            one.kill()


def test_of_two_that_want_seven_tenths_the_second_is_told_which_process_has_the_rest(
    tmp_path: Path, ledger: Path
) -> None:
    with processes(2, big_host(tmp_path), ledger) as (first, second):
        assert first.admit(40 * GIB)
        assert not second.admit(40 * GIB)
        assert second.left() == pytest.approx((EDGE_GIB - 40) * GIB, abs=GIB)
        assert second.admit(16 * GIB)
        assert not first.admit(GIB)
        line, *_ = second.end().splitlines()
        assert "in this host's memory" in line
        assert f"40.0 GiB by 1 other process under pump (largest: {first.process.pid})" in line
        assert "wait for the other jobs, or free host memory" in line


def test_what_is_returned_can_be_had_by_others(tmp_path: Path, ledger: Path) -> None:
    with processes(2, big_host(tmp_path), ledger) as (first, second):
        assert first.admit(40 * GIB) and not second.admit(20 * GIB)
        first.say(f"return {20 * GIB}")
        assert first.left() < 40 * GIB  # the return is complete
        assert second.admit(20 * GIB)


def test_the_claim_of_a_process_that_was_killed_is_gone_with_it(
    tmp_path: Path, ledger: Path
) -> None:
    with processes(2, big_host(tmp_path), ledger) as (first, second):
        assert first.admit(40 * GIB) and not second.admit(40 * GIB)
        first.kill()
        assert second.admit(40 * GIB)


@pytest.mark.parametrize("seed", range(3))
def test_of_many_that_ask_at_once_as_many_get_it_as_there_is_room_for(
    tmp_path: Path, ledger: Path, seed: int
) -> None:
    size = 13 * GIB + seed * 64 * MIB  # four times this size is within the 56.8 GiB
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
        assert first.admit(128 * MIB)  # publishes its state with the new claim
        host.meminfo.write_text(host.meminfo_text(30 * GIB))  # its blocks have left the GPU
        assert second.left() == pytest.approx((EDGE_GIB - 30) * GIB, abs=GIB)
        assert second.admit(25 * GIB) and not second.admit(2 * GIB)


def test_memory_that_goes_while_all_jobs_fit_was_taken_by_others(
    tmp_path: Path, ledger: Path
) -> None:
    host = big_host(tmp_path)
    with processes(2, host, ledger) as (first, second):
        assert first.admit(20 * GIB)
        host.meminfo.write_text(host.meminfo_text(30 * GIB))
        assert not second.admit(10 * GIB)  # 30, less the reserve, less 20 that may still be used
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
        assert f" in cgroup {host.cgroups}/b (" in third.end()
    finally:
        for one in (first, second, third):
            one.kill()


def test_own_files_that_are_no_entries_mislead_no_process(tmp_path: Path, ledger: Path) -> None:
    with processes(2, big_host(tmp_path), ledger) as (first, second):
        assert first.admit(10 * GIB)
        folder = ledger / str(os.geteuid())
        mine = entry_of(first, ledger)
        sound = mine.read_bytes()
        (folder / "9").write_bytes(sound)  # no process holds it
        (folder / "10").write_bytes(sound[:40])
        (folder / "11").write_bytes(b"\xff" * 100_000)
        (folder / "12").symlink_to(mine)
        (folder / "13").mkdir()
        os.mkfifo(folder / "14")
        os.link(mine, folder / "256")  # not a slot number
        os.link(mine, folder / "007")
        for name in ("no-number", "-1", "+5", "99999999999999999999"):
            (ledger / name).mkdir()
            (folder / name).write_bytes(sound)
        assert second.left() == pytest.approx((EDGE_GIB - 10) * GIB, abs=GIB)
        assert second.admit(46 * GIB) and not second.admit(GIB)


def test_entries_of_the_dead_make_room_for_those_of_others(tmp_path: Path, ledger: Path) -> None:
    with processes(3, big_host(tmp_path), ledger) as all_:
        for one in all_:
            assert one.admit(GIB)
        assert len(entries(ledger)) == 3
    with processes(1, big_host(tmp_path / "again"), ledger) as (one,):
        assert one.admit(GIB)
        assert [path.name for path in entries(ledger)] == ["0"]


def test_where_no_claim_can_be_written_an_eighth_of_the_host_is_given_and_no_more(
    tmp_path: Path, ledger: Path
) -> None:
    nowhere = ledger / "none"
    with processes(2, big_host(tmp_path), nowhere) as (first, second):
        for one in (first, second):
            assert not one.admit(8 * GIB) and one.admit(6 * GIB) and not one.admit(2 * GIB)
            assert one.left() == pytest.approx(GIB, abs=GIB)
        said = second.end()
        assert re.search(r"cannot record claims of host memory at \S*none\S* \(No such", said)
        assert "an eighth" in said and "other jobs cannot see its claim" in said


def test_a_program_out_of_descriptors_gets_its_share_until_it_has_some_again(
    tmp_path: Path, ledger: Path
) -> None:
    with processes(2, big_host(tmp_path), ledger) as (first, second):
        assert first.admit(20 * GIB) and second.admit(10 * GIB)
        second.ask("exhaust 1")
        assert not second.admit(20 * GIB), "it does not know what others claim"
        assert second.admit(2 * GIB)
        second.ask("exhaust 0")
        assert second.admit(20 * GIB) and not second.admit(10 * GIB)
        assert not first.admit(10 * GIB), "all that the second was given is claimed"
        assert "Too many open files" in second.end()


def test_a_program_that_closes_all_descriptors_keeps_its_claim(
    tmp_path: Path, ledger: Path
) -> None:
    with processes(2, big_host(tmp_path), ledger) as (first, second):
        assert first.admit(40 * GIB)
        first.ask("closefrom")
        assert not second.admit(40 * GIB)


def test_a_claim_ends_with_its_process_whatever_its_children_do(
    tmp_path: Path, ledger: Path
) -> None:
    with processes(2, big_host(tmp_path), ledger) as (first, second):
        assert first.admit(40 * GIB)
        child = int(first.ask("fork"))
        try:
            assert not second.admit(40 * GIB)
            first.process.kill()
            first.process.wait()
            assert second.admit(40 * GIB)
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_claim_ends_with_an_exec(tmp_path: Path, ledger: Path) -> None:
    with processes(2, big_host(tmp_path), ledger) as (first, second):
        assert first.admit(40 * GIB) and not second.admit(40 * GIB)
        first.ask("exec")
        assert eventually(lambda: second.admit(40 * GIB))


def test_a_claim_whose_file_was_removed_is_written_again(tmp_path: Path, ledger: Path) -> None:
    with processes(2, big_host(tmp_path), ledger) as (first, second):
        assert first.admit(40 * GIB)
        shutil.rmtree(ledger / str(os.geteuid()))
        assert eventually(lambda: len(entries(ledger)) == 2)  # entries of both
        second.say("sleep 200")
        assert second.left() == pytest.approx((EDGE_GIB - 40) * GIB, abs=GIB)


def test_without_close_range_an_entry_that_the_program_closed_is_made_again(
    tmp_path: Path, ledger: Path
) -> None:
    host = big_host(tmp_path)
    with processes(1, host, ledger) as (second,):
        first = Process(host, ledger, scenario="limit_script_without_close_range")
        try:
            assert first.admit(40 * GIB) and not second.admit(40 * GIB)
            first.ask("closefrom")
            second.say("sleep 1200")
            assert not second.admit(40 * GIB)
            child = int(first.ask("fork"))
            first.process.kill()
            first.process.wait()
            assert eventually(lambda: second.admit(40 * GIB)), "the child has closed its copy"
            os.kill(child, signal.SIGKILL)
        finally:
            first.kill()


def test_each_process_sees_what_the_others_need_on_their_cards(
    tmp_path: Path, ledger: Path
) -> None:
    with processes(3, big_host(tmp_path), ledger) as (first, second, third):
        first.say(f"need {30 * GIB}")
        second.say(f"need {5 * GIB}")

        def sees(process: Process, needed: int) -> bool:
            return int(process.ask("others")) == needed

        # The harness's device has no size, so needs are reported unchanged.
        assert eventually(lambda: sees(first, 5 * GIB))
        assert eventually(lambda: sees(second, 30 * GIB))
        assert eventually(lambda: sees(third, 35 * GIB)), "though it uses no card itself"
        assert first.admit(GIB), "claims lie in the same file"
        second.say(f"need {9 * GIB}")
        assert eventually(lambda: sees(third, 39 * GIB))
        first.kill()
        assert eventually(lambda: sees(third, 9 * GIB)), "the dead need nothing"
        folder = ledger / str(os.geteuid())
        assert second.admit(GIB)
        mine = entry_of(second, ledger)
        sound = mine.read_bytes()
        assert len(sound) > 192
        for name, content in (("9", sound), ("10", sound[:300]), ("11", b"\xff" * 100_000)):
            (folder / name).write_bytes(content)
        assert not eventually(lambda: not sees(third, 9 * GIB), seconds=1.5), (
            "no process holds these"
        )
        mine.write_bytes(sound[:192] + sound[192:208] + b"x" + sound[209:])
        assert eventually(lambda: sees(third, 0)), "a sum that is wrong"


def test_a_lock_on_a_file_that_lost_its_name_does_not_let_two_make_entries(
    tmp_path: Path, ledger: Path
) -> None:
    """The second lock file belongs to another process, which makes an entry at this moment."""
    folder = ledger / str(os.geteuid())
    folder.mkdir()
    with contextlib.ExitStack() as files:
        first, second = (files.enter_context((folder / name).open("w")) for name in ("turn", "b"))
        for file in (first, second):
            fcntl.lockf(file, fcntl.LOCK_EX)
        with processes(1, big_host(tmp_path), ledger) as (process,):
            assert eventually(lambda: begun(process))
            time.sleep(0.02)
            (folder / "b").rename(folder / "turn")
            first.close()
            time.sleep(0.1)
            assert not entries(ledger), "the file with the name is locked"
            second.close()
            assert eventually(lambda: process.admit(20 * GIB)) and len(entries(ledger)) == 1


def begun(process: Process) -> bool:
    """Returns whether the link thread, which makes the entry, exists."""
    with contextlib.suppress(OSError):
        return len(list(Path(f"/proc/{process.process.pid}/task").iterdir())) > 1
    return False


def test_processes_that_begin_at_once_all_have_their_entries(tmp_path: Path) -> None:
    """The ledger is unused, as after a reboot."""
    host = big_host(tmp_path)
    for number in range(6):
        ledger = tmp_path / f"fresh-{number}"
        ledger.mkdir(mode=0o700)
        with processes(8, host, ledger) as all_:
            assert all(one.admit(6 * GIB) for one in all_)
            assert len(entries(ledger)) == 8
