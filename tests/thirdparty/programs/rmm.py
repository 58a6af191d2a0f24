"""RMM's own C++ tests: runs each program once and reports each of its tests."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import tempfile
from pathlib import Path

import pytest

PROGRAMS = sorted(
    path for path in Path(os.environ["RMM"]).glob("*_TEST*") if os.access(path, os.X_OK)
)


def listed(program: Path) -> list[str]:
    names: list[str] = []
    suite = ""
    told = subprocess.run(
        [program, "--gtest_list_tests"], capture_output=True, text=True, check=True
    )
    for line in told.stdout.splitlines():
        word = line.split("#")[0].rstrip()
        if line.startswith("  "):
            names.append(f"{suite}{word.strip()}")
        else:
            suite = word
    return names


@functools.cache
def results(program: Path) -> dict[str, str]:
    """Returns a result for each finished test: FAILED, or googletest's COMPLETED or SKIPPED."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "results.json"
        subprocess.run([program, f"--gtest_output=json:{file}"], timeout=600, check=False)
        if not file.exists():
            return {}
        suites = json.loads(file.read_text())["testsuites"]
    return {
        f"{suite['name']}.{case['name']}": "FAILED" if "failures" in case else case["result"]
        for suite in suites
        for case in suite["testsuite"]
    }


@pytest.mark.parametrize(
    ("program", "name"),
    [pytest.param(one, name, id=f"{one.name}-{name}") for one in PROGRAMS for name in listed(one)],
)
def test_it_passes_in_its_program(program: Path, name: str) -> None:
    result = results(program).get(name, "its program ended before")
    assert result == "COMPLETED"
