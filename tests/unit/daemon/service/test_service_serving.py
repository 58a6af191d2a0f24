"""The system service as a process, with simulated jobs: leases, and the jobs that hold them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import service_client
from service_client import (
    GPU,
    MIB,
    PUMPD,
    Played,
    Service,
    closing,
    connect,
    is_closed,
    settle,
    until,
)
from supervisor_client import eventually

from pump.policy.arbiter import FLOORS_SHARE
from pump.service import ServiceClient, ServiceError
from pump.wire import service as wire
from pump.wire.strict import FrameError

FAST = ("--beat", "1", "--settle", "0.05")
USABLE = 970 * MIB
GRAIN = USABLE // 64
SHARED = USABLE - USABLE // FLOORS_SHARE
"""The sum of two jobs that both have less than they want: some memory stays free for overshoot."""


def equal(*jobs: Played) -> bool:
    """Returns whether the jobs' grants differ by less than is worth a message."""
    granted = [job.granted or 0 for job in jobs]
    return min(granted) > 0 and max(granted) - min(granted) <= 2 * GRAIN


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    made = Service(tmp_path, *FAST)
    yield made
    made.kill()


def test_one_job_keeps_what_it_has_and_two_share_by_what_they_want(service: Service) -> None:
    with closing(Played(service, wanted_mib=800)) as (first,):
        first.report()
        until(lambda: first.granted, "a grant", first)
        assert first.granted == first.usable
        second = Played(service, wanted_mib=800)
        second.adopted = 40 * MIB  # it found little free memory
        second.report()
        until(lambda: equal(first, second), "equal shares", first, second)
        assert SHARED - 2 * GRAIN <= first.granted + second.granted <= SHARED
        second.close()
        until(lambda: first.granted == first.usable, "all of it again", first)


def the_first_holds_all_when_the_second_comes(first: Played, second: Played) -> None:
    """Gives all memory to the first job, which does not give way, before the second one comes."""
    first.report()
    until(lambda: first.granted == first.usable, "the whole for one", first)
    first.adopts = False
    second.adopted = 20 * MIB
    second.report()


def test_no_job_grows_before_the_other_has_adopted_and_evicted(service: Service) -> None:
    with closing(Played(service, wanted_mib=800), Played(service, wanted_mib=800)) as jobs:
        first, second = jobs
        the_first_holds_all_when_the_second_comes(first, second)
        settle(service, first, second)
        assert first.granted is not None and first.granted < 500 * MIB, "asked to shrink"
        assert second.granted == 8 * MIB, "the least, for the other holds all"
        first.adopted, first.resident = first.granted, 800 * MIB
        first.acted = first.grant.number
        first.report()
        settle(service, first, second)
        assert second.granted is not None
        assert second.granted <= USABLE - 800 * MIB, "what is still there is not given twice"
        first.resident = 0
        first.adopts = True
        first.report()
        share = SHARED // 2 - GRAIN
        until(lambda: second.granted and second.granted > share, "its share", first, second)


def test_one_that_never_gives_way_is_waited_for_only_so_long(tmp_path: Path) -> None:
    code = (
        "from pumpd import main; from pumpd.service import shrink_budget\n"
        "shrink_budget.SHRINK_S = 0.5; main.main()"
    )
    service = Service(tmp_path, *FAST, command=[sys.executable, "-c", code, "serve"])
    try:
        with closing(Played(service, wanted_mib=800), Played(service, wanted_mib=800)) as jobs:
            first, second = jobs
            the_first_holds_all_when_the_second_comes(first, second)

            def grown() -> bool:
                first.report()
                second.report()
                return second.granted is not None and second.granted > SHARED // 2 - GRAIN

            until(grown, "the wait for the first job to end", first, second)
    finally:
        service.kill()


def test_a_higher_priority_is_served_first_and_the_other_has_its_floor(service: Service) -> None:
    high = Played(service, wanted_mib=800, priority=8)
    low = Played(service, wanted_mib=800)
    with closing(high, low):
        for job in (low, high):
            job.report()
        until(lambda: high.granted and high.granted >= 800 * MIB, "what it wants", high, low)
        assert low.granted is not None and low.granted >= USABLE // 40


def test_a_silent_job_loses_its_lease_and_learns_why(service: Service) -> None:
    with closing(Played(service, wanted_mib=800), Played(service, wanted_mib=800)) as jobs:
        first, second = jobs
        for job in jobs:
            job.report()
        until(lambda: equal(first, second), "equal shares", first, second)

        until(lambda: second.granted == second.usable, "all, for the other is silent", second)
        with service.ask() as client:
            assert client.state().jobs_expired == 1
        first.socket.recv(wire.REPLY_BYTES)  # possibly grants
        eventually(lambda: is_closed(first.socket), "the end of its connection")


