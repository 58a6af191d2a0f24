"""Jobs under pump-run on the virtual GPU, in fresh processes."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from places import PROGRAMS, ROOT

from pump.trace.format import TraceError
from pump.trace.info import summary

MIB = 1 << 20
BIN = Path(sys.executable).parent


def host_kernels(source: str, folder: Path) -> Path:
    """Compiles the host kernels of a program, a C file in PROGRAMS, to a shared library."""
    library = folder / f"{Path(source).stem}.so"
    command = ["cc", "-O2", "-shared", "-fPIC", f"-I{ROOT}", "-o", library, PROGRAMS / source]
    subprocess.run(command, check=True)
    return library


RECORDED_S = 30.0


def recording(trace: Path) -> dict[str, Any]:
    """Waits until the recording is complete; returns its summary. The worker may write all of a
    short recording, or the end of a long one, after the program's end."""
    until = time.monotonic() + RECORDED_S
    while time.monotonic() < until:
        with contextlib.suppress(OSError, TraceError):
            found = summary(str(trace))
            if found["state"] == "complete":
                return found
        time.sleep(0.1)
    raise AssertionError(f"{trace} is never complete")


def learned(cache: Path) -> Path:
    """Waits for the learned file below that XDG_CACHE_HOME, which a worker writes after its
    client's end; returns its path."""
    until = time.monotonic() + RECORDED_S
    while time.monotonic() < until:
        if found := list(cache.glob("pump/learned/*.learned")):
            return found[0]
        time.sleep(0.05)
    raise AssertionError("nothing was kept")


BOTH_POLICIES = pytest.mark.parametrize("policy", ["window", "planned"], indirect=True)
"""Runs a test with both policies every time. By default only long campaigns run `planned`."""


def pump_run(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Runs options and command under pump-run on the virtual GPU; the command must succeed."""
    done = subprocess.run(
        [str(BIN / "pump-run"), "--virtual", "a100-pcie4", *words],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


class Job:
    """Builds and runs `pump-run ... job.py ...` on a virtual GPU of `memory_mib`."""

    def __init__(self, kernels: Path, folder: Path, program: str = "job.py") -> None:
        self.program = program
        self.kernels = kernels
        self.folder = folder
        self.report = folder / "report.json"
        self.log = folder / "pump.log"

    def command(
        self, *job: str, memory_mib: int = 64, run: tuple[str, ...] = (), mode: str = "compute"
    ) -> list[str]:
        settings = [f"device.memory_bytes={memory_mib * MIB}", f"mode={mode}"]
        virtual = [word for setting in settings for word in ("--virtual-set", setting)]
        log = ["-v", "--log-file", str(self.log)]
        script = str(PROGRAMS / self.program)
        options = ["--virtual", "a100-pcie4", *virtual, *log, *run]
        return [str(BIN / "pump-run"), *options, "--", sys.executable, script, *job]

    def environment(self, **more: str) -> dict[str, str]:
        return {
            **os.environ,
            "PUMP_SERVICE": "none",  # ignores other services of this machine
            "PUMP_VIRTUAL_KERNELS": str(self.kernels),
            "PUMP_VIRTUAL_REPORT": str(self.report),
            **more,
        }

    def start(
        self,
        *job: str,
        memory_mib: int = 64,
        run: tuple[str, ...] = (),
        mode: str = "compute",
        env: dict[str, str] | None = None,
    ) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(*job, memory_mib=memory_mib, run=run, mode=mode),
            env=self.environment(**(env or {})),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(
        self,
        *job: str,
        memory_mib: int = 64,
        run: tuple[str, ...] = (),
        mode: str = "compute",
        env: dict[str, str] | None = None,
        timeout: float = 60,
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*job, memory_mib=memory_mib, run=run, mode=mode),
            env=self.environment(**(env or {})),
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
