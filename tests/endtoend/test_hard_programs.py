"""Programs that are hard on an interposer, oversubscribed 1.5 times: the right result in time."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from conftest import BIN, HERE, MIB

INCLUDE = HERE.parents[1] / "shim" / "include"
MEMORY_MIB = 64
"""The programs use 96 MiB."""


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the compiled programs; none is linked against anything of CUDA."""
    folder = tmp_path_factory.mktemp("hard")
    flags = ["-std=gnu11", "-D_GNU_SOURCE", "-O2", "-g1", "-Wall", "-Wextra", "-Werror"]
    for name in ("hard_work", "hard_life"):
        sources = [str(HERE / f"{name}.c"), str(HERE / "hard.c")]
        command = [
            "cc",
            *flags,
            f"-I{INCLUDE}",
            "-o",
            str(folder / name),
            *sources,
            "-ldl",
            "-lpthread",
        ]
        subprocess.run(command, check=True)
    kernels = ["cc", "-O2", "-shared", "-fPIC", "-o", str(folder / "kernels.so")]
    subprocess.run([*kernels, str(HERE / "hard_kernels.c")], check=True)
    return folder


class Program:
    """Runs one case of a program under pump-run on a virtual card of 64 MiB."""

    def __init__(self, programs: Path, kernels: Path, folder: Path) -> None:
        self.programs = programs
        self.kernels = kernels
        self.report = folder / "report.json"
        self.log = folder / "pump.log"

    def command(self, program: str, case: str, *run: str) -> list[str]:
        settings = [f"device.memory_bytes={MEMORY_MIB * MIB}", "mode=compute"]
        virtual = [word for setting in settings for word in ("--virtual-set", setting)]
        log = ["--log-level", "info", "--log-file", str(self.log)]
        options = ["--virtual", "a100-pcie4", *virtual, *log, *run]
        return [str(BIN / "pump-run"), *options, "--", str(self.programs / program), case]

    def environment(self, **more: str) -> dict[str, str]:
        return {
            **os.environ,
            "PUMP_VIRTUAL_KERNELS": f"{self.kernels}:{self.programs / 'kernels.so'}",
            "PUMP_VIRTUAL_REPORT": str(self.report),
            **more,
        }

    def run(
        self, program: str, case: str, *run: str, timeout: float = 40, **env: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(program, case, *run),
            env=self.environment(**env),
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def right(self, program: str, case: str, free_unknown: int = 0) -> dict[str, object]:
        """Runs a case that must succeed; the virtual driver's report, free of violations."""
        done = self.run(program, case)
        assert (done.returncode, done.stdout) == (0, "right\n"), done.stderr + done.stdout
        report: dict[str, object] = json.loads(self.report.read_text())
        assert report["violations_by_check"] == {
            "prefetch_unknown": 0,
            "discard_unknown": 0,
            "free_unknown": free_unknown,
            "capture_invalidated": 0,
            "managed_stream_operations": 0,
            "model_errors": 0,
        }
        return report


@pytest.fixture
def program(programs: Path, kernels: Path, tmp_path: Path) -> Program:
    return Program(programs, kernels, tmp_path)


def prefetches(report: dict[str, object]) -> int:
    calls = report["calls"]
    assert isinstance(calls, dict)
    return int(calls.get("cuMemPrefetchAsync_v2", 0))


@pytest.mark.parametrize("case", ["threads", "churn", "short_lived_threads", "storms", "extra"])
def test_a_program_that_does_much_at_once_is_right(program: Program, case: str) -> None:
    assert prefetches(program.right("hard_work", case)) > 0


def test_what_a_program_is_told_of_its_memory_is_what_it_asked_for(program: Program) -> None:
    # Its two deliberately wrong frees reach the driver as they are.
    program.right("hard_work", "answers", free_unknown=2)


@pytest.mark.parametrize(
    "case",
    ["contexts", "contexts_in_a_row", "primary_reset", "modules", "modules_of_contexts"],
)
def test_what_ends_with_a_context_or_module_is_forgotten(program: Program, case: str) -> None:
    assert prefetches(program.right("hard_life", case)) > 0
