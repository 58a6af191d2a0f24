"""Builds a test program of the C code once per sanitizer and links its sources directly.

Not a test. A sanitizer cannot work below an interposed dlsym, so nothing is preloaded here.
"""

import atexit
import functools
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from places import ROOT

TESTS = ROOT / "tests" / "c"

SANITIZERS = ("thread", "address,undefined")
WARNINGS = ["-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Wstrict-prototypes"]
WARNINGS += ["-Wmissing-prototypes", "-Werror"]
WARNINGS += ["-Wno-tsan"]  # TSan does not model fences; the data that they order is atomic anyway


@functools.cache
def _folder() -> Path:
    """Returns a temporary folder for the time of the test run."""
    folder = Path(tempfile.mkdtemp(prefix="pump-c-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@functools.cache
def _compiled(sanitizer: str, source: Path, room: Path) -> Path:
    """Compiles a source to an object. room: the folder with its own headers."""
    target = Path(tempfile.mkdtemp(dir=_folder())) / f"{source.stem}.o"
    places = (ROOT, ROOT / "shim" / "include", TESTS, TESTS / "execute")
    includes = ("-iquote", room, *(f"-I{place}" for place in places))
    cc(sanitizer, *WARNINGS, *includes, "-c", source, "-o", target)
    return target


def compiled(sanitizer: str, sources: Iterable[Path], changed: Path | None = None) -> list[Path]:
    """Compiles the sources. `changed` replaces the source of the same name."""

    def one(source: Path) -> Path:
        taken = changed if changed is not None and changed.name == source.name else source
        return _compiled(sanitizer, taken, source.parent)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(one, sources))


def cc(sanitizer: str, *arguments: str | Path) -> None:
    """Runs the C compiler with the options of all these programs."""
    command = [os.environ.get("CC", "cc"), "-std=gnu11", "-O1", "-g", "-D_GNU_SOURCE"]
    command += [
        "-DPUMP_ASSERTIONS",
        "-fno-strict-aliasing",
        "-fno-omit-frame-pointer",
        f"-fsanitize={sanitizer}",
    ]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@functools.cache
def build(
    sanitizer: str,
    program: str,
    *shim_sources: str,
    harness: bool = False,
    changed: Path | None = None,
) -> Path:
    """Compiles <program>.c below tests/c with the named files of shim/ or daemon/core.

    Returns the program. `harness` adds record_harness.c. `changed` replaces the source of its name.
    """
    names = [program] + ["record_harness"] * harness
    sources = []
    for places, wanted in (
        ((TESTS,), [f"{name}.c" for name in names]),
        ((ROOT / "shim", ROOT / "daemon" / "core"), shim_sources),
    ):
        for file in wanted:
            (found,) = (path for place in places for path in place.rglob(file))
            sources.append(found)
    output = Path(tempfile.mkdtemp(dir=_folder())) / program
    cc(sanitizer, *compiled(sanitizer, sources, changed), "-pthread", "-o", output)
    return output


def run(program: Path, *arguments: str, timeout_s: float = 120, given: str = "") -> str:
    """Runs the program to its end; fails after a failed check, a sanitizer's report or a hang."""
    command = [str(program), *arguments]
    # With full ASLR older compilers' ThreadSanitizer cannot place its shadow memory.
    if setarch := shutil.which("setarch"):
        command = [setarch, platform.machine(), "-R", *command]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=timeout_s, check=False, input=given
    )
    assert done.returncode == 0, f"{arguments}: {done.stdout[-2000:]}{done.stderr[-4000:]}"
    return done.stdout
