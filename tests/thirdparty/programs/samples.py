"""NVIDIA's CUDA samples, each to its own end.

Most check what their kernels compute, which the virtual GPU does not, and end with an error. So the
name of a test has the sample's status and a hash of what it says, numbers aside: it passes under
pump where the sample ends as it does plain.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

SAMPLES = Path(os.environ["SAMPLES"])
OTHER = ("simpleIPC", "UnifiedMemoryStreams")
"""Exports memory of which pump keeps none (rule `ipc`); draws its tasks by the clock."""
CHOSEN = sorted(
    path.parent for path in SAMPLES.glob("*/*/sample.out") if path.parent.name not in OTHER
)
NOT_LOADED = 127
"""A library is missing, or a function in it."""
NUMBER = re.compile(r"[+-]?(0x[0-9a-f]+|\d+\.?\d*(e[+-]?\d+)?|\bnan|\binf)", re.IGNORECASE)


def said(done: subprocess.CompletedProcess[str]) -> str:
    lines = [line for line in done.stderr.splitlines() if not line.startswith("pump: ")]
    lines = [" ".join(NUMBER.sub("", line).split()) for line in [*done.stdout.splitlines(), *lines]]
    return "\n".join(sorted(lines))  # threads take turns


@pytest.mark.parametrize("folder", CHOSEN, ids=lambda folder: folder.name)
def test_a_sample_ends_as_plain(
    folder: Path, tmp_path: Path, record_xml_attribute: Callable[[str, object], None]
) -> None:
    place = shutil.copytree(folder, tmp_path / "sample")  # some write files
    done = subprocess.run(
        [place / "sample.out"],
        cwd=place,
        check=False,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=300,
    )
    assert done.returncode >= 0, done
    assert done.returncode != NOT_LOADED, done
    words = hashlib.sha256(said(done).encode()).hexdigest()[:8]
    record_xml_attribute("name", f"{folder.name} ends with {done.returncode}, says {words}")
