"""Several users give the service false information, or end without notice: a GPU's size, their
memory and wishes, their identity. An honest job gets its share anyway."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_nvml import MAIN, NVML
from service_client import GPU, Played, Service, closing, until
from supervisor_client import eventually
from test_users_at_the_bounds import USABLE_BYTES, gets, served
from users import (
    ALICE,
    ATTACKERS,
    BOB,
    CAROL,
    CLONE_NEWPID,
    DAVE,
    Say,
    User,
    become,
    needs_root,
    plays,
    public_folder,
    together,
    unshare,
)

pytestmark = needs_root

JOBS_EACH = 3
DEAD_EACH = 12
"""Killed jobs of each attacker."""
SHARE_BYTES = USABLE_BYTES // 4
"""The share of one of four users."""
LIES = {
    BOB: {"total_mib": 10},
    CAROL: {"total_mib": 1 << 40, "wanted_mib": 1 << 40},
    DAVE: {"wanted_mib": 1 << 40, "priority": 0},
}


@pytest.fixture(params=["NVML", "no NVML"])
def service(request: pytest.FixtureRequest) -> Iterator[Service]:
    with public_folder() as folder:
        settings = ""
        if request.param == "NVML":
            uuid = "GPU-01234567-89ab-cdef-0123-456789abcdef"
            (folder / "pynvml.py").write_text(NVML.replace(uuid, f"GPU-{GPU}"))
            (folder / "used").write_text("0")
            path = os.pathsep.join([str(folder), *(entry for entry in sys.path if entry)])
            settings = (
                f"import os; from pumpd.service import cards; cards.CONTROL_NODES = ('/',)\n"
                f"cards.READER = [{sys.executable!r}, '-c', {MAIN!r}]\n"
                f"os.environ.update(PYTHONPATH={path!r}, USED={str(folder / 'used')!r})"
            )
        made = served(folder, settings, "", beat_s=2)
        yield made
        made.kill()


def lies(say: Say, service: Service) -> None:
    """Lies from the first job, so that no honest job was there before."""
    jobs = [Played(service, **LIES[os.getuid()]) for _ in range(JOBS_EACH)]  # type: ignore[arg-type]
    for job in jobs:
        job.usable = 1 << 60
        job.report()
    say("lies")
    plays(say, *jobs)


def test_three_users_who_lie_of_a_gpu_from_the_first_keep_no_other_from_its_share(
    service: Service,
) -> None:
    with together(lies, service), User(ALICE, gets, service, SHARE_BYTES) as alice:
        assert (alice.hear() or 0) >= SHARE_BYTES


# ---- jobs that hang or die ----


def dies_and_hangs(say: Say, service: Service) -> None:
    """Runs jobs that claim all memory, one by one; kills most and stops the last ones."""
    for number in range(DEAD_EACH + 2):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                job = Played(service, wanted_mib=1 << 40)
                job.adopted = job.resident = job.usable
                job.report()
            finally:
                os.write(writer, b"1")
                signal.pause()
        assert os.read(reader, 1), "the job has joined the service"
        os.kill(child, signal.SIGKILL if number < DEAD_EACH else signal.SIGSTOP)
    say("dead")
    signal.pause()


@pytest.mark.parametrize("service", ["no NVML"], indirect=True)
def test_jobs_of_three_users_that_die_or_are_stopped_leave_no_lease(service: Service) -> None:
    with together(dies_and_hangs, service), service.ask() as client:
        eventually(lambda: client.state().jobs == 0, "no job of theirs")
        state = client.state()
        assert (state.held_bytes, state.jobs_expired) == (0, 2 * len(ATTACKERS))
        with closing(Played(service, wanted_mib=1000)) as (alone,):
            alone.report()
            until(lambda: alone.granted == alone.usable, "all of the GPU", alone)


# ---- identity ----


def play_jobs_as_process_one(say: Say, service: Service, user: int) -> None:
    """Plays a job that is process 1 in its own PID namespace; each of its jobs reports pid 1."""
    unshare(CLONE_NEWPID)
    if os.fork() == 0:
        try:
            become(user)
            with closing(*(Played(service, name=str(user), job_pid=1) for _ in range(2))) as jobs:
                say(os.getpid())
                plays(say, *jobs)
        finally:
            os._exit(1)
    os.wait()


def test_three_jobs_that_are_all_process_1_are_known_by_their_processes_here(
    service: Service,
) -> None:
    with contextlib.ExitStack() as stack:
        outer = [
            stack.enter_context(User(0, play_jobs_as_process_one, service, u)) for u in ATTACKERS
        ]
        try:
            assert [one.hear() for one in outer] == [1] * len(ATTACKERS), "as they see themselves"
        except AssertionError as error:
            if "unshare" not in str(error):
                raise
            pytest.skip("this machine gives root no PID namespace")
        with service.ask() as client:
            jobs = client.jobs()
        assert sorted(job.user for job in jobs) == sorted(2 * ATTACKERS)
        assert len({job.pid for job in jobs}) == len(ATTACKERS)
        for job in jobs:
            status = Path(f"/proc/{job.pid}/status").read_text()
            assert f"NSpid:\t{job.pid}\t1\n" in status, "the process that joined, and no other"
            assert f"\nUid:\t{job.user}\t" in status and job.name == str(job.user)
