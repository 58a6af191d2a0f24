"""A stopped program, and a program with a fake clock."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from jobs import Job

FAKE = """
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
/* Twenty times as fast, as `faketime -f "+0 x20"` has it. */
int clock_gettime(clockid_t clock, struct timespec *time) {
  long result = syscall(SYS_clock_gettime, clock, time);
  long long ns = 20 * (time->tv_sec * 1000000000ll + time->tv_nsec);
  if (result == 0 && clock == CLOCK_MONOTONIC)
    *time = (struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
  return (int)result;
}
"""


def counters(path: Path) -> Any:
    return json.loads(path.read_text())


@pytest.mark.parametrize("everyone", [False, True], ids=["the job", "the job and its pumpd"])
def test_time_in_which_a_job_is_stopped_is_not_lost_to_memory(job: Job, everyone: bool) -> None:
    """Stops the job with SIGSTOP, as Ctrl-Z, debuggers and batch systems do."""
    stopped_s = 4.0
    summary = job.folder / "summary"
    words = ("--buffers=24", "--mib=4", "--steps=600", "--sleep-ms=4")
    running = job.start(*words, env={"PUMP_SUMMARY": str(summary)})
    assert running.stdout is not None and running.stdout.readline() == "running\n"
    time.sleep(1.0)
    pids = [running.pid, *(children_of_pumpd(running.pid) if everyone else [])]
    assert len(pids) == 1 or everyone
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(stopped_s)
    for pid in reversed(pids):
        os.kill(pid, signal.SIGCONT)
    began_s = time.monotonic()
    running.communicate(timeout=60)
    rest_s = time.monotonic() - began_s
    found = counters(summary)
    assert running.returncode == 0 and found["worker_losses"] == 0
    whole_s = found["worker"]["lost_of_ns"] / 1e9
    assert 0 < whole_s < 1.0 + rest_s + stopped_s / 2, "the stop counts as time of the run"


def children_of_pumpd(job_pid: int) -> list[int]:
    """Returns the job's pumpd and its workers."""
    found = subprocess.run(
        ["pgrep", "-f", f"pumpd job .*--job-pid {job_pid} "],
        capture_output=True,
        text=True,
        check=False,
    )
    pids = [int(word) for word in found.stdout.split()]
    assert pids, "no pumpd of this job"
    return pids


def test_a_faked_clock_loses_no_worker(job: Job, tmp_path: Path) -> None:
    source, library = tmp_path / "fake.c", tmp_path / "libfake.so"
    source.write_text(FAKE)
    compiler = os.environ.get("CC", "cc")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
    summary = job.folder / "summary"
    env = {"PUMP_SUMMARY": str(summary), "LD_PRELOAD": str(library)}
    done = job.run("--buffers=24", "--mib=4", "--steps=600", env=env, timeout=20)
    assert done.returncode == 0, done.stderr
    found = counters(summary)
    assert (found["worker_losses"], found["shim"]["attaches"]) == (0, 1)
