"""Policy and budget of a running job change, by its own program or by others, also while processes
of pump are killed: the bits stay the same."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pumpds
import pytest
from job import expected
from jobs import MIB, Job
from places import PROGRAMS
from steered_job import PHASES

from pump.control import Control, ControlError
from pump.trace import records
from pump.trace.info import opened
from pump.trace.reader import Reader

SHAPE = {"buffers": 24, "mib": 4, "steps": 400, "seed": 5}
WORDS = [f"--{name}={value}" for name, value in SHAPE.items()]
CARD_MIB = 256


def start(job: Job, words: list[str], *command: str, run: tuple[str, ...] = ()) -> subprocess.Popen:
    """Starts `command`, or job.py without a command, as a job on a GPU with enough memory."""
    line = job.command(*words, memory_mib=CARD_MIB, run=run)
    if command:
        line[line.index("--") + 1 :] = command
    return subprocess.Popen(
        line, env=job.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finish(process: subprocess.Popen) -> list[str]:
    out, err = process.communicate(timeout=90)
    assert process.returncode == 0, err
    return out.splitlines()


def in_use(control: Control) -> int:
    """Returns the number of the job's clients that are served and use a device."""
    return sum(bool(client.devices) for client in control.state())


@pytest.fixture
def running(job: Job) -> Iterator[tuple[subprocess.Popen, Control]]:
    """Starts a slow job.py; yields the process and its control."""
    process = start(job, [*WORDS, "--sleep-ms=15"])
    assert process.stdout is not None and process.stdout.readline().strip() == "running"
    with Control.of_job(str(pumpds.socket_of(process.pid))) as control:
        assert pumpds.wait_for(lambda: in_use(control) == 1)
        yield process, control
    if process.poll() is None:
        process.kill()
    process.communicate()


def test_a_program_switches_policy_and_budget_between_its_iterations(job: Job) -> None:
    process = start(job, WORDS, sys.executable, str(PROGRAMS / "steered_job.py"), *WORDS)
    *told, digest = finish(process)[1:]
    assert digest == expected(**SHAPE)
    phases = [json.loads(line) for line in told]
    policy = "window"
    for (asked, budget_bytes), phase in zip(PHASES, phases, strict=True):
        policy = asked or policy
        assert phase["policy"] == policy
        assert phase["overshoot_at_set_bytes"] == 0
        assert phase["used"] > 0, "the operations were followed"
        assert phase["resident_bytes"] <= phase["budget_bytes"]
        assert phase["took_s"] < 5
        if budget_bytes:
            assert (phase["budget_bytes"], phase["emulated"]) == (budget_bytes, True)
            assert phase["active"], "96 MiB do not fit"
            assert phase["free_bytes"] == 0
        else:
            assert not phase["emulated"]
            assert CARD_MIB * MIB * 0.9 < phase["budget_bytes"] < CARD_MIB * MIB
            assert phase["free_bytes"] == phase["budget_bytes"] - 96 * MIB
    assert phases[0]["misses"]["miss_policy"] > 0
    # Under a policy that prefetches, misses are not attributed to the earlier policy.
    assert phases[1]["misses"]["miss_policy"] == phases[0]["misses"]["miss_policy"]
    report = json.loads(job.report.read_text())
    assert report["violations"] == 0
    # All 96 MiB were resident at first; the blocks above two of the budgets were really evicted.
    assert report["d2h_bytes"] >= (96 - 40) * MIB + (96 - 24) * MIB


def test_another_process_switches_a_running_job(
    running: tuple[subprocess.Popen, Control],
) -> None:
    process, control = running
    (before,) = control.state()
    assert before.pid == process.pid and before.policy == "planned"
    assert not before.devices[0].active and before.devices[0].allocated_bytes == 96 * MIB
    for policy, blocks in [("demand", 10), ("window", 16), ("demand", 47), ("window", 12)]:
        (after,) = control.set(policy, blocks * 2 * MIB)
        assert (after.policy, after.devices[0].budget_bytes) == (policy, blocks * 2 * MIB)
        assert after.devices[0].active
        assert pumpds.wait_for(
            lambda b=blocks: control.state()[0].devices[0].resident_bytes <= b * 2 * MIB
        )
    (later,) = control.state()
    assert later.shim["moved_to_host_bytes"] > 0
    assert later.shim["operations"] > 0 and later.worker["operations"] > 0
    assert finish(process)[-1] == expected(**SHAPE)


