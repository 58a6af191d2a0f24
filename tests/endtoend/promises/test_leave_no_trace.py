"""Invariant 4: things that the program owns stay as the program left them."""

from __future__ import annotations

import subprocess
import sys

import pytest
from job import expected
from jobs import BIN, Job

pytestmark = pytest.mark.usefixtures("policy")

SHAPE = {"buffers": 24, "mib": 4, "steps": 40, "seed": 9}
ROUNDS = 5
WORDS = [*(f"--{name}={value}" for name, value in SHAPE.items()), f"--rounds={ROUNDS}"]


@pytest.fixture(scope="module")
def right() -> str:
    return expected(**SHAPE, replays=ROUNDS)


def test_one_line_tells_what_pump_did_and_stdout_stays_the_programs(job: Job, right: str) -> None:
    done = job.run(*WORDS, "--sleep-ms=1")
    assert done.stdout.split() == ["running", right]
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("pump: ")


def test_a_job_that_fits_is_told_that_pump_did_nothing(job: Job, right: str) -> None:
    done = job.run(*WORDS, memory_mib=512)
    assert done.stdout.split() == ["running", right]
    assert done.stderr == (
        "pump: everything fitted on the GPU, so pump did nothing: peak 96 MiB of 496 MiB\n"
    )


@pytest.mark.parametrize(
    "habit",
    [["--close-descriptors"], ["--block-signals"], ["--fork-every=20"], ["--wait-any"]],
    ids=lambda habit: habit[0].strip("-"),
)
def test_programs_with_habits_get_the_same_bits(job: Job, right: str, habit: list[str]) -> None:
    done = job.run(*WORDS, "--sleep-ms=1", *habit)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-1] == right
    if habit == ["--wait-any"]:
        assert "no strangers" in done.stdout


def test_a_signal_that_ends_the_program_ends_pump_run_the_same_way(job: Job) -> None:
    assert job.run("--steps=5", "--exit-signal=15").returncode == -15
    assert job.run("--steps=5", "--exit-signal=9").returncode == -9


def test_a_pipeline_ends_with_its_job(job: Job) -> None:
    done = subprocess.run(
        ["sh", "-c", '"$@" | cat', "sh", *job.command("--steps=20")],
        env=job.environment(),
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert done.stdout.startswith("running")


def test_a_program_that_may_write_no_file_is_not_killed() -> None:
    """Pump's writes inside the program's process raise no SIGXFSZ there."""
    script = (
        "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_DFL)\n"  # a C program's default
        "from cuda.bindings import driver as cu\n"
        "cu.cuInit(0); cu.cuCtxSetCurrent(cu.cuDevicePrimaryCtxRetain(0)[1])\n"
        "print(int(cu.cuMemAlloc(4 << 20)[0]))"
    )
    command = [BIN / "pump-run", "--virtual", "a100-pcie4", "--", sys.executable, "-c", script]
    done = subprocess.run(
        ["sh", "-c", 'ulimit -f 0; exec "$@"', "sh", *command],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr


def test_helpers_that_never_touch_cuda_pay_and_say_nothing(job: Job) -> None:
    done = subprocess.run(
        [
            str(BIN / "pump-run"),
            "--virtual",
            "a100-pcie4",
            "--",
            "sh",
            "-c",
            "echo a | cat; exit 3",
        ],
        env=job.environment(),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (3, "a\n", "")
    assert not job.report.exists()


def test_a_program_started_by_the_program_is_a_client_of_the_same_job(job: Job, right: str) -> None:
    script = job.command(*WORDS)[job.command().index("--") + 1 :]
    start = [*job.command()[: job.command().index("--") + 1], "sh", "-c"]
    done = subprocess.run(
        [*start, '"$@" && "$@"', "sh", sys.executable, *script[1:]],
        env=job.environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.split() == ["running", right] * 2, done.stderr
