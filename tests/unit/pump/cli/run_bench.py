"""Runs commands under pump-run, with empty stand-ins for its libraries."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from supervisor_client import alive

CODE = "import sys; from pump.cli.run import main; sys.exit(main())"
PUMP_RUN = [sys.executable, "-c", CODE]
PUMPD = [sys.executable, "-m", "pumpd"]
TIMEOUT_S = 60
SHOW = """
import json, os, time
print(json.dumps(dict(os.environ)), flush=True)
time.sleep({seconds})
"""


class Bench:
    """Runs commands under pump-run with a runtime folder of its own."""

    def __init__(self, runtime: Path, libraries: Path) -> None:
        self.runtime = runtime
        self.environ = dict(os.environ)
        for name in ("LD_PRELOAD", "PUMP_SOCKET", "PUMP_DISABLE"):
            self.environ.pop(name, None)
        self.environ["XDG_RUNTIME_DIR"] = str(runtime)
        self.environ["PUMP_LIB_DIR"] = str(libraries)
        self.environ["LD_LIBRARY_PATH"] = str(libraries / "driver")

    def run(self, *words: str, **changes: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*PUMP_RUN, *words],
            env=self.environ | changes,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )

    def shell(self, line: str, **changes: str) -> subprocess.CompletedProcess[str]:
        """Runs a shell line in which $PUMP_RUN is pump-run."""
        wrapper = self.runtime / "pump-run"
        wrapper.write_text(f"#!/bin/sh\nexec {sys.executable} -c '{CODE}' \"$@\"\n")
        wrapper.chmod(0o755)
        return subprocess.run(
            ["bash", "-c", line],
            env=self.environ | {"PUMP_RUN": str(wrapper)} | changes,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )

    def python(self, code: str, *options: str, **changes: str) -> subprocess.CompletedProcess[str]:
        return self.run(*options, sys.executable, "-c", code, **changes)

    def pumpds(self) -> list[int]:
        """Returns the process ids of the supervisors of this bench's jobs."""
        everyone = self.processes()
        return [pid for pid in everyone if parent_of(pid) not in everyone]

    def processes(self) -> list[int]:
        """Returns the process ids of pumpds and their forks, which have the same command line."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and alive(int(entry.name)):
                try:
                    words = (entry / "cmdline").read_bytes()
                except OSError:
                    continue
                if b"\0pumpd\0job\0" in words and bytes(self.runtime) in words:
                    found.append(int(entry.name))
        return found

    def started_nothing(self) -> bool:
        return not (self.runtime / "pump").exists()


def parent_of(pid: int) -> int:
    """Returns the parent's process id; 0 if the process is gone."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0