@pytest.mark.parametrize(
    ("wish", "reason"),
    [
        ({"policy": "demnad"}, "did you mean 'demand'"),
        ({"budget_bytes": 1 << 40}, "exceeds the 268435456 bytes of device 0"),
        ({"budget_bytes": 4 * MIB}, "the minimum is 8388608"),
        ({"budget_bytes": 64 * MIB, "device": 1}, "no device 1: the client has 1"),
        ({}, "no setting given"),
        ({"device": 0, "policy": "demand"}, "a device needs a budget"),
        ({"policy": "demand", "client_pid": 1}, "no such client"),
    ],
)
def test_a_wish_that_makes_no_sense_is_one_line_and_changes_nothing(
    running: tuple[subprocess.Popen, Control], wish: dict, reason: str
) -> None:
    _, control = running
    before = control.state()[0]
    with pytest.raises(ControlError) as error:
        control.set(**wish)
    assert reason in str(error.value) and "\n" not in str(error.value)
    after = control.state()[0]
    assert after.policy == before.policy
    assert after.devices[0].budget_bytes == before.devices[0].budget_bytes


def test_a_worker_killed_during_a_set_costs_an_error_at_most(
    running: tuple[subprocess.Popen, Control],
) -> None:
    process, control = running
    control.set("demand", 32 * MIB)
    done = failed = 0
    wishes = itertools.cycle([("window", 48 * MIB), ("demand", 32 * MIB)])
    for round_ in range(3):
        (victim,) = pumpds.of_job(process.pid).workers
        killer = subprocess.Popen(["sh", "-c", f"sleep 0.0{3 * round_}; kill -9 {victim}"])
        begin = time.monotonic()
        while pumpds.of_job(process.pid).workers == [victim]:
            try:
                control.set(*next(wishes))
                done += 1
            except ControlError:
                failed += 1
            assert time.monotonic() - begin < 20
        killer.wait(timeout=10)
        assert pumpds.wait_for(lambda: in_use(control) == 1)
        (again,) = control.state()
        assert again.policy == "planned", "a new worker begins with the job's policy"
        budget_bytes = again.devices[0].budget_bytes
        assert budget_bytes in (32 * MIB, 48 * MIB), "the client keeps its budget"
    assert done
    assert control.set("demand", 40 * MIB)[0].devices[0].budget_bytes == 40 * MIB
    assert finish(process)[-1] == expected(**SHAPE)


def test_both_clients_of_a_job_are_steered_together_or_one_by_one(job: Job) -> None:
    script = f"{sys.executable} {PROGRAMS / 'job.py'} {' '.join(WORDS)} --sleep-ms=10"
    process = start(job, WORDS, "sh", "-c", f"echo started; {script} & {script}; wait")
    assert process.stdout is not None and process.stdout.readline().strip() == "started"
    with Control.of_job(str(pumpds.socket_of(process.pid))) as control:
        assert pumpds.wait_for(lambda: in_use(control) == 2, 20)
        both = control.set("demand", 40 * MIB)
        assert len({client.pid for client in both}) == 2
        assert {c.devices[0].budget_bytes for c in both} == {40 * MIB}
        (one,) = control.set("window", 64 * MIB, 0, client_pid=both[0].pid)
        assert one.pid == both[0].pid
        now = {client.pid: client for client in control.state()}
        assert now[one.pid].policy == "window"
        assert now[both[1].pid].policy == "demand"
        assert now[both[1].pid].devices[0].budget_bytes == 40 * MIB
    assert finish(process).count(expected(**SHAPE)) == 2


def test_a_recording_tells_when_policy_and_budget_changed(job: Job, tmp_path: Path) -> None:
    file = tmp_path / "recording"
    steered = [sys.executable, str(PROGRAMS / "steered_job.py"), *WORDS]
    finish(start(job, WORDS, *steered, run=("--record", str(file))))
    with opened(str(file)) as (stream, being_written):
        assert not being_written
        rows = list(Reader(stream).records())
    policies = [row.policy for row in rows if isinstance(row, records.Policy)]
    assert policies == ["demand", "window"]
    budgets = [row.budget_bytes for row in rows if isinstance(row, records.Device)]
    assert [b for b in budgets[1:] if b <= 64 * MIB] == [40 * MIB, 64 * MIB, 24 * MIB]


def test_a_job_without_pumpd_and_a_program_outside_of_jobs_are_told_so(tmp_path: Path) -> None:
    missing = tmp_path / "socket"
    with pytest.raises(ControlError, match="cannot reach pumpd: No such file"):
        Control.of_job(str(missing)).state()
    code = "from pump.control import Control; Control.of_job()"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env={}
    )
    assert done.stderr.splitlines()[-1].endswith("name its pumpd's socket")


def test_the_client_side_imports_nothing_that_a_program_could_notice() -> None:
    code = (
        "import sys; before = set(sys.modules); import pump.control\n"
        "print(*{name.partition('.')[0] for name in set(sys.modules) - before})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"numpy", "cffi", "cuda", "_cffi_backend"} & set(done.stdout.split())
