"""A program with AddressSanitizer runs under pump and finds the same errors as without pump."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from jobs import BIN
from places import PROGRAMS

from pump_lab.paths import library


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Builds the program with the sanitizer as a shared library, gcc's default."""
    made = tmp_path_factory.mktemp("sanitized") / "sanitized"
    driver = library("virtual/libcuda.so.1")
    source = str(PROGRAMS / "sanitized.c")
    subprocess.run(["gcc", "-g", "-fsanitize=address", source, driver, "-o", made], check=True)
    return made


def run(tmp_path: Path, *words: str | Path) -> tuple[subprocess.CompletedProcess[str], str]:
    """Returns (the job, the driver's report)."""
    report = tmp_path / "report.json"
    done = subprocess.run(
        [BIN / "pump-run", "--virtual", "a100-pcie4", "--", *words],
        env={**os.environ, "PUMP_VIRTUAL_REPORT": str(report)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done, report.read_text() if report.exists() else ""


@pytest.mark.parametrize("starter", [(), ("sh", "-c", '"$0"; exit $?')], ids=["itself", "shell"])
def test_a_program_of_the_shared_sanitizer_is_served(
    tmp_path: Path, program: Path, starter: tuple[str, ...]
) -> None:
    done, report = run(tmp_path, *starter, program)
    assert (done.returncode, done.stdout) == (0, "failed 0 byte 42\n"), done.stderr
    assert '"cuMemAllocManaged"' in report


def test_the_sanitizer_finds_what_it_finds_without_pump(tmp_path: Path, program: Path) -> None:
    done, _ = run(tmp_path, program, "spoil")
    assert done.returncode != 0
    assert "heap-use-after-free" in done.stderr
