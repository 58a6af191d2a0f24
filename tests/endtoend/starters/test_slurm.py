"""Slurm on only this machine: jobs with shards of one virtual GPU, and the files that they leave.

Needs Debian's slurm-wlm and munge; the tests have their own daemons, keys and files.
docs/guides/slurm.md describes the same steps.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from job import expected
from jobs import BIN, MIB, Job
from places import DOCS, ROOT
from pumpds import wait_for
from service_client import Service

SHAPE = {"buffers": 24, "mib": 4, "steps": 60, "seed": 1}
MEMORY_MIB = 120
SHARDS = 4
TIMEOUT_S = 60
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scontrol")
CONF = """
ClusterName=pump
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthInfo=socket={folder}/munge.sock
SlurmctldPort={controller}
SlurmdPort={node}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
KillWait=5
SchedulerParameters=sched_interval=2,bf_interval=2
TaskProlog={root}/packaging/slurm/task-prolog.sh
GresTypes=gpu,shard
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 Gres=gpu:1,shard:{shards}
PartitionName=main Nodes=ALL Default=YES OverSubscribe=YES
"""


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Slurm:
    """munged, slurmctld and slurmd of one machine, in their own folder."""

    def __init__(self, folder: Path, **environ: str) -> None:
        self.folder = folder
        self.host = socket.gethostname().split(".")[0]
        for name in ("state", "spool"):
            (folder / name).mkdir()
        (folder / "slurm.conf").write_text(
            CONF.format(
                host=self.host,
                user=getpass.getuser(),
                folder=folder,
                controller=free_port(),
                node=free_port(),
                root=ROOT,
                shards=SHARDS,
            )
        )
        (folder / "gres.conf").write_text(f"Name=gpu File=/dev/null\nName=shard Count={SHARDS}\n")
        (folder / "key").write_bytes(os.urandom(128))
        (folder / "key").chmod(0o400)
        conf = {"SLURM_CONF": str(folder / "slurm.conf")}
        self.environ = {**os.environ, **environ, **conf}
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        files = {"key": "key", "pid": "munge.pid", "log": "munge.log", "seed": "seed"}
        own = [f"--{name}-file={folder / file}" for name, file in files.items()]
        own.append(f"--socket={folder / 'munge.sock'}")
        self.start("munged", "--foreground", "--force", *own)
        self.start("slurmctld", "-D")
        self.start("slurmd", "-D")
        assert wait_for(lambda: "idle" in self.ask("sinfo", "-h"), TIMEOUT_S)

    def start(self, name: str, *words: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                [name, *words], env=self.environ, stdout=log, stderr=log
            )

    def end(self, name: str) -> None:
        process = self.running.pop(name)
        process.terminate()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def ask(self, *words: str) -> str:
        """Returns the output of the command; "" while slurmctld does not answer yet."""
        done = subprocess.run(
            words,
            env=self.environ,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        return done.stdout

    def submit(self, script: Path, shards: int) -> str:
        """Returns the job's number."""
        out = f"--output={script}.%j.out"
        words = ["sbatch", "--parsable", "--requeue", "--open-mode=append", out]
        number = self.ask(*words, f"--gres=shard:{shards}", str(script)).strip()
        assert number.isdigit()
        return number

    def state(self, number: str) -> str:
        found = re.search(r"JobState=(\w+)", self.ask("scontrol", "show", "job", number))
        return found[1] if found else ""

    def becomes(self, number: str, state: str) -> bool:
        return wait_for(lambda: self.state(number) == state, TIMEOUT_S)


@pytest.fixture
def place() -> Iterator[Path]:
    """Makes XDG_RUNTIME_DIR of the jobs, which shows leftover files; its path must be short."""
    with tempfile.TemporaryDirectory(prefix="pump-slurm-", dir="/tmp") as name:
        yield Path(name)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    found = Service(tmp_path)
    yield found
    found.kill()


@pytest.fixture
def slurm(tmp_path: Path, place: Path, service: Service, kernels: Path) -> Iterator[Slurm]:
    missing = [name for name in PROGRAMS if not shutil.which(name)]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed (apt-get install slurm-wlm munge)")
    folder = tmp_path / "slurm"
    folder.mkdir()
    settings = (f"device.memory_bytes={MEMORY_MIB * MIB}", "mode=compute", "shared=jobs")
    options = [f"--virtual-set={one}" for one in settings]
    found = Slurm(
        folder,
        PATH=f"{BIN}:{os.environ['PATH']}",
        XDG_RUNTIME_DIR=str(place),
        PUMP_SERVICE=str(service.socket),
        PUMP_RUN_OPTIONS=" ".join(["--virtual=a100-pcie4", *options, "-v"]),
        PUMP_VIRTUAL_KERNELS=str(kernels),
        PUMP_VIRTUAL_CARDS=str(tmp_path),
    )
    yield found
    found.ask("scancel", "--user", getpass.getuser(), "--signal=KILL", "--full")
    for name in ("slurmd", "slurmctld", "munged"):
        if name in found.running:
            found.end(name)


