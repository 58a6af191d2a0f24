"""Assertions end the process in the builds of tests/c, and are not evaluated in releases."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from c_build import ROOT, WARNINGS, build, cc

SAN = "address,undefined"


def run(program: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program, *arguments], capture_output=True, text=True, timeout=60, check=False
    )


def test_a_broken_invariant_ends_the_process_with_one_line_that_names_it() -> None:
    program = build(SAN, "broken_invariant", "base/mapping.c")
    assert run(program).returncode == 1  # one condition was evaluated
    done = run(program, "twice")
    assert done.returncode < 0
    (line,) = done.stderr.splitlines()
    where, invariant = line.split(": broken invariant: ")
    assert where.startswith(str(ROOT / "shim/base/mapping.c:"))
    assert invariant.startswith("each pump_mapping_leave follows an enter (not so: ")


@pytest.mark.parametrize("arguments", [(), ("twice",)])
def test_a_release_evaluates_no_condition(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    program = tmp_path / "release"
    sources = (ROOT / "tests/c/base/broken_invariant.c", ROOT / "shim/base/mapping.c")
    places = (ROOT, ROOT / "shim/include", ROOT / "tests/c")
    includes = [f"-I{place}" for place in places]
    cc(SAN, "-UPUMP_ASSERTIONS", *WARNINGS, *includes, *sources, "-o", program)
    done = run(program, *arguments)
    assert (done.returncode, done.stderr) == (0, "")
