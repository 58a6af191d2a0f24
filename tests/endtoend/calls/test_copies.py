"""Copies of every form give the right bytes; pump counts each operation that the driver ran."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import copies_job
import pytest
from jobs import BIN
from places import PROGRAMS


def run(tmp_path: Path, *options: str) -> tuple[dict[str, str], dict[str, int], str]:
    """Returns (the program's output, the driver's report, pump's lines)."""
    report = tmp_path / "report.json"
    command = [str(BIN / "pump-run"), "--virtual", "a100-pcie4", "--virtual-set=mode=compute"]
    done = subprocess.run(
        [*command, *options, "--", sys.executable, str(PROGRAMS / "copies_job.py")],
        env={**os.environ, "PUMP_VIRTUAL_REPORT": str(report)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), json.loads(report.read_text()), done.stderr


@pytest.mark.parametrize("memory", ["64MiB", "12MiB"])
def test_copies_of_every_shape_give_the_right_bytes(tmp_path: Path, memory: str) -> None:
    found, report, _ = run(tmp_path, f"--virtual-set=memory={memory}")
    assert found["sha256"] == copies_job.expected()
    assert report["violations"] == 0


def test_every_copy_and_memset_is_recorded_once(tmp_path: Path) -> None:
    options = ["-v", f"--record={tmp_path / 'trace'}", "--virtual-set=memory=64MiB"]
    _, report, lines = run(tmp_path, *options)
    recorded = re.search(r"recorded (\d+) operations", lines)
    assert recorded and int(recorded[1]) == report["operations"]
    calls = report["calls"]
    batches = sum(count for name, count in calls.items() if "BatchAsync" in name)
    assert batches == 2
    single = [name for name in calls if name.startswith(("cuMemcpy", "cuMemset"))]
    assert report["operations"] == sum(calls[name] for name in single) - batches + 3 + 1
