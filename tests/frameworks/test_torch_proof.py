"""scripts/first_call with PyTorch: the proof's output in a mode that computes nothing."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import bare_python
import pytest
from framework_runs import Bench

from pump.base import paths

pytestmark = pytest.mark.frameworks


def test_pytorchs_training_is_run_under_each_policy(bench: Bench, tmp_path: Path) -> None:
    root = bare_python.checkout(tmp_path)
    bare_python.wheels(tmp_path).rename(root / ".wheels")
    words = [bench.python, root / "scripts" / "first_call", "A", "--virtual", "h200-pcie5"]
    libraries = str(Path(paths.library("libpump.so")).parent)
    environ = {"PATH": os.environ["PATH"], "OUT": str(tmp_path / "out"), "PUMP_LIB_DIR": libraries}
    subprocess.run(
        [*map(str, words), "--quick", "--seconds", "120"],
        env=environ,
        cwd=root,
        timeout=200,
        check=True,
    )
    proof = json.loads((tmp_path / "out" / "steps.json").read_text())["proof"]
    assert proof["verdict"] == "pass" and proof["program"] == "torch_training.py", proof
    assert all(proof["runs"][policy]["moved_mib"] for policy in ("window", "planned"))
