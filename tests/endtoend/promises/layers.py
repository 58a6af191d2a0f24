"""Ends of layers_job.py under pump, with workers that are killed at random."""

from __future__ import annotations

import json
import random
import subprocess
from typing import Any

import layers_job
import pumpds
from jobs import Job


def report_of(job: Job) -> dict[str, Any]:
    """Returns the virtual GPU's report, which must have no violation."""
    report: dict[str, Any] = json.loads(job.report.read_text())
    assert report["violations"] == 0, report["violations_by_check"]
    return report


def check_end(
    job: Job, process: subprocess.Popen[str], words: list[str], dice: random.Random
) -> None:
    """Kills the job's workers with a chance of 0.3, and requires the bits that numpy computes."""
    assert process.stdout is not None
    assert process.stdout.readline() == "running\n"
    if dice.random() < 0.3:
        pumpds.wait_for(lambda: bool(pumpds.of_job(process.pid).workers), 1)
        for worker in pumpds.of_job(process.pid).workers:
            pumpds.kill(worker)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert out.split("\n")[0] == layers_job.expected(layers_job.parse(words)), err
    report_of(job)
