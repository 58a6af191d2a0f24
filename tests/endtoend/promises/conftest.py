"""Fixtures of the tests that run layers_job.py."""

from pathlib import Path

import pytest
from jobs import Job, host_kernels


@pytest.fixture(scope="module")
def layers_kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return host_kernels("layers_kernels.c", tmp_path_factory.mktemp("kernels"))


@pytest.fixture
def layers(layers_kernels: Path, tmp_path: Path) -> Job:
    return Job(layers_kernels, tmp_path, "layers_job.py")
