"""lab/bench/thread_times.py: the activity of threads between two moments."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from thread_times import Sampler, Times, at

PROGRAM = """
import sys, time
while time.process_time() < 0.4: pass
print("computed", flush=True)
time.sleep(60)
"""


def test_values_between_samples_lie_on_a_straight_line_and_outside_stay() -> None:
    samples = [(1.0, Times(2.0, 0.0, 10, 0)), (2.0, Times(4.0, 1.0, 20, 2))]
    assert at(samples, 1.5) == Times(3.0, 0.5, 15, 1)
    assert at(samples, 0.0) == samples[0][1]
    assert at(samples, 9.0) == samples[1][1]
    assert at(samples[:1], 9.0) == samples[0][1]


def test_a_jobs_process_is_found_by_its_folder_and_its_processor_time_told(tmp_path: Path) -> None:
    sampler, began = Sampler(tmp_path), time.monotonic()
    with sampler.sampling():
        command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as job:
            assert job.stdout is not None
            assert job.stdout.readline() == "computed\n"
            computed = time.monotonic()
            time.sleep(0.3)
            ended = time.monotonic()
            job.kill()
    ((name, times),) = sampler.between(began, ended).items()
    assert "python" in name
    assert 0 < times.ran_s < 0.6
    resting = sampler.between(computed + 0.1, ended)
    assert resting.get(name, Times()).ran_s == pytest.approx(0, abs=0.1)
