"""Runs a suite of lab/bench/ for tests."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from places import ROOT


def bench(folder: Path, *words: str) -> dict[str, list[dict[str, Any]]]:
    """Returns the rows of `scripts/bench WORDS --quick --pairs 1` in this Python, by name."""
    file = folder / "rows.jsonl"
    script = str(ROOT / "lab" / "bench" / "bench_run.py")
    done = subprocess.run(
        [sys.executable, script, *words[:1], "--quick", "--pairs=1", "--json", file, *words[1:]],
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows: dict[str, list[dict[str, Any]]] = {}
    for line in file.read_text().splitlines():
        row = json.loads(line)
        rows.setdefault(row["name"], []).append(row)
    return rows
