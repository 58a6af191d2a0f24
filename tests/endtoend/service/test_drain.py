"""If a smaller budget makes a dormant job active, the work in its launch queue executes first."""

from __future__ import annotations

import json

from job import expected
from jobs import Job

SHAPE = {"buffers": 24, "mib": 4, "steps": 200, "seed": 5}
WORDS = [f"--{name}={value}" for name, value in SHAPE.items()]
DRAIN_MOST_S = 2.5
"""PUMP_DRAIN_MOST_NS of shim/base/limits.h."""


def run(job: Job, case: str) -> dict[str, float]:
    """Runs queued_job.py and checks its bits; returns the values that it printed."""
    job.program = "queued_job.py"
    done = job.run(*WORDS, f"--case={case}", memory_mib=256, timeout=120)
    assert done.returncode == 0, done.stderr
    _, facts, digest = done.stdout.splitlines()
    found = json.loads(facts)
    assert digest == expected(**{**SHAPE, "steps": found["steps"]})
    assert json.loads(job.report.read_text())["violations"] == 0
    return found


def test_what_is_queued_executes_before_the_smaller_budget_holds(job: Job) -> None:
    assert run(job, "queue")["executed"]


def test_a_queue_that_waits_for_the_program_holds_a_budget_up_for_so_long_only(job: Job) -> None:
    found = run(job, "held")
    assert DRAIN_MOST_S / 2 < found["launch_s"] < DRAIN_MOST_S + 5
    assert found["set_s"] < DRAIN_MOST_S + 5


def test_nothing_waits_inside_a_capture(job: Job) -> None:
    assert run(job, "capture")["set_s"] < DRAIN_MOST_S
