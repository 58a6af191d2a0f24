"""Jobs on the virtual GPU for the tests of pump's verbs that show jobs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

BIN = Path(sys.executable).parent
TIMEOUT_S = 120

# Fills the given number of buffers of 32 MiB ten times, prints a line, and waits for its release.
PROGRAM = """
import sys
from cuda.bindings import driver as d
def ok(r):
    assert int(r[0]) == 0, r
    return r[1] if len(r) > 1 else None
ok(d.cuInit(0))
ok(d.cuCtxSetCurrent(ok(d.cuDevicePrimaryCtxRetain(0))))
buffers = [ok(d.cuMemAlloc(32 << 20)) for _ in range(int(sys.argv[1]))]
for _ in range(10):
    for buffer in buffers:
        ok(d.cuMemsetD8(buffer, 1, 32 << 20))
    ok(d.cuCtxSynchronize())
print("worked", flush=True)
sys.stdin.readline()
"""


class Jobs:
    """Jobs of a user with a private runtime folder, and pump's verbs that show them."""

    def __init__(self, runtime: Path, folder: Path) -> None:
        self.environ = {
            **os.environ,
            "XDG_RUNTIME_DIR": str(runtime),
            "PUMP_SERVICE": "none",  # ignores other services of this machine
        }
        self.environ.pop("PUMP_SOCKET", None)
        self.folder = folder
        self.running: list[subprocess.Popen[str]] = []

    def start(self, name: str, buffers: int, *options: str) -> Path:
        """Starts a job and waits until its work is done; returns its driver's report file."""
        report = self.folder / f"{name}.json"
        program = [sys.executable, "-c", PROGRAM, f"{buffers}"]
        self._start(report, "--name", name, *options, *program)
        return report

    def start_script(self, name: str) -> subprocess.Popen[str]:
        """Starts an unnamed job from a script of this name; all of its memory fits."""
        script = self.folder / name
        script.write_text(PROGRAM)
        return self._start(self.folder / "script.json", sys.executable, str(script), "1")

    def _start(self, report: Path, *words: str) -> subprocess.Popen[str]:
        virtual = ["--virtual", "a100-pcie4", "--virtual-set", "memory=256MiB"]
        job = subprocess.Popen(
            [BIN / "pump-run", *virtual, *words],
            env={**self.environ, "PUMP_VIRTUAL_REPORT": str(report)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.running.append(job)
        assert job.stdout is not None
        assert job.stdout.readline() == "worked\n"
        return job

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [BIN / "pump", *words],
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )

    def pump(self, *words: str) -> str:
        done = self.run(*words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def end(self) -> None:
        for job in self.running:
            assert job.stdin is not None
            job.stdin.close()
            job.wait(TIMEOUT_S)
        self.running.clear()
