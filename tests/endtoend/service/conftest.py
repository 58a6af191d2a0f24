"""Jobs for the tests of pump's verbs that show jobs."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from watched_jobs import TIMEOUT_S, Jobs


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Jobs]:
    # Not pytest's own folder: a socket's path must fit into 107 bytes.
    with tempfile.TemporaryDirectory(prefix="pump-eyes-", dir="/tmp") as runtime:
        made = Jobs(Path(runtime), tmp_path)
        yield made
        for job in made.running:
            job.kill()
            job.wait(TIMEOUT_S)
