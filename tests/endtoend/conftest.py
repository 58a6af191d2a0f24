"""What tests under pump-run ask for: a policy, kernels, a job."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from jobs import Job
from places import PROGRAMS


@pytest.fixture(params=["window", pytest.param("planned", marks=pytest.mark.long)])
def policy(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Jobs of the test run under it where they do not say otherwise; with planned the hard
    programs (hard.h) repeat twelve steps, so that there is something to predict."""
    name = str(request.param)
    monkeypatch.setenv("PUMP_POLICY", name)
    if name == "planned":
        monkeypatch.setenv("HARD_PERIOD", "36")
    return name


@pytest.fixture(scope="session")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The host kernels of job.py as a shared library."""
    library = tmp_path_factory.mktemp("kernels") / "mix.so"
    source = PROGRAMS / "mix_kernels.c"
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, source], check=True)
    return library


@pytest.fixture
def job(kernels: Path, tmp_path: Path) -> Job:
    return Job(kernels, tmp_path)
