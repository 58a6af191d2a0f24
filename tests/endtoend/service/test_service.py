"""Jobs under a system service on the virtual GPU: leases move, results stay the same."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pumpds
import pytest
from job import expected
from jobs import Job

from pump.control import Control
from pump.service import JobState, ServiceClient, ServiceError

MIB = 1 << 20
SHAPE = {"buffers": 24, "mib": 4, "steps": 300, "seed": 5}
WORDS = [f"--{name}={value}" for name, value in SHAPE.items()]
CARD_MIB = 256
"""Two jobs of 96 MiB fit on the GPU; four do not."""


class Service:
    """A `pumpd serve` that jobs of the test find."""

    def __init__(self, folder: Path) -> None:
        self.socket = folder / "service"
        self.log = folder / "service.log"
        self.start()

    def start(self) -> None:
        words = [sys.executable, "-m", "pumpd", "serve", "--socket", str(self.socket)]
        words += ["--beat", "0.5", "--settle", "1", "--log-level", "info"]
        with self.log.open("a") as log:
            self.process = subprocess.Popen(words, stderr=log)
        assert pumpds.wait_for(lambda: self.jobs() is not None, 60)

    def jobs(self) -> list[JobState] | None:
        """Returns the jobs that the service knows; None if it does not answer."""
        try:
            with ServiceClient(str(self.socket)) as client:
                return client.jobs()
        except ServiceError:
            return None

    def granted(self, pid: int) -> int:
        """Returns the bytes granted to the job of that process on its GPU; 0 for none."""
        for job in self.jobs() or []:
            if job.job_pid == pid and job.gpus:
                return job.gpus[0].granted_bytes
        return 0

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    made = Service(tmp_path)
    yield made
    made.end()


def start(
    job: Job,
    service: Service,
    *,
    sleep_ms: int = 15,
    run: tuple[str, ...] = (),
    hold: Path | None = None,
    **env: str,
):
    """Starts a job; with `hold` the job does not end before that file is gone."""
    words = [*WORDS, f"--sleep-ms={sleep_ms}"]
    if hold is not None:
        hold.touch()
        words.append(f"--hold={hold}")
    return start_words(job, service, words, run, **env)


def start_lasting(job: Job, service: Service, *, run: tuple[str, ...] = ()):
    """Starts a job that lasts longer than any test and must be dropped."""
    return start_words(job, service, [*WORDS, "--steps=100000", "--sleep-ms=40"], run)


def start_words(job: Job, service: Service, words: list[str], run: tuple[str, ...], **env: str):
    line = job.command(*words, memory_mib=CARD_MIB, run=run)
    environ = job.environment(PUMP_SERVICE=str(service.socket), **env)
    return subprocess.Popen(
        line, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finish(process: subprocess.Popen) -> None:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert out.splitlines()[-1] == expected(**SHAPE)


def drop(*processes: subprocess.Popen) -> None:
    """Kills jobs whose results do not matter."""
    for process in processes:
        process.kill()
        process.communicate()


def budget_of(process: subprocess.Popen) -> int:
    with Control.of_job(str(pumpds.socket_of(process.pid))) as control:
        return sum(device.budget_bytes for one in control.state() for device in one.devices)


def test_leases_move_when_jobs_come_and_go_and_the_bits_stay(job: Job, service: Service) -> None:
    hold = job.folder / "hold"
    card = ("--virtual-set", f"shared=moves{os.getpid()}")
    summary = job.folder / "summary.json"
    first = start(job, service, run=card, hold=hold, PUMP_SUMMARY=str(summary))
    assert pumpds.wait_for(lambda: service.granted(first.pid) > 200 * MIB, 20), "the whole card"
    others = [start(job, service, sleep_ms=20, run=card) for _ in range(3)]
    assert pumpds.wait_for(lambda: len(service.jobs() or []) == 4, 20)
    assert pumpds.wait_for(lambda: 0 < service.granted(first.pid) < 100 * MIB, 30)
    assert pumpds.wait_for(lambda: budget_of(first) == service.granted(first.pid))
    for one in others:
        finish(one)
    assert pumpds.wait_for(lambda: service.granted(first.pid) > 200 * MIB, 20), "all again"
    hold.unlink()
    finish(first)
    assert pumpds.wait_for(lambda: service.jobs() == [])
    (device,) = json.loads(summary.read_text())["devices"]
    assert 0 < device["least_budget_bytes"] < 100 * MIB
    assert device["most_budget_bytes"] == device["budget_bytes"] > 200 * MIB


@pytest.mark.parametrize("count", [4, pytest.param(16, marks=pytest.mark.long)])
def test_a_service_killed_and_restarted_finds_all_its_jobs_again(
    job: Job, service: Service, count: int
) -> None:
    """The jobs share one GPU that has memory for two jobs."""
    hold = job.folder / "hold"
    card = ("--virtual-set", f"shared=again{os.getpid()}")
    jobs = [start(job, service, sleep_ms=10 * count, run=card, hold=hold) for _ in range(count)]
    pids = {one.pid for one in jobs}
    assert pumpds.wait_for(lambda: all(service.granted(pid) for pid in pids), 90)
    for number in (signal.SIGKILL, signal.SIGTERM):
        service.process.send_signal(number)
        service.process.wait(timeout=20)
        time.sleep(0.3)
        for one in jobs:
            assert pumpds.wait_for(lambda one=one: budget_of_or_0(one) > 0), "they keep it"
        service.start()
        assert pumpds.wait_for(
            lambda: {one.job_pid for one in service.jobs() or [] if one.gpus} == pids, 60
        )
    hold.unlink()
    for one in jobs:
        finish(one)


def test_a_worker_that_is_killed_takes_no_lease_with_it(job: Job, service: Service) -> None:
    hold = job.folder / "hold"
    card = ("--virtual-set", f"shared=kept{os.getpid()}")
    first, second = (start(job, service, sleep_ms=20, run=card, hold=hold) for _ in range(2))
    pids = (first.pid, second.pid)
    before: list[int] = []

    def settled() -> bool:
        """Returns whether no lease has changed for a second."""
        before[:] = [service.granted(pid) for pid in pids]
        time.sleep(1)
        return min(before) > 80 * MIB and before == [service.granted(pid) for pid in pids]

    assert pumpds.wait_for(settled, 40)
    there = pumpds.of_job(first.pid)
    seen = []
    os.kill(there.warm, signal.SIGSTOP)  # delays a new worker
    try:
        pumpds.kill(*there.workers)
        for _ in range(60):  # longer than the timeout for an answer
            seen.append([service.granted(pid) for pid in pids])
            time.sleep(0.1)
    finally:
        os.kill(there.warm, signal.SIGCONT)
    assert pumpds.wait_for(lambda: budget_of_or_0(first) > 0, 40), "another worker"
    seen += [[service.granted(pid) for pid in pids] for _ in range(20)]
    moved = [abs(one[i] - before[i]) for one in seen for i in range(2)]
    assert max(moved) < 16 * MIB
    hold.unlink()
    finish(first)
    finish(second)


def test_a_job_finds_a_service_that_comes_later(job: Job, service: Service) -> None:
    service.end()
    process = start_lasting(job, service)
    assert pumpds.wait_for(lambda: budget_of_or_0(process) > 200 * MIB, 20), "its own budget"
    service.start()
    assert pumpds.wait_for(lambda: service.granted(process.pid) > 0, 20)
    drop(process)


def budget_of_or_0(process: subprocess.Popen) -> int:
    try:
        return budget_of(process)
    except Exception:  # it has not started yet
        return 0


def test_a_job_that_began_beside_another_gets_the_card_when_that_has_ended(
    job: Job, service: Service
) -> None:
    card = ("--virtual-set", f"shared=lease{os.getpid()}")
    first = start_lasting(job, service, run=card)
    assert pumpds.wait_for(lambda: in_use(service, first.pid) >= 96 * MIB, 30)
    hold = job.folder / "hold"
    second = start(job, service, run=card, hold=hold)
    assert pumpds.wait_for(lambda: in_use(service, second.pid) > 0, 30)
    with Control.of_job(str(pumpds.socket_of(second.pid))) as control:
        free = control.state()[0].devices[0].free_at_start_bytes
        assert free < 170 * MIB, "the first job was there"
        drop(first)
        assert pumpds.wait_for(lambda: service.granted(second.pid) > 200 * MIB, 20)
        assert pumpds.wait_for(lambda: budget_of(second) > 200 * MIB, 10)
    hold.unlink()
    finish(second)


def in_use(service: Service, pid: int) -> int:
    """Returns the bytes that the job of that process keeps on its GPU; 0 for none."""
    found = [one for one in service.jobs() or [] if one.job_pid == pid and one.gpus]
    return found[0].gpus[0].resident_bytes if found else 0


def test_a_hung_jobs_lease_goes_to_others_and_comes_back(job: Job, service: Service) -> None:
    card = ("--virtual-set", f"shared=hung{os.getpid()}")
    first, second = (start_lasting(job, service, run=card) for _ in range(2))
    assert pumpds.wait_for(lambda: service.granted(first.pid) and service.granted(second.pid), 30)
    pumpd = pumpds.of_job(second.pid).supervisor
    try:
        os.kill(pumpd, signal.SIGSTOP)
        assert pumpds.wait_for(lambda: service.granted(first.pid) > 200 * MIB, 20)
        os.kill(pumpd, signal.SIGCONT)
        assert pumpds.wait_for(lambda: service.granted(second.pid) > 0, 20)
    finally:
        os.kill(pumpd, signal.SIGCONT)
        drop(first, second)


def test_a_lease_never_exceeds_the_jobs_own_budget_nor_what_its_user_sets(
    job: Job, service: Service
) -> None:
    process = start_lasting(job, service, run=("--budget", "64MiB"))
    assert pumpds.wait_for(lambda: service.granted(process.pid) > 200 * MIB, 20)
    assert budget_of(process) == 64 * MIB
    with Control.of_job(str(pumpds.socket_of(process.pid))) as control:
        control.set(budget_bytes=32 * MIB)
        time.sleep(1.5)  # a few beats
        assert budget_of(process) == 32 * MIB
        control.set(budget_bytes=128 * MIB)
        time.sleep(1.5)
        assert budget_of(process) == 128 * MIB
    drop(process)


def test_jobs_started_and_killed_at_random_leave_nothing(job: Job, service: Service) -> None:
    campaign(job, service, count=50, seed=1)


@pytest.mark.long
def test_a_thousand_jobs_started_and_killed_at_random_leave_nothing(
    job: Job, service: Service
) -> None:
    campaign(job, service, count=1000, seed=2)


def campaign(job: Job, service: Service, count: int, seed: int) -> None:
    """Starts `count` jobs, a few at a time, and kills each job or its pumpd at some moment."""
    with tempfile.TemporaryDirectory(prefix="pump-t-") as folder:  # short, for a socket's path
        play(job, service, count, seed, Path(folder))


def play(job: Job, service: Service, count: int, seed: int, folder: Path) -> None:
    source = random.Random(seed)
    before = descriptors(service.process.pid)
    running: list[tuple[subprocess.Popen, float]] = []
    started: list[int] = []
    while len(started) < count or running:
        if len(started) < count and len(running) < 6:
            environ = job.environment(PUMP_SERVICE=str(service.socket), XDG_RUNTIME_DIR=str(folder))
            line = job.command(*WORDS, "--sleep-ms=30", memory_mib=CARD_MIB)
            process = subprocess.Popen(
                line, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            started.append(process.pid)
            running.append((process, time.monotonic() + source.uniform(0.0, 3.0)))
        for entry in running[:]:
            process, end = entry
            if time.monotonic() > end:
                if source.random() < 0.3 and (pumpd := pumpds.of_job(process.pid)).supervisor:
                    pumpds.kill(source.choice([pumpd.supervisor, pumpd.warm or pumpd.supervisor]))
                process.kill()
                process.wait(timeout=30)
                running.remove(entry)
        time.sleep(0.02)
    assert pumpds.wait_for(lambda: service.jobs() == [], 30), "no lease is left"
    assert pumpds.wait_for(lambda: not pumpds_of(set(started)), 30), "no process is left"
    assert pumpds.wait_for(lambda: not left_in(folder), 30), (
        "nor one that has left the process tree"
    )
    assert pumpds.wait_for(lambda: descriptors(service.process.pid) <= before, 10)
    assert not memfds(service.process.pid) and not memfds(os.getpid())
    # A killed pumpd leaves its socket; the next job's pumpd removes the socket.
    last = start_in(job, service, folder)
    finish(last)
    assert pumpds.wait_for(lambda: not list((folder / "pump").iterdir()), 20), "no socket"


def start_in(job: Job, service: Service, folder: Path) -> subprocess.Popen:
    environ = job.environment(PUMP_SERVICE=str(service.socket), XDG_RUNTIME_DIR=str(folder))
    return subprocess.Popen(
        job.command(*WORDS, memory_mib=CARD_MIB),
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def left_in(folder: Path) -> list[int]:
    """Returns all processes with this runtime folder, whatever their names."""
    found, mine = [], f"XDG_RUNTIME_DIR={folder}".encode()
    for process in psutil.process_iter():
        try:
            environ = Path(f"/proc/{process.pid}/environ").read_bytes()
        except OSError:
            continue
        if mine in environ.split(b"\0"):
            found.append(process.pid)
    return found


def memfds(pid: int) -> list[str]:
    """Returns the anonymous files that a process has open or mapped."""
    found = []
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            found.append(str(path.readlink()))
    found += Path(f"/proc/{pid}/maps").read_text().splitlines()
    return [name for name in found if "/memfd:" in name]


def descriptors(pid: int) -> int:
    return psutil.Process(pid).num_fds()


def pumpds_of(pids: set[int]) -> list[int]:
    """Returns the pumpd processes that serve or served one of these jobs."""
    words = {str(pid) for pid in pids}
    found = []
    for process in psutil.process_iter():
        try:
            line = process.cmdline()
        except psutil.Error:
            continue
        if "--job-pid" in line and words & set(line):
            found.append(process.pid)
    return found
