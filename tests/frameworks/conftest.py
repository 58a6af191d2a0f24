"""Fixtures for the tests of this folder."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from framework_runs import HERE, Bench


@pytest.fixture(scope="session")
def frameworks() -> Path:
    """Returns the environment named by PUMP_FRAMEWORKS, else an existing one for this list."""
    named = os.environ.get("PUMP_FRAMEWORKS")
    if named:
        assert (Path(named) / "bin" / "python").exists(), f"PUMP_FRAMEWORKS: no Python in {named}"
        return Path(named)
    find = [HERE / "setup_frameworks", "--find"]
    done = subprocess.run(find, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 0:
        pytest.skip("frameworks are missing; tests/frameworks/setup_frameworks installs them")
    return Path(done.stdout.strip())


@pytest.fixture
def bench(frameworks: Path, tmp_path: Path) -> Bench:
    return Bench(frameworks, tmp_path)
