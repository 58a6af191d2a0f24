"""Fakes for the tests of acceptance: machines, runs, stages that misbehave."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from acceptance import contract, results, runner, running
from places import ROOT

GIB = contract.GIB


def make_machine(**more: Any) -> contract.Machine:
    facts: dict[str, Any] = {
        "kind": contract.CARD,
        "name": "NVIDIA H200",
        "uuid": "GPU-1",
        "driver": "580.1",
        "total_bytes": 140 * GIB,
        "free_bytes": 139 * GIB,
        "host_available_bytes": 100 * GIB,
        "runtime": "vm",
        "host": "Linux 6, 16 CPUs",
        "packages": {"torch": "2.11.0"},
    }
    return contract.Machine(**(facts | more))


def make_run(stdout: str = '{"sha256": "a", "right": true}', **more: Any) -> running.Run:
    facts: dict[str, Any] = {
        "words": ("program",),
        "returncode": 0,
        "seconds": 1.0,
        "stdout": stdout,
        "stderr": "",
        "summary": summary_of_pump(),
    }
    return running.Run(**(facts | more))


def summary_of_pump(**shim: int) -> dict[str, Any]:
    """Returns the content of PUMP_SUMMARY, as far as stages read it."""
    counters = {"operations": 10, "converted_bytes_peak": 128 << 20, "events_dropped": 0}
    counters |= {"attaches": 1, "moved_to_gpu_bytes": 1, "moved_to_host_bytes": 1}
    return {"worker_losses": 0, "shim": counters | shim}


def place(root: Path, machine: contract.Machine | None = None) -> runner.Place:
    out = root / "out"
    out.mkdir(exist_ok=True)
    identity = results.Identity("c0ffee", False, machine or make_machine())
    return runner.Place(root, out, identity)


HEAD = '''"""A stage of a test."""

import os, signal, subprocess, sys, time
from acceptance.contract import *

NAME, LIMIT_S, WHAT = "fake", 5.0, "a fake"

def run(context):
'''


def stage_run(folder: Path, body: str, limit_s: float = 20.0) -> runner.StageRun:
    """Returns a run of a stage whose generator has this body (lines without indentation)."""
    lines = "".join(f"    {line}\n" for line in body.strip("\n").splitlines())
    (folder / "stage_fake.py").write_text(HEAD + lines)
    launcher = folder / "launcher"
    launcher.write_text(
        "import sys\n"
        f"sys.path.insert(0, {str(ROOT / 'tests')!r})\n"
        "import acceptance\n"
        f"acceptance.__path__.append({str(folder)!r})\n"
        "from acceptance import child\n"
        "sys.exit(child.main(sys.argv[2]))\n"
    )
    return runner.StageRun(place(folder), "fake", "a fake", limit_s, launcher=launcher)
