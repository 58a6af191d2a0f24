"""Programs with another C library than glibc run under pump as without it; pump does nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from loader_build import HERE

from pump.base import paths

MUSL = shutil.which("musl-gcc")
needs_musl = pytest.mark.skipif(MUSL is None, reason="no musl-gcc (apt-get install musl-tools)")

ALSO_IN_MUSL = set((HERE / "also_in_musl.txt").read_text().split())
"""Functions that the shim uses from glibc and that musl 1.2 also has: `nm -D` of ld-musl-*.so.1."""


def test_what_only_glibc_has_is_referred_to_weakly() -> None:
    """A strong reference to a function that musl lacks ends each musl program before its main()."""
    listed = ["nm", "-D", "--undefined-only", paths.library("libpump.so")]
    done = subprocess.run(listed, capture_output=True, text=True, check=True)
    references = [line.split() for line in done.stdout.splitlines()]
    strong = {words[-1].partition("@")[0] for words in references if words[0] == "U"}
    assert "malloc" in strong
    assert strong <= ALSO_IN_MUSL, "weak in shim/base/glibc.h, or known to be in musl too"


@needs_musl
def test_a_program_of_musl_runs_as_without_pump(tmp_path: Path) -> None:
    assert MUSL is not None
    (tmp_path / "driver.c").write_text("int cuInit(unsigned int flags) { return 42 + (int)flags; }")
    driver, program = tmp_path / "libcuda.so.1", tmp_path / "client"
    made = [MUSL, "-shared", "-fPIC", "-o", driver, tmp_path / "driver.c"]
    subprocess.run(made, check=True)
    subprocess.run([MUSL, "-o", program, HERE / "client_other_libc.c"], check=True)

    def run(**env: str) -> tuple[str, str]:
        done = subprocess.run(
            [program, driver],
            env={**os.environ, "PUMP_SOCKET": str(tmp_path / "none"), **env},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        return done.stdout, done.stderr

    plain = run()
    assert "thread 1 fork 7\ndefault 1 next 1 missing 0\ncuInit 42\n" in plain[0]
    assert run(LD_PRELOAD=paths.library("libpump.so")) == plain
