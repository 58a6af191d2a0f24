"""No content of learned files from earlier runs changes the bits of a job.

Other tests check that a second run is predicted from its first operations:
tests/endtoend/examples/test_training.py, and without a clock
tests/unit/daemon/worker/test_learned.py.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from job import expected
from jobs import Job, learned

from pump.model.event_log import EventLog
from pumpd.worker.learned_files import decode, encode

SHAPE = {"buffers": 24, "mib": 4, "steps": 400, "seed": 1}
WORDS = [*(f"--{name}={value}" for name, value in SHAPE.items()), "--sync-every=1"]


@pytest.fixture(scope="module")
def right() -> str:
    return expected(**SHAPE)


def run(job: Job, cache: Path, keep: str = "yes") -> str:
    env = {"PUMP_KEEP_LEARNED": keep, "XDG_CACHE_HOME": str(cache)}
    done = job.run(*WORDS, run=("--policy", "planned"), env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()[-1]


def test_a_hostile_file_of_earlier_runs_changes_no_bit(
    job: Job, right: str, tmp_path: Path
) -> None:
    assert run(job, tmp_path) == right
    path = learned(tmp_path)
    steps, accesses = decode(path.read_bytes())
    dice = np.random.default_rng(1)
    for name in ("slot", "offset_bytes", "length_bytes"):
        accesses[name] = dice.permutation(accesses[name])
    accesses["access"] ^= np.where(dice.random(len(accesses)) < 0.5, 1 << 8, 0).astype(np.uint32)
    hostile = encode(EventLog(steps, accesses))
    for content in (hostile, dice.bytes(5000), hostile[:1000], hostile + bytes(8 << 20)):
        path.write_bytes(content)
        assert run(job, tmp_path) == right


def test_a_job_that_keeps_nothing_leaves_nothing(job: Job, right: str, tmp_path: Path) -> None:
    assert run(job, tmp_path, keep="no") == right
    time.sleep(0.5)
    assert not list(tmp_path.glob("pump/**"))