def script(job: Job, name: str, hold: Path | None = None) -> Path:
    """Writes a batch script that runs job.py under the wrapper."""
    words = job.command(*(f"--{key}={value}" for key, value in SHAPE.items()))
    program = words[words.index("--") + 1 :] + ([f"--hold={hold}"] if hold else [])
    file = job.folder / name
    wrapper = ROOT / "packaging" / "slurm" / "share.sh"
    file.write_text(f"#!/bin/sh\nexec {wrapper} {' '.join(program)}\n")
    return file


def output(file: Path, number: str) -> str:
    path = Path(f"{file}.{number}.out")
    return path.read_text() if path.exists() else ""


def leaves_nothing(place: Path, service: Service) -> None:
    """Checks that no pumpd, no folder of a job and no lease is left."""

    def quiet() -> bool:
        with service.ask() as client:
            jobs = client.jobs()
        return not jobs and not pumpds_of(place) and not list(place.glob("pump/*"))

    assert wait_for(quiet, TIMEOUT_S), (pumpds_of(place), list(place.rglob("*")))


def budgets_mib(service: Service) -> dict[str, int]:
    """Returns the budgets of the jobs by name."""
    with service.ask() as client:
        return {
            one.name: sum(gpu.adopted_bytes for gpu in one.gpus) // MIB for one in client.jobs()
        }


def pumpds_of(place: Path) -> list[int]:
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if any(word.startswith(str(place)) for word in process.cmdline()):
                found.append(process.pid)
    return found


def held(slurm: Slurm, file: Path, number: str) -> bool:
    return wait_for(lambda: "running" in output(file, number), TIMEOUT_S)


def test_two_jobs_share_one_gpu_by_shards(
    slurm: Slurm, place: Path, service: Service, job: Job
) -> None:
    hold = job.folder / "hold"
    hold.touch()
    files = [script(job, "one.sh", hold), script(job, "two.sh", hold)]
    numbers = [slurm.submit(file, shards) for file, shards in zip(files, (1, 2), strict=True)]
    for file, number in zip(files, numbers, strict=True):
        assert held(slurm, file, number), output(file, number)
    assert len(list(place.rglob("socket"))) == 2 and len(pumpds_of(place)) >= 2
    with service.ask() as client:
        names = {one.name for one in client.jobs()}
    assert names == {f"slurm-{number}.0.0" for number in numbers}
    shares = {f"slurm-{number}.0.0": mib for number, mib in zip(numbers, (30, 60), strict=True)}
    # A new service lets no lease grow for some seconds.
    assert wait_for(lambda: budgets_mib(service) == shares, TIMEOUT_S), budgets_mib(service)
    hold.unlink()
    for file, number, mib in zip(files, numbers, (30, 60), strict=True):
        assert slurm.becomes(number, "COMPLETED"), output(file, number)
        text = output(file, number)
        assert expected(**SHAPE) in text
        last = re.search(r" at ([\d.]+)x the budget", text)
        assert last and SHAPE["buffers"] * SHAPE["mib"] / float(last[1]) <= mib + 1, text
    leaves_nothing(place, service)


@pytest.mark.long
def test_a_cancelled_and_a_requeued_job_leave_nothing_and_the_second_ends_right(
    slurm: Slurm, place: Path, service: Service, job: Job
) -> None:
    hold = job.folder / "hold"
    hold.touch()
    files = [script(job, "one.sh", hold), script(job, "two.sh", hold)]
    cancelled, requeued = (slurm.submit(file, 1) for file in files)
    for file, number in zip(files, (cancelled, requeued), strict=True):
        assert held(slurm, file, number), output(file, number)
    slurm.ask("scancel", cancelled)
    assert slurm.becomes(cancelled, "CANCELLED")
    slurm.ask("scontrol", "requeue", requeued)
    assert slurm.becomes(requeued, "PENDING")
    leaves_nothing(place, service)
    hold.unlink()
    slurm.ask("scontrol", "update", f"JobId={requeued}", "StartTime=now")  # else after two minutes
    assert slurm.becomes(requeued, "COMPLETED"), slurm.ask("scontrol", "show", "job", requeued)
    text = output(files[1], requeued)
    assert text.count("running") == 2 and expected(**SHAPE) in text
    leaves_nothing(place, service)


@pytest.mark.long
@pytest.mark.parametrize("name", ["slurmd", "slurmctld"])
def test_a_job_goes_on_over_a_restart_of_slurms_daemons(
    slurm: Slurm, place: Path, service: Service, job: Job, name: str
) -> None:
    hold = job.folder / "hold"
    hold.touch()
    file = script(job, "one.sh", hold)
    number = slurm.submit(file, 2)
    assert held(slurm, file, number), output(file, number)
    slurm.end(name)
    slurm.start(name, "-D")
    assert wait_for(lambda: slurm.state(number) == "RUNNING", TIMEOUT_S)
    hold.unlink()
    assert slurm.becomes(number, "COMPLETED")
    assert expected(**SHAPE) in output(file, number)
    leaves_nothing(place, service)


def test_the_page_has_the_lines_that_the_tests_use() -> None:
    text = (DOCS / "guides" / "slurm.md").read_text()
    for line in ("packaging/slurm/share.sh", "GresTypes=gpu,shard", "--gres=shard:1"):
        assert line in text
    assert "TaskProlog=" in text and "scontrol requeue" in text
