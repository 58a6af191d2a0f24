"""Fixtures for tests under pump-run: a policy, kernels, jobs."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs import Job, host_kernels


@pytest.fixture(params=["window", pytest.param("planned", marks=pytest.mark.long)])
def policy(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Sets the default policy of the test's jobs. With planned, the hard programs (hard.h) repeat
    36 random draws (twelve steps), so that there is something to predict."""
    name = str(request.param)
    monkeypatch.setenv("PUMP_POLICY", name)
    if name == "planned":
        monkeypatch.setenv("HARD_PERIOD", "36")
    return name


@pytest.fixture(scope="session")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compiles the host kernels of job.py into a shared library."""
    return host_kernels("mix_kernels.c", tmp_path_factory.mktemp("kernels"))


@pytest.fixture
def job(kernels: Path, tmp_path: Path) -> Job:
    return Job(kernels, tmp_path)


@pytest.fixture
def two_jobs(kernels: Path, tmp_path: Path) -> list[Job]:
    """Makes two jobs, each with its own folder."""
    folders = [tmp_path / name for name in ("first", "second")]
    for folder in folders:
        folder.mkdir()
    return [Job(kernels, folder) for folder in folders]
