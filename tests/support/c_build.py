"""Builds a test program of the C code once per sanitizer, sources linked directly.

Not a test. A sanitizer cannot sit under an interposed dlsym, so nothing is preloaded here.
"""

import atexit
import functools
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

from places import ROOT

SANITIZERS = ("thread", "address,undefined")
WARNINGS = ["-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Wstrict-prototypes"]
WARNINGS += ["-Wmissing-prototypes", "-Werror", "-Wno-tsan"]


@functools.cache
def build(
    sanitizer: str,
    program: str,
    *shim_sources: str,
    harness: bool = False,
    shim: Path = ROOT / "shim",
) -> Path:
    """Compiles <program>.c below tests/c and the named files of shim/ or daemon/core; returns it.

    `harness`: with record_harness.c. `shim`: where the files of shim/ are, or a copy of them.
    """
    folder = Path(tempfile.mkdtemp(prefix="pump-c-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    output = folder / program
    names = [program] + ["record_harness"] * harness
    tests = ROOT / "tests" / "c"
    sources = []
    for places, wanted in (
        ((tests,), [f"{name}.c" for name in names]),
        ((shim, ROOT / "daemon" / "core"), shim_sources),
    ):
        for file in wanted:
            (found,) = (path for place in places for path in place.rglob(file))
            sources.append(found)
    command = [os.environ.get("CC", "cc"), "-std=gnu11", "-O1", "-g", "-D_GNU_SOURCE"]
    command += ["-fno-strict-aliasing", "-fno-omit-frame-pointer", f"-fsanitize={sanitizer}"]
    command += [*WARNINGS, f"-I{shim.parent}", f"-I{shim / 'include'}", f"-I{tests}"]
    command += [*map(str, sources), "-pthread", "-o", str(output)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return output


def run(program: Path, *arguments: str, timeout_s: float = 120, given: str = "") -> str:
    """Runs to the end; fails on a failed check, a sanitizer's report or a hang."""
    command = [str(program), *arguments]
    # ThreadSanitizer of older compilers cannot place its shadow under full ASLR.
    if setarch := shutil.which("setarch"):
        command = [setarch, platform.machine(), "-R", *command]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=timeout_s, check=False, input=given
    )
    assert done.returncode == 0, f"{arguments}: {done.stdout[-2000:]}{done.stderr[-4000:]}"
    return done.stdout
