"""Invariant 1: a program's results do not depend on pump, its policy, or its absence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from job import expected
from jobs import Job

SHAPE = {"buffers": 24, "mib": 4, "steps": 50, "seed": 1}
ROUNDS = 6
WORDS = [*(f"--{name}={value}" for name, value in SHAPE.items()), f"--rounds={ROUNDS}"]


@pytest.fixture(scope="module")
def right() -> str:
    return expected(**SHAPE, replays=ROUNDS)


@pytest.mark.parametrize("policy", ["window", "demand", "planned"])
@pytest.mark.parametrize("memory_mib", [48, 64, 512])
def test_every_policy_gives_the_same_bits(
    job: Job, right: str, policy: str, memory_mib: int
) -> None:
    done = job.run(*WORDS, memory_mib=memory_mib, run=("--policy", policy))
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["running", right]


def test_planned_foresees_what_repeats_and_gives_the_same_bits(
    job: Job, right: str, tmp_path: Path
) -> None:
    summary = tmp_path / "summary.json"
    run, env = ("--policy", "planned"), {"PUMP_SUMMARY": str(summary)}
    done = job.run(*WORDS, "--sync-every=1", "--sleep-ms=4", run=run, env=env)
    assert done.stdout.split() == ["running", right], done.stderr
    worker = json.loads(summary.read_text())["worker"]
    assert worker["operations"] / 2 < worker["predicted"] < worker["operations"]
    assert " % of operations predicted" in job.log.read_text()


LARGE = {"buffers": 5, "mib": 16, "steps": 40, "seed": 1}
"""Each launch touches more than a tenth of the memory."""


@pytest.mark.parametrize("policy", ["window", "planned", "demand"])
def test_large_launches_wait_for_their_memory_and_give_the_same_bits(
    job: Job, tmp_path: Path, policy: str
) -> None:
    summary = tmp_path / "summary.json"
    words = [f"--{name}={value}" for name, value in LARGE.items()]
    run, env = ("--policy", policy), {"PUMP_SUMMARY": str(summary)}
    done = job.run(*words, "--rounds=8", "--sleep-ms=150", memory_mib=64, run=run, env=env)
    assert done.stdout.split() == ["running", expected(**LARGE, replays=8)], done.stderr
    shim = json.loads(summary.read_text())["shim"]
    assert (shim["gates_large"] > 0) == (policy != "demand")
    assert shim["gates_forced"] < max(1, shim["gates_large"])


def test_naive_unified_memory_without_pump_gives_the_same_bits(job: Job, right: str) -> None:
    done = job.run(*WORDS, "--managed", env={"PUMP_DISABLE": "1"})
    assert done.stdout.split() == ["running", right]
    report = json.loads(job.report.read_text())
    assert report["faults"] > 0, "the driver pages on its own"
    assert job.log.read_text() == "", "pump is not there"


def test_a_program_of_its_own_managed_memory_gives_the_same_bits(job: Job, right: str) -> None:
    done = job.run(*WORDS, "--managed")
    assert done.stdout.split() == ["running", right], done.stderr


def test_without_pump_the_program_runs_out_of_memory(job: Job) -> None:
    done = job.run(*WORDS, env={"PUMP_DISABLE": "1"})
    assert done.returncode == 9
    assert "CUDA_ERROR_OUT_OF_MEMORY" in done.stdout


def test_an_emulated_budget_on_a_large_card_gives_the_same_bits(job: Job, right: str) -> None:
    for policy in ("demand", "window", "planned"):
        done = job.run(*WORDS, memory_mib=512, run=("--budget", "60MiB", "--policy", policy))
        assert done.stdout.split() == ["running", right], done.stderr


@pytest.mark.alone
@pytest.mark.parametrize("policy", ["window", "planned"])
def test_evictions_from_contexts_of_their_own_give_the_same_bits(
    job: Job, tmp_path: Path, policy: str
) -> None:
    summary, shape = tmp_path / "summary.json", SHAPE | {"steps": 200}
    words = [*(f"--{name}={value}" for name, value in shape.items()), "--rounds=12", "--churn"]
    # Calls to the host take long, and their threads block in them. On a machine with two cores,
    # calls that use the CPU instead rarely overlap (0046).
    changes = ("locks=both", "uvm.cpu_pte_us=2", "uvm.call_work_share=0")
    virtual = (word for change in changes for word in ("--virtual-set", change))
    locked = ("--policy", policy, *virtual)
    done = job.run(*words, memory_mib=48, run=locked, env={"PUMP_SUMMARY": str(summary)})
    assert done.stdout.split() == ["running", expected(**shape, replays=12)], done.stderr
    assert 0 < json.loads(summary.read_text())["shim"]["own_contexts"] <= 4


def test_memory_freed_and_allocated_while_running_gives_the_same_bits(job: Job, right: str) -> None:
    done = job.run(*WORDS, "--churn")
    assert done.stdout.split() == ["running", right], done.stderr


@pytest.mark.parametrize("more", [(), ("--load-every=20", "--virtual-set", "locks=lazy")])
def test_the_window_policy_prefetches_what_demand_faults(job: Job, more: tuple[str, ...]) -> None:
    """Also if a driver that loads lazily waits for the GPU at each first launch of a function."""
    slow = ("--virtual-set", "kernels.default_gbps=16", *more[1:])  # a step takes 2 ms
    shape = ("--buffers=24", "--mib=16", "--steps=1500", *more[:1])
    faults = {}
    for policy in ("demand", "window"):
        done = job.run(*shape, memory_mib=256, mode="timing", run=(*slow, "--policy", policy))
        assert done.returncode == 0, done.stderr
        report = json.loads(job.report.read_text())
        faults[policy] = report["faults"]
    assert faults["window"] < 0.5 * faults["demand"]
