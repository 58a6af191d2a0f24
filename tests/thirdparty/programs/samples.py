"""NVIDIA's CUDA samples, each run to its own end.

Most samples check the results of kernels, which the virtual GPU does not compute, and end with an
error. So a test's name contains the sample's status and a hash of its output without numbers. The
test passes under pump if the sample ends as without pump. A sample fails if it ends before cuInit,
or waives itself because of the GPU's properties.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

SAMPLES = Path(os.environ["SAMPLES"])
OTHER = ("simpleIPC", "UnifiedMemoryStreams")
"""Exports memory by IPC, which pump refuses (rule `ipc`); draws its tasks by the clock."""
CHOSEN = sorted(
    path.parent for path in SAMPLES.glob("*/*/sample.out") if path.parent.name not in OTHER
)
WAIVED = 2
"""EXIT_WAIVED in Common/helper_string.h."""
NUMBER = re.compile(r"[+-]?(0x[0-9a-f]+|\d+\.?\d*(e[+-]?\d+)?|\bnan|\binf)", re.IGNORECASE)


def said(output: str, errors: str) -> str:
    lines = [line for line in errors.splitlines() if not line.startswith("pump: ")]
    lines = [" ".join(NUMBER.sub("", line).split()) for line in [*output.splitlines(), *lines]]
    return "\n".join(sorted(lines))  # threads write in any order


@pytest.mark.parametrize("folder", CHOSEN, ids=lambda folder: folder.name)
def test_a_sample_ends_as_plain(
    folder: Path, tmp_path: Path, record_xml_attribute: Callable[[str, object], None]
) -> None:
    place = shutil.copytree(folder, tmp_path / "sample")  # some samples write files
    sample = subprocess.Popen(
        [place / "sample.out"],
        cwd=place,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    told = sample.communicate(timeout=300)
    assert sample.returncode >= 0, told
    report = Path(os.environ["PUMP_VIRTUAL_REPORT"].replace("%p", str(sample.pid)))
    assert report.exists(), f"a library is missing: {told}"
    assert "cuInit" in json.loads(report.read_text())["calls"], f"it does not begin: {told}"
    assert sample.returncode != WAIVED, f"it wants another GPU: {told}"
    words = hashlib.sha256(said(*told).encode()).hexdigest()[:8]
    record_xml_attribute("name", f"{folder.name} ends with {sample.returncode}, says {words}")