def test_each_beat_is_answered_with_the_newest_grant(service: Service) -> None:
    """The answer shows the job that the service is alive."""
    with closing(Played(service, wanted_mib=100)) as (job,):
        job.say(wire.Beat())
        assert job.take() == job.grant, "there is no lease yet"
        job.report()
        until(lambda: job.granted == job.usable, "all of the GPU", job)
        settle(service, job)
        for _ in range(3):
            job.say(wire.Beat())
            assert job.take() == job.grant


def test_a_job_whose_process_dies_leaves_no_lease(service: Service) -> None:
    code = (
        "import sys; sys.path[:0] = sys.argv[2:]\n"
        "from service_client import *; from types import SimpleNamespace\n"
        "job = Played(SimpleNamespace(socket=sys.argv[1]), wanted_mib=800)\n"
        "job.report(); print('there', flush=True); time.sleep(600)\n"
    )
    words = [
        sys.executable,
        "-c",
        code,
        str(service.socket),
        str(Path(service_client.__file__).parent),
    ]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "there\n"
    with service.ask() as client:
        eventually(lambda: client.state().held_bytes > 0, "its lease")
        process.kill()
        process.wait()
        eventually(lambda: client.state().held_bytes == 0, "no lease")
        assert client.state().jobs == 0 and client.state().jobs_left == 1


@pytest.mark.parametrize("first", [0, 1])
def test_a_gpu_on_which_jobs_disagree_is_shared_by_those_that_agree(
    service: Service, first: int
) -> None:
    honest = Played(service, wanted_mib=500)
    liar = Played(service, total_mib=10, wanted_mib=500)
    with closing(honest, liar):
        for job in (honest, liar) if first else (liar, honest):
            job.report()
            until(lambda one=job: one.granted, "a grant", honest, liar)
        settle(service, honest, liar)
        assert (liar.granted, honest.granted) == (liar.usable, honest.usable)


def test_a_job_that_claims_everything_gets_no_more_than_its_share(service: Service) -> None:
    honest = Played(service, wanted_mib=900)
    liar = Played(service, wanted_mib=1 << 40, priority=0)
    liar.usable = 1 << 60
    with closing(honest, liar):
        for job in (honest, liar):
            job.report()
        until(lambda: honest.granted and liar.granted, "grants", honest, liar)
        until(lambda: equal(honest, liar), "equal shares", honest, liar)


def test_jobs_are_listed_with_what_they_hold(service: Service) -> None:
    with closing(*(Played(service, wanted_mib=10, name=f"job {n}") for n in range(70))) as jobs:
        jobs[0].report()
        with service.ask() as client:
            eventually(lambda: client.jobs()[0].gpus, "a lease")
            listed = client.jobs()
            assert [job.name for job in listed] == [f"job {n}" for n in range(70)]
            assert listed[0].gpus[0].gpu == GPU
            assert listed[0].user == os.geteuid() and listed[0].pid == os.getpid()
            state = client.state()
            assert (state.jobs, state.jobs_joined) == (70, 70)
            for job in jobs:
                job.say(wire.Beat())


# ---- restart, reload, versions ----


def test_a_restarted_service_grants_no_memory_that_returning_jobs_hold(tmp_path: Path) -> None:
    service = Service(tmp_path, "--settle", "60")
    try:
        first = Played(service, wanted_mib=800)
        first.adopted = 450 * MIB
        first.report()
        settle(service, first, seconds=1.0)
        assert first.granted == 450 * MIB, "it keeps, and does not grow yet"
        second = Played(service, wanted_mib=800)
        second.adopted = 450 * MIB
        second.report()
        settle(service, first, second, seconds=0.5)
        assert first.granted == second.granted == 450 * MIB
        first.close()
        second.close()
    finally:
        service.kill()


def test_reload_takes_no_lease_away_and_the_end_is_clean(service: Service) -> None:
    with closing(Played(service, wanted_mib=800)) as (job,):
        job.report()
        until(lambda: job.granted, "a grant", job)
        service.process.send_signal(signal.SIGHUP)
        eventually(lambda: "reloaded the configuration" in service.log.read_text(), "a reload")
        job.say(wire.Beat())
        settle(service, job)
        assert job.granted == job.usable
        assert service.end() == 0
        assert not service.socket.exists()
        eventually(lambda: is_closed(job.socket), "the end of the connection")


NEXT_RELEASE = """
import sys
from typing import ClassVar
from pump.wire import service as wire
wire.VERSION, wire.OLDEST = 3, 2
from pumpd import main

class Beat(wire.Beat, frozen=True, tag="beat"):
    LATER: ClassVar[dict[str, int]] = {"mood": 3}
    mood: int = 5

wire.Beat = Beat
wire.FROM_CLIENTS = (wire.Join, wire.Report, Beat, wire.AskJobs, wire.AskService)
sys.exit(main.main())
"""


