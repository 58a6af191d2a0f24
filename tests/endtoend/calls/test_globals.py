"""Large managed variables of loaded code are known while the code is loaded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from jobs import BIN
from places import PROGRAMS


def test_operations_on_large_managed_variables_are_seen_until_their_code_goes(
    tmp_path: Path,
) -> None:
    report, summary = tmp_path / "report.json", tmp_path / "summary.json"
    run = [str(BIN / "pump-run"), "--virtual", "a100-pcie4"]
    files = {"PUMP_VIRTUAL_REPORT": str(report), "PUMP_SUMMARY": str(summary)}
    # A worker's attach may lose counts of concurrent operations, so this job has no worker.
    alone = ["env", "-u", "PUMP_SOCKET", sys.executable]
    done = subprocess.run(
        [*run, "--", *alone, str(PROGRAMS / "globals_job.py")],
        env={**os.environ, **files, "PUMP_ACTIVE": "always"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(summary.read_text())["shim"]["operations"]
    # Three rounds with two memsets of the first variable and one of the second. Then one of the
    # library's variable, and one of plain memory, which may reuse the address of a variable.
    assert seen == 3 * 3 + 2
    assert json.loads(report.read_text())["violations"] == 0
