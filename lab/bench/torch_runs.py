"""Runs programs of PyTorch on the virtual GPU; needs the environment of the frameworks."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness import ROOT, MeasurementError, Options, UnavailableError, child, compile_c

PROFILE = "a100-pcie4"
ROOM_BYTES = 8 << 30
"""Enough memory for everything."""
SECONDS_MAX = 240
PRELOAD = 'LD_PRELOAD="$0${LD_PRELOAD:+:$LD_PRELOAD}" exec "$@"'
"""Preloads before the stand-ins for the runtime, which pump-run puts first."""


def environment(options: Options) -> Path:
    """Returns the Python of the frameworks' environment. Raises UnavailableError without one."""
    command = [str(ROOT / "tests" / "frameworks" / "setup_frameworks"), "--find"]
    done = subprocess.run(
        ["env", f"PYTHON={options.tools.python}", *command],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if done.returncode != 0:
        raise UnavailableError("PyTorch is missing; tests/frameworks/setup_frameworks installs it")
    return Path(done.stdout.strip()) / "bin" / "python"


def library(options: Options, name: str, *flags: str) -> Path:
    """Builds lab/bench/load_generators/NAME.c as a shared library."""
    source = ROOT / "lab" / "bench" / "load_generators" / f"{name}.c"
    return compile_c(options.tools, f"lib{name}.so", [source], "-shared", "-fPIC", *flags)


class Torch:
    """Runs a program of PyTorch under allocator_probe.c, in `mode` timing of the virtual GPU.
    `program`: its file and options. `settings`: further settings of the virtual GPU."""

    def __init__(
        self, options: Options, program: Sequence[str], work: Path, settings: Sequence[str] = ()
    ) -> None:
        self._pump_run = options.tools.pump_run
        self._python = environment(options)
        self._probe = library(options, "allocator_probe", "-ldl", "-lpthread")
        self._program = program
        self._settings = ("mode=timing", "copies=modelled", *settings)
        self._work = work

    def run(
        self,
        memory_bytes: int,
        pump: Sequence[str],
        *words: str,
        managed: bool = False,
        environ: Mapping[str, str] | None = None,
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Runs once; returns the program's result and the driver's report.

        `pump`: options of pump-run; if empty, pump is off. `managed`: cudaMalloc returns managed
        memory. Raises MeasurementError if the program fails or breaks a rule of the driver.
        """
        result, report, log = (self._work / n for n in ("result.json", "driver.json", "pump.log"))
        for file in (result, report, log):
            file.unlink(missing_ok=True)
        command = [self._pump_run, "--log-file", str(log), "--virtual", PROFILE, *pump]
        for setting in (f"memory={memory_bytes}", *self._settings):
            command += ["--virtual-set", setting]
        command += ["--", "sh", "-c", PRELOAD, str(self._probe), str(self._python)]
        command += [*self._program, "--json", str(result), *words]
        variables = {
            "PUMP_DISABLE": "" if pump else "1",
            "PUMP_BENCH_MANAGED": "1" if managed else "",
            "PUMP_VIRTUAL_REPORT": str(report),
            "PYTHONWARNINGS": "ignore",
            **(environ or {}),
        }
        child(command, variables, SECONDS_MAX)
        found, driver = json.loads(result.read_text()), json.loads(report.read_text())
        if driver["violations"]:
            raise MeasurementError(f"the virtual driver saw {driver['violations_by_check']}")
        return found, driver
