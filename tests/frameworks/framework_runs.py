"""Runs a program of the frameworks' environment on the virtual GPU, with or without pump.

Collects the virtual driver's report and pump's counters of every process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PROGRAMS = HERE / "programs"
BIN = Path(sys.executable).parent
MIB = 1 << 20
PLAIN_MEMORY_BYTES = 8 << 30
ABORTED = "terminate called without an active exception"
"""PyTorch's message if one of its threads still runs when a process ends."""
TIMEOUT_S = 300
RECORDED_S = 30.0

# Driver calls that give the GPU work.
WORK_CALLS = ("cuLaunch", "cuMemcpy", "cuMemset", "cuGraphLaunch")


@dataclass
class Outcome:
    """found: the program's last output line, as JSON. reports: the virtual driver's reports by
    process id. summaries: pump's summaries by process id."""

    found: dict[str, Any]
    stderr: str
    reports: dict[int, dict[str, Any]] = field(default_factory=dict)
    summaries: dict[int, dict[str, Any]] = field(default_factory=dict)

    def kernels(self) -> Counter[str]:
        """Returns the launches that the GPU executed, by name, summed over all processes."""
        return sum((Counter(report["kernels"]) for report in self.reports.values()), Counter())

    def calls(self) -> Counter[str]:
        """Returns the driver calls that give the GPU work, summed over all processes."""
        every: Counter[str] = Counter()
        for report in self.reports.values():
            every.update({k: n for k, n in report["calls"].items() if k.startswith(WORK_CALLS)})
        return every

    def operations(self) -> dict[int, int]:
        """Returns the operations that the GPU got from each process, as the virtual driver counts
        them: the operations of a graph at each launch, operations that are only captured never."""
        return {pid: report["operations"] for pid, report in self.reports.items()}

    def seen(self) -> dict[int, int]:
        """Returns the operations that pump's shim counted in each process."""
        return {pid: found["shim"]["operations"] for pid, found in self.summaries.items()}

    def violations(self) -> int:
        return sum(report["violations"] for report in self.reports.values())


class Bench:
    """The environment of the frameworks, and a folder for the files of one test."""

    def __init__(self, frameworks: Path, folder: Path) -> None:
        self.frameworks = frameworks
        self.python = frameworks / "bin" / "python"
        self.folder = folder

    def run(
        self,
        *command: str | Path,
        pump: bool,
        mode: str = "timing",
        memory_bytes: int = PLAIN_MEMORY_BYTES,
        kernels: Path | None = None,
        env: dict[str, str] | None = None,
        granularity: str = "native",
        settings: tuple[str, ...] = (),
        once_more: bool = True,
    ) -> Outcome:
        """Runs `command`; raises AssertionError if it fails. Repeats a run without pump if PyTorch
        aborts at its end, as it sometimes does. settings: settings of the virtual GPU."""
        folder = self.folder / f"{'pump' if pump else 'plain'}-{len(list(self.folder.iterdir()))}"
        folder.mkdir()
        settings = (f"device.memory_bytes={memory_bytes}", f"mode={mode}", *settings)
        options = [word for setting in settings for word in ("--virtual-set", setting)]
        if pump:  # recording makes pump report every operation, dormant or not
            options += ["--record", str(folder / "job.trace"), "--granularity", granularity]
        start = [str(BIN / "pump-run"), "--virtual", "a100-pcie4", *options]
        done = subprocess.run(
            [*start, "--", *map(str, command)],
            env=self._environment(folder, pump, kernels) | (env or {}),
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        if not pump and once_more and done.returncode != 0 and ABORTED in done.stderr:
            return self.run(
                *command,
                pump=pump,
                mode=mode,
                memory_bytes=memory_bytes,
                kernels=kernels,
                env=env,
                granularity=granularity,
                settings=settings[2:],
                once_more=False,
            )
        assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stderr[-6000:]}"
        lines = done.stdout.strip().splitlines()
        return Outcome(
            json.loads(lines[-1]),
            done.stderr,
            {int(file.stem): json.loads(file.read_text()) for file in folder.glob("*.report")},
            {int(file.stem): json.loads(file.read_text()) for file in folder.glob("*.summary")},
        )

    def program(self, name: str, *arguments: str, **how: Any) -> Outcome:
        return self.run(self.python, PROGRAMS / f"{name}.py", *arguments, **how)

    def trace(self, outcome_folder: Path) -> dict[str, Any]:
        """Waits until the recording is complete; returns the output of `pump trace info`.

        The worker may write all of a short recording, or the end of a long one, after the program's
        end.
        """
        command = [str(BIN / "pump"), "trace", "info", "--json", str(outcome_folder / "job.trace")]
        until = time.monotonic() + RECORDED_S
        while True:
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
            found = json.loads(done.stdout) if done.returncode == 0 else {"state": done.stderr}
            if found["state"] == "complete":
                return found
            assert time.monotonic() < until, f"not complete: {found['state']}"
            time.sleep(0.1)

    def _environment(self, folder: Path, pump: bool, kernels: Path | None) -> dict[str, str]:
        site = next((self.frameworks / "lib").glob("python3*")) / "site-packages"
        environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith("PUMP_V")},
            "PUMP_DISABLE": "" if pump else "1",
            "PUMP_VIRTUAL_REPORT": str(folder / "%p.report"),
            "PUMP_SUMMARY": str(folder / "%p.summary"),
            # The compilers of the wheels; their caches are next to the test's files.
            "CUDA_HOME": str(site / "nvidia" / "cu13"),
            "TRITON_CACHE_DIR": str(folder / "triton"),
            "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
            "PYTHONWARNINGS": "ignore",
            "PYTHONDONTWRITEBYTECODE": "1",
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
        }
        if kernels is not None:
            environ["PUMP_VIRTUAL_KERNELS"] = str(kernels)
        return environ


def check_same_work(plain: Outcome, pumped: Outcome) -> None:
    assert plain.found == pumped.found
    check_same_traffic(plain, pumped)


def check_same_traffic(plain: Outcome, pumped: Outcome) -> None:
    assert plain.found["round_trip"] is True and pumped.found["round_trip"] is True
    check_same_launches(plain, pumped)


def check_same_launches(plain: Outcome, pumped: Outcome) -> None:
    assert sum(plain.kernels().values()) > 0
    assert pumped.kernels() == plain.kernels()
    assert pumped.calls() == plain.calls()
    assert (plain.summaries, plain.violations(), pumped.violations()) == ({}, 0, 0)


def check_counts(pumped: Outcome) -> None:
    """Checks that pump counted every process that used the GPU, and all of its operations."""
    assert pumped.seen() == pumped.operations()
    for summary in pumped.summaries.values():
        assert summary["shim"]["events_dropped"] == 0
        assert summary["shim"]["ranges_untracked"] == 0


def smaller(plain: Outcome) -> int:
    """Returns two thirds of the program's reserved memory, rounded down to MiB."""
    return max(plain.found["reserved_bytes"] * 2 // 3, 16 * MIB) // MIB * MIB
