"""The tutorial docs/start/notebooks.md: a kernel whose Python runs under pump-run and uses
pump.api. A module that runs one program replaces ipykernel."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

from job import expected
from jobs import BIN, MIB
from places import PROGRAMS, ROOT

SHAPE = {"buffers": 12, "mib": 8, "steps": 90, "seed": 5}
LAUNCHER = """
import sys
assert sys.argv[1:] == ["-f", "connection.json"], sys.argv
sys.argv[1:] = {words}
import region_job
region_job.main()
"""


def test_the_tutorials_kernel_is_served_and_its_regions_hold(kernels: Path, tmp_path: Path) -> None:
    words = [f"--{name}={value}" for name, value in SHAPE.items()]
    (tmp_path / "ipykernel_launcher.py").write_text(LAUNCHER.format(words=words))
    environ = {
        **os.environ,
        "JUPYTER_DATA_DIR": str(tmp_path / "jupyter"),
        "PUMP_SERVICE": "none",
        "PUMP_VIRTUAL_KERNELS": str(kernels),
        "PYTHONPATH": f"{tmp_path}:{PROGRAMS}",
    }
    page = (ROOT / "docs" / "start" / "notebooks.md").read_text()
    (install,) = re.findall(r"^pump install kernel -- .*$", page, re.M)
    virtual = ["--virtual", "a100-pcie4", "--virtual-set", f"device.memory_bytes={64 * MIB}"]
    virtual += ["--virtual-set", "mode=compute"]
    command = [str(BIN / "pump"), *install.split()[1:], *virtual]
    subprocess.run(command, env=environ, check=True, timeout=60, capture_output=True)
    specification = json.loads((tmp_path / "jupyter/kernels/pump/kernel.json").read_text())
    argv = [word.format(connection_file="connection.json") for word in specification["argv"]]
    done = subprocess.run(
        argv, env=environ, capture_output=True, text=True, timeout=90, check=False
    )
    assert done.returncode == 0, done.stderr
    facts, digest = done.stdout.splitlines()
    assert digest == expected(**SHAPE)
    told = json.loads(facts)
    assert told["policies"] == ["planned", "planned", "demand", "planned", "planned"]
    assert told["summary"].startswith("pump: policy planned; GPU 0: ")
    assert 'policy="demand"' in page, "the region that region_job.py has"
