"""Invariants 3 and 8: pump adds only out-of-memory errors, and their message names the limit."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from job import expected
from jobs import Job

MIB = 1 << 20


def fake_host(
    folder: Path, *, available_mib: int, cgroup: str, files: dict[str, str]
) -> dict[str, str]:
    """Makes roots with our own /proc/meminfo, /proc/self/cgroup and cgroup files."""
    proc, group = folder / "proc", folder / "cgroup"
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text(
        f"MemTotal: {64 << 20} kB\nMemFree: 1 kB\nMemAvailable: {available_mib << 10} kB\n"
    )
    (proc / "self" / "cgroup").write_text(cgroup)
    for name, text in files.items():
        path = group / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return {"PUMP_PROC_ROOT": str(proc), "PUMP_CGROUP_ROOT": str(group)}


def test_a_limit_of_the_job_refuses_and_says_so(job: Job) -> None:
    done = job.run(run=("--limit", "40MiB"))
    assert done.returncode == 9
    assert "CUDA_ERROR_OUT_OF_MEMORY" in done.stdout
    (line,) = [line for line in done.stderr.splitlines() if "job's limit" in line][:1]
    assert "--limit" in line or "PUMP_LIMIT" in line
    assert "40" in line


@pytest.mark.parametrize("workers", [1, 4])
def test_a_limit_is_the_jobs_however_many_processes_it_has(
    kernels: Path, tmp_path: Path, workers: int
) -> None:
    done = Job(kernels, tmp_path, "limit_job.py").run(str(workers), "8", run=("--limit", "256MiB"))
    assert done.returncode == 0, done.stderr
    assert 128 <= int(done.stdout) <= 256
    assert "this job's limit of 256 MiB (PUMP_LIMIT)" in done.stderr


def test_a_cgroup_v2_limit_refuses_and_names_the_group(job: Job, tmp_path: Path) -> None:
    env = fake_host(
        tmp_path,
        available_mib=60_000,
        cgroup="0::/user/job7\n",
        files={
            "user/memory.max": "max\n",
            "user/memory.current": "0\n",
            "user/job7/memory.max": f"{560 * MIB}\n",
            "user/job7/memory.current": f"{8 * MIB}\n",
            "user/job7/memory.stat": "inactive_file 0\n",
        },
    )
    done = job.run(env=env)
    assert done.returncode == 9
    assert "CUDA_ERROR_OUT_OF_MEMORY" in done.stdout
    assert "job7" in done.stderr


def test_a_cgroup_v1_limit_refuses_and_names_the_group(job: Job, tmp_path: Path) -> None:
    env = fake_host(
        tmp_path,
        available_mib=60_000,
        cgroup="4:memory:/slurm/job_12\n0::/\n",
        files={
            "memory/slurm/job_12/memory.limit_in_bytes": f"{560 * MIB}\n",
            "memory/slurm/job_12/memory.usage_in_bytes": f"{8 * MIB}\n",
            "memory/slurm/job_12/memory.stat": "total_inactive_file 0\n",
        },
    )
    done = job.run(env=env)
    assert done.returncode == 9
    assert "CUDA_ERROR_OUT_OF_MEMORY" in done.stdout
    assert "job_12" in done.stderr


def test_a_host_without_memory_refuses_and_says_so(job: Job, tmp_path: Path) -> None:
    env = fake_host(tmp_path, available_mib=3_300, cgroup="0::/\n", files={})
    done = job.run(env=env)
    assert done.returncode == 9
    assert "CUDA_ERROR_OUT_OF_MEMORY" in done.stdout
    assert "memory" in done.stderr


def test_a_job_that_fits_on_its_card_runs_however_small_its_host_is(
    job: Job, tmp_path: Path, runtime: str
) -> None:
    env = fake_host(tmp_path, available_mib=3_300, cgroup="0::/\n", files={})
    done = job.run("--steps=100", "--seed=2", memory_mib=512, env=env)
    assert done.stdout.split() == ["running", expected(24, 4, 100, 2)]
    assert "fitted on the GPU, so pump did nothing" in done.stderr
    assert "stay device memory" in job.log.read_text()


@pytest.fixture
def runtime() -> Iterator[str]:
    """Makes a private runtime folder with a path that is short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="pump-") as folder:
        yield folder


HEADROOM_MIB = 144
"""Enough for the conversions of one job of 96 MiB, but not of two."""


def test_two_jobs_that_each_want_most_of_the_host_do_not_both_get_it(
    job: Job, tmp_path: Path, runtime: str
) -> None:
    available_mib = 64 * 1024 // 20 + HEADROOM_MIB  # 5 % of the host are in reserve
    env = fake_host(tmp_path, available_mib=available_mib, cgroup="0::/\n", files={})
    env["XDG_RUNTIME_DIR"] = runtime
    ledger = Path(runtime, "pump-host", str(os.geteuid()))
    hold = tmp_path / "hold"
    hold.touch()
    first = job.start("--steps=100", "--seed=2", f"--hold={hold}", env=env)
    try:
        assert first.stdout is not None and first.stdout.readline() == "running\n"
        (claim,) = ledger.glob("[0-9]*")
        pid = int.from_bytes(claim.read_bytes()[16:24], "little")
        second = job.run(env=env)
        assert second.returncode == 9
        assert "CUDA_ERROR_OUT_OF_MEMORY" in second.stdout
        (line,) = [line for line in second.stderr.splitlines() if "out of memory" in line]
        assert f"by 1 other process under pump (largest: {pid})" in line
        assert "wait for the other jobs, or free host memory" in line
        assert list(ledger.glob("[0-9]*")) == [claim], "the second has left nothing"
        hold.unlink()
        assert first.communicate(timeout=60)[0].split() == [expected(24, 4, 100, 2)]
    finally:
        first.kill()
        first.communicate()
    assert list(ledger.glob("[0-9]*")) == []
    third = job.run("--steps=100", "--seed=2", env=env)
    assert third.stdout.split() == ["running", expected(24, 4, 100, 2)]
