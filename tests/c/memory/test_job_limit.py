"""--limit bounds what all processes of a job convert together, based on their ledger entries."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from test_host_claims import Process, eventually, processes
from test_shim_limit import GIB, MIB, big_host

JOB = "00c0ffee12345678"
PIECE = 8 * MIB


def take(of: list[Process], limit_bytes: int) -> int:
    """Lets all processes convert pieces concurrently until none gets another; returns the sum."""
    sum_bytes, left = 0, list(of)
    while left and sum_bytes <= 2 * limit_bytes:
        for one in left:
            one.say(f"admit {PIECE}")
        left = [one for one in left if one.answer() == "0"]
        sum_bytes += len(left) * PIECE
    return sum_bytes


@pytest.mark.parametrize("count", [1, 4, 16])
def test_the_processes_of_a_job_share_its_limit(tmp_path: Path, ledger: Path, count: int) -> None:
    host = big_host(tmp_path)
    with processes(count, host, ledger, job=JOB, limit=str(GIB)) as all_:
        assert GIB - count * 64 * MIB < take(all_, GIB) <= GIB
        assert eventually(lambda: take(all_, GIB) == 0)
        line = all_[-1].end().splitlines()[-1]
        assert f"this job's limit of {GIB // MIB} MiB (PUMP_LIMIT)" in line
        if count > 1:
            assert f"by {count - 1} other process" in line and "of the job (largest: " in line


def test_what_a_killed_process_held_is_the_jobs_again_within_a_second(
    tmp_path: Path, ledger: Path
) -> None:
    with processes(4, big_host(tmp_path), ledger, job=JOB, limit=str(GIB)) as all_:
        assert all_[0].admit(600 * MIB) and take(all_, GIB) <= 424 * MIB
        all_[0].kill()
        assert eventually(lambda: all_[1].admit(600 * MIB), seconds=1)


def test_what_is_claimed_ahead_and_not_used_keeps_no_other_process_from_it(
    tmp_path: Path, ledger: Path
) -> None:
    with processes(16, big_host(tmp_path), ledger, job=JOB, limit=str(GIB)) as all_:
        assert all(one.admit(40 * MIB) for one in all_)
        assert eventually(lambda: all_[0].admit(GIB - 16 * 40 * MIB), seconds=5)


def test_jobs_do_not_count_against_each_others_limits(tmp_path: Path, ledger: Path) -> None:
    host = big_host(tmp_path)
    limit = str(GIB)
    with (
        processes(1, host, ledger, job=JOB, limit=limit) as (first,),
        processes(1, host, ledger, job="1", limit=limit) as (second,),
        processes(2, host, ledger, limit=limit) as (third, fourth),  # each is a job of its own
    ):
        assert all(one.admit(GIB) for one in (first, second, third, fourth))
        assert not any(one.admit(2 * MIB) for one in (first, second, third, fourth))


def test_a_percentage_is_of_what_the_jobs_first_process_found(tmp_path: Path, ledger: Path) -> None:
    host = big_host(tmp_path)
    with processes(2, host, ledger, job=JOB, limit="50%") as (first, second):
        assert first.admit(20 * GIB)
        host.meminfo.write_text(host.meminfo_text(40 * GIB))  # its pages are on the host
        assert second.admit(8 * GIB)  # a half of the first 56.8 GiB, not of the rest
        assert not second.admit(GIB)


@pytest.mark.parametrize(("cards", "sum_gib"), [((1, 1), 12), ((1, 2), 24)])
def test_a_multiple_counts_each_gpu_of_the_job_once(
    tmp_path: Path, ledger: Path, cards: tuple[int, int], sum_gib: int
) -> None:
    with processes(2, big_host(tmp_path), ledger, job=JOB, limit="1.5x") as both:
        for one, card in zip(both, cards, strict=True):
            one.say(f"card {card}\nneed 1\ndevice {8 * GIB}")
            assert one.admit(2 * GIB)
        assert not both[0].admit((sum_gib - 3) * GIB)
        assert both[0].admit((sum_gib - 4) * GIB)
        assert not both[1].admit(GIB)


@pytest.mark.skipif(os.geteuid() != 0, reason="plays another user, which takes root")
def test_another_user_cannot_use_up_the_limit_of_a_job_whose_number_it_read() -> None:
    other = 10001
    with tempfile.TemporaryDirectory() as root:
        Path(root).chmod(0o755)
        host, ledger = big_host(Path(root, "host")), Path(root, "ledger")
        (ledger / str(other)).mkdir(parents=True)
        os.chown(ledger / str(other), other, other)
        attacker = Process(host, ledger, user=other, job=JOB, limit=str(GIB))
        try:
            assert attacker.admit(GIB)
            with processes(1, host, ledger, job=JOB, limit=str(GIB)) as (honest,):
                assert honest.admit(GIB)
        finally:
            attacker.kill()


@pytest.mark.parametrize("where", ["none", ""])
def test_without_a_ledger_each_process_gets_an_eighth_and_the_line_says_so(
    tmp_path: Path, where: str
) -> None:
    ledger = tmp_path / where if where else Path()
    with processes(2, big_host(tmp_path), ledger, job=JOB, limit=str(GIB)) as both:
        assert all(one.admit(128 * MIB) and not one.admit(2 * MIB) for one in both)
        line = both[0].end().splitlines()[-1]
        assert "this job's limit of 1024 MiB" in line and "this process may use an eighth" in line
        assert "other jobs cannot see its claim" in line
