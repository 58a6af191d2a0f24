"""scripts/gpu_acceptance in a Python that has the packages that docs/gpu.md names, but not pump."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import bare_python

from pump.base import paths

LIMIT_S = 200


def test_stages_that_import_pump_run_where_it_is_not_installed(tmp_path: Path) -> None:
    """The environment has no network and only two variables."""
    interpreter, root = bare_python.python(tmp_path), bare_python.checkout(tmp_path)
    lacks = subprocess.run(
        [interpreter, "-P", "-c", "import pump"], capture_output=True, text=True, check=False
    )
    assert "No module named 'pump'" in lacks.stderr
    words = [*bare_python.without_network(), interpreter, root / "scripts" / "gpu_acceptance"]
    words += ["--virtual", "a100-pcie4", "--quick", "--minutes", "3", "--out", tmp_path / "out"]
    words += ["--wheels", bare_python.wheels(tmp_path), "--stage", "trace"]
    libraries = Path(paths.library("libpump.so")).parent
    done = subprocess.run(
        list(map(str, words)),
        env={"PATH": os.environ["PATH"], "PUMP_LIB_DIR": str(libraries)},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    result = json.loads((tmp_path / "out" / "trace.json").read_text())
    statuses = {item["name"]: (item["status"], item["reason"]) for item in result["items"]}
    assert statuses == {"trace.mlp": ("pass", ""), "trace.sweep": ("pass", "")}, done.stderr
    assert done.returncode == 0, done.stderr
