"""The virtual driver for tests: compiled from its sources, used by fresh processes.

Not a test. run() starts one program of driver_programs.py on the virtual driver and returns its
findings with the driver's own report.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import builds
import pytest
from places import ROOT

from pump_lab import profiles

HERE = ROOT / "tests" / "virtual" / "driver"
SHIM = ROOT / "shim"
DRIVER = ROOT / "lab" / "driver"
INCLUDES = (f"-I{SHIM / 'include'}", f"-I{ROOT}")
FLAGS = ("-std=gnu11", "-D_GNU_SOURCE", "-O1", "-g1", "-fPIC", "-shared", "-fvisibility=hidden")
LINK = (
    *("-Wl,-Bsymbolic", "-Wl,-z,nodelete", "-Wl,-soname,libcuda.so.1"),
    f"-Wl,--version-script={DRIVER / 'exports.map'}",
    *("-lpthread", "-lm", "-ldl"),
)
GIB = 1 << 30
MIB = 1 << 20


@functools.cache
def folder() -> Path:
    """Returns a temporary folder of this process."""
    made = Path(tempfile.mkdtemp(prefix="pump-virtual-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


def compile_c(target: Path, *arguments: str | Path) -> Path:
    """Runs the system's C compiler; returns `target`."""
    command = ["cc", *map(str, arguments), "-o", str(target)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    return target


def sources() -> list[Path]:
    """Returns the driver's sources, as the build lists them, and the model's."""
    listed = re.findall(r"^  ([\w./]+\.c)$", (DRIVER / "CMakeLists.txt").read_text(), re.MULTILINE)
    assert {"calls/init.c", "calls/exports.c", "timeline/timeline.c"} <= set(listed)
    model = sorted((ROOT / "lab" / "gpu").glob("*.c"))
    return [*(DRIVER / name for name in listed), *model]


@functools.cache
def build() -> Path:
    """Builds libcuda.so.1, once per test run; returns its folder."""

    def make(where: Path) -> None:
        compile_c(where / "libcuda.so.1", *FLAGS, *INCLUDES, *sources(), *LINK)

    return builds.once("virtual-driver", make)


@functools.cache
def host_kernels() -> Path:
    """Compiles the kernels of driver_programs.py as host functions."""
    source = HERE / "driver_kernels.c"
    return compile_c(folder() / "kernels.so", "-O2", "-fPIC", "-shared", source)


def profile(mode: str, memory_bytes: int, **changes: str) -> str:
    settings = {"mode": mode, "memory": str(memory_bytes), **changes}
    return profiles.load("a100-pcie4").flatten(settings)


def _bindings() -> int:
    """Returns the major version of cuda-bindings; 0: not installed."""
    try:
        return int(version("cuda-bindings").partition(".")[0])
    except PackageNotFoundError:
        return 0


needs_bindings_of_13 = pytest.mark.skipif(
    _bindings() < 13, reason="it makes calls in the form of cuda-python 13"
)


@dataclass(frozen=True)
class Outcome:
    """A program's output, exit status and report of the driver."""

    found: Any
    report: dict[str, Any]
    stderr: str
    returncode: int


def environment(mode: str, memory_bytes: int, **more: str) -> dict[str, str]:
    return {
        **{key: value for key, value in os.environ.items() if not key.startswith("PUMP_")},
        "LD_LIBRARY_PATH": str(build()),
        "PUMP_VIRTUAL_PROFILE": profile(mode, memory_bytes),
        "PUMP_VIRTUAL_KERNELS": str(host_kernels()),
        **more,
    }


def run(
    program: str,
    *arguments: str,
    mode: str = "timing",
    memory_bytes: int = GIB,
    env: dict[str, str] | None = None,
    timeout: float = 60,
    script: str = "driver_programs.py",
) -> Outcome:
    """Runs SCRIPT PROGRAM in a fresh process; raises AssertionError if it fails."""
    report = folder() / "report.json"
    report.unlink(missing_ok=True)
    done = subprocess.run(
        [sys.executable, str(HERE / script), program, *arguments],
        env=environment(mode, memory_bytes, PUMP_VIRTUAL_REPORT=str(report), **(env or {})),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, f"{program}: {done.returncode}\n{done.stderr}\n{done.stdout}"
    found = json.loads(done.stdout) if done.stdout else None
    written = json.loads(report.read_text()) if report.exists() else {}
    return Outcome(found, written, done.stderr, done.returncode)