def test_the_next_release_of_the_service_serves_jobs_of_this_one(tmp_path: Path) -> None:
    command = [sys.executable, "-c", NEXT_RELEASE, "serve"]
    service = Service(tmp_path, *FAST, command=command)
    try:
        with closing(Played(service, wanted_mib=800)) as (job,):
            assert job.version == 2
            job.report()
            until(lambda: job.granted, "a grant", job)
            for _ in range(6):
                job.say(wire.Beat())
                settle(service, job, seconds=0.2)
            assert not is_closed(job.socket)
        old = connect(service)
        old.send(wire.pack_hello(4, 5))
        with pytest.raises(FrameError, match="does not support this release's protocol"):
            wire.check_welcome(old.recv(64))
        old.close()
    finally:
        service.kill()


def test_this_service_serves_jobs_of_the_release_before(service: Service) -> None:
    with closing(Played(service, wanted_mib=800, versions=(1, 1))) as (job,):
        assert job.version == 1
        job.report()
        until(lambda: job.granted, "a grant", job)
        with service.ask() as client:
            assert client.state().refused_frames == 0


NEXT_JOB = """
import os, selectors, sys, time
from typing import ClassVar
from pump.wire import control, service as wire
wire.VERSION, wire.OLDEST = 3, 2

class Beat(wire.Beat, frozen=True, tag="beat"):
    LATER: ClassVar[dict[str, int]] = {"mood": 3}
    mood: int = 5

wire.Beat = Beat
from pumpd.lease import lease_client
from pumpd.lease.lease_client import JobFacts, LeaseClient

wire.pack_hello.__defaults__ = (2, 3)
selector = selectors.DefaultSelector()
holder = LeaseClient(selector, lambda _request, done: done([]), JobFacts([sys.argv[1]], "next"))
while True:
    due = holder.due()
    for key, _ in selector.select(max(0.0, due - time.monotonic())):
        key.data()
    holder.on_time(time.monotonic())
"""
"""A job's pumpd of the next release, whose beats have an additional field."""


def test_a_job_of_the_next_release_renews_with_the_service_of_this_one(tmp_path: Path) -> None:
    service = Service(tmp_path, "--beat", "0.1", "--settle", "0.05")
    job = subprocess.Popen([sys.executable, "-c", NEXT_JOB, str(service.socket)])
    try:
        with service.ask() as client:
            eventually(lambda: [one.name for one in client.jobs()] == ["next"], "the job")
            (first,) = client.jobs()
            time.sleep(1.0)  # ten beats; three missed ones would end the lease
            (then,) = client.jobs()
            assert (then.number, then.pid) == (first.number, job.pid)
            assert client.state().refused_frames == 0
        # The upgrade itself: the service of the next release, then of this one again.
        for command in ([sys.executable, "-c", NEXT_RELEASE, "serve"], [*PUMPD, "serve"]):
            service.end()
            service.command = command
            service.start()
            with service.ask() as client:
                eventually(lambda: [one.name for one in client.jobs()] == ["next"], "it renews")
    finally:
        job.kill()
        job.wait()
        service.kill()


# ---- costs, and bad input ----


def test_an_idle_service_sleeps_and_is_small(service: Service) -> None:
    process = psutil.Process(service.process.pid)
    before = process.num_ctx_switches().voluntary
    time.sleep(1.0)
    assert process.num_ctx_switches().voluntary - before <= 2, "it wakes for nothing"
    assert process.memory_full_info().pss <= 40 * MIB


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--socket", "/nonexistent/folder/socket"], "No such file or directory"),
        (["--beat", "soon"], "must be a time from 0.05 to 60 seconds, not 'soon'"),
        (["--log-level", "inf"], "did you mean 'info'"),
        (["--sockte", "x"], "did you mean '--socket'"),
    ],
)
def test_bad_input_is_one_line_and_status_2(words: list[str], reason: str) -> None:
    done = subprocess.run(
        [*PUMPD, "serve", *words], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 2
    assert reason in done.stderr and len(done.stderr.splitlines()) == 1


def test_a_file_that_is_named_and_not_there_is_told(tmp_path: Path) -> None:
    service = Service(tmp_path, "--config", str(tmp_path / "none.toml"))
    try:
        assert "none.toml; using defaults" in service.log.read_text()
    finally:
        service.kill()


def test_a_second_service_on_one_socket_is_told_so(service: Service) -> None:
    words = [*PUMPD, "serve", "--socket", str(service.socket)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 2 and "another pumpd already listens" in done.stderr


def test_a_place_without_a_service_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ServiceError, match="cannot reach the service: No such file"):
        ServiceClient(str(tmp_path / "none"))
