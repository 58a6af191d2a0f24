"""Programs that are hard for an interposer and need 1.5 times the memory: right results in time."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

import pumpds
import pytest
from jobs import BIN, BOTH_POLICIES, MIB
from places import HARD, INCLUDE

pytestmark = pytest.mark.usefixtures("policy")

KINDS = ("kernels", "copies", "memsets")
MEMORY_MIB = 64
"""The programs use 96 MiB."""


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the folder of the compiled programs, which are not linked against CUDA."""
    folder = tmp_path_factory.mktemp("hard")
    flags = ["-std=gnu11", "-D_GNU_SOURCE", "-O2", "-g1", "-Wall", "-Wextra", "-Werror"]
    names = ("work", "life", "capture", "graph", "pool", "end")
    for name in (f"hard_{name}" for name in names):
        sources = [str(HARD / f"{name}.c"), str(HARD / "hard.c")]
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
    subprocess.run([*kernels, str(HARD / "hard_kernels.c")], check=True)
    return folder


class Program:
    """Runs one case of a program under pump-run on a virtual GPU of 64 MiB."""

    def __init__(self, programs: Path, kernels: Path, folder: Path) -> None:
        self.programs = programs
        self.kernels = kernels
        self.report = folder / "report.json"
        self.log = folder / "pump.log"
        self.summary = folder / "summary.json"

    def command(self, program: str, case: str, *run: str) -> list[str]:
        settings = [f"device.memory_bytes={MEMORY_MIB * MIB}", "mode=compute"]
        virtual = [word for setting in settings for word in ("--virtual-set", setting)]
        log = ["-v", "--log-file", str(self.log)]
        options = ["--virtual", "a100-pcie4", *virtual, *log, *run]
        return [str(BIN / "pump-run"), *options, "--", str(self.programs / program), case]

    def environment(self, **more: str) -> dict[str, str]:
        return {
            **os.environ,
            "PUMP_VIRTUAL_KERNELS": f"{self.kernels}:{self.programs / 'kernels.so'}",
            "PUMP_VIRTUAL_REPORT": str(self.report),
            "PUMP_SUMMARY": str(self.summary),
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

    def right(
        self,
        program: str,
        case: str,
        *run: str,
        free_unknown: int = 0,
        capture_invalidated: int = 0,
    ) -> dict[str, object]:
        """Runs a case that must succeed; returns the virtual driver's report without violations."""
        done = self.run(program, case, *run)
        assert (done.returncode, done.stdout) == (0, "right\n"), done.stderr + done.stdout
        report: dict[str, object] = json.loads(self.report.read_text())
        assert report["violations_by_check"] == {
            "prefetch_unknown": 0,
            "discard_unknown": 0,
            "discard_live": 0,
            "advise_pool": 0,
            "discard_pending": 0,
            "free_unknown": free_unknown,
            "capture_invalidated": capture_invalidated,
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


@BOTH_POLICIES
@pytest.mark.parametrize("case", ["threads", "churn", "short_lived_threads", "storms", "extra"])
def test_a_program_that_does_much_at_once_is_right(program: Program, case: str) -> None:
    assert prefetches(program.right("hard_work", case)) > 0


def test_what_a_program_is_told_of_its_memory_is_what_it_asked_for(program: Program) -> None:
    # The program's two wrong frees reach the driver unchanged.
    program.right("hard_work", "answers", free_unknown=2)


@BOTH_POLICIES
@pytest.mark.parametrize(
    "case",
    ["contexts", "contexts_in_a_row", "primary_reset", "modules", "modules_of_contexts"],
)
def test_what_ends_with_a_context_or_module_is_forgotten(program: Program, case: str) -> None:
    assert prefetches(program.right("hard_life", case)) > 0


@BOTH_POLICIES
@pytest.mark.parametrize("case", ["global", "thread_local", "relaxed", "beside"])
def test_nothing_of_pump_gets_into_a_capture(program: Program, case: str) -> None:
    assert prefetches(program.right("hard_capture", case)) > 0


@BOTH_POLICIES
@pytest.mark.parametrize("case", ["nodes", "changes", "updates", "iteration", "reused", "threads"])
def test_a_graph_is_as_many_operations_as_the_gpu_executes_of_it(
    program: Program, case: str
) -> None:
    report = program.right("hard_graph", case)
    shim = json.loads(program.summary.read_text())["shim"]
    graphs = report["graphs"]
    assert isinstance(graphs, dict)
    assert shim["graph_launches"] == graphs["launches"] > 0
    assert shim["graph_operations"] == sum(graphs[kind] for kind in KINDS)
    assert shim["graphs_unknown"] == 0
    assert prefetches(report) > 0


def test_what_a_capture_refuses_fails_as_it_does_without_pump(program: Program) -> None:
    # A small and a large allocation, each in GLOBAL and in THREAD_LOCAL mode.
    program.right("hard_capture", "refused", capture_invalidated=4)


def test_what_pump_refuses_ends_a_capture_that_the_driver_would_have_ended(
    program: Program,
) -> None:
    program.right("hard_capture", "limited", "--limit", "128MiB", capture_invalidated=2)


def test_abandoned_captures_hurt_no_program(program: Program) -> None:
    program.right("hard_capture", "abandoned", capture_invalidated=20)


@pytest.mark.parametrize("case", ["streams", "own_pools", "contexts"])
def test_stream_ordered_memory_keeps_what_its_owner_wrote(program: Program, case: str) -> None:
    # Blocks of destroyed contexts have no owner: the driver answers their frees.
    program.right("hard_pool", case, free_unknown=6 if case == "contexts" else 0)


@pytest.mark.parametrize("kind", ["unmap", "keep"])
def test_dead_memory_is_discarded_and_nothing_else(
    program: Program, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """After a discard of the kind "keep" only a migration makes memory safe to write again."""
    monkeypatch.setenv("PUMP_VIRTUAL_DISCARD", kind)
    report = program.right("hard_pool", "streams")
    calls = report["calls"]
    assert isinstance(calls, dict) and calls["cuMemDiscardBatchAsync"] > 0


@pytest.mark.parametrize(
    ("variable", "value"),
    [("PUMP_VIRTUAL_VERSION", "12080"), ("PUMP_VIRTUAL_FAIL", "cuMemDiscardBatchAsync:0:801")],
)
def test_where_dead_memory_cannot_be_discarded_one_line_says_so(
    program: Program, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    program.right("hard_pool", "streams")
    assert program.log.read_text().count("this driver cannot discard memory") == 1


def test_stream_ordered_memory_answers_as_the_drivers_own(program: Program) -> None:
    program.right("hard_pool", "answers")


def test_what_the_pool_keeps_leaves_room_for_plain_allocations(program: Program) -> None:
    program.right("hard_pool", "room", "--limit", "96MiB")


def test_what_a_program_repeats_gets_places_and_the_pool_gives_back_the_rest(
    program: Program,
) -> None:
    # 82 MiB are live at once. The GPU has memory for 96 MiB of segments, but not for 128.
    memory = f"device.memory_bytes={112 * MIB}"
    program.right("hard_pool", "repeats", "--virtual-set", memory)


def test_the_pool_serves_beside_captures_and_leaves_them_alone(program: Program) -> None:
    report = program.right("hard_pool", "captures")
    assert report["graphs"] == {"launches": 9, "kernels": 45, "copies": 0, "memsets": 0}
    (device,) = json.loads(program.summary.read_text())["devices"]
    assert device["plain_bytes"] < MIB, "what graphs had is given back"


def test_parent_and_child_of_a_fork_before_cuinit_are_both_clients(program: Program) -> None:
    done = program.run("hard_end", "fork_before")
    assert (done.returncode, done.stdout) == (0, "right\n"), done.stderr
    assert done.stderr.count(" the budget") == 1, "one line for both processes"


def test_a_child_of_a_running_program_may_end_or_become_another(program: Program) -> None:
    done = program.run("hard_end", "fork_after")
    assert (done.returncode, done.stdout) == (0, "right\nright\n"), done.stderr
    assert done.stderr.count(" the budget") == 1, "one line for both processes"


ENDS = {
    "return": 19,
    "exit": 20,
    "thread": 21,
    "handler": 22,
    "_exit": 23,
    "abort": -6,
    "kill": -9,
    "segv": -11,
    "term": -15,
}


@pytest.mark.parametrize("case", ENDS)
def test_a_sudden_end_under_load_is_prompt_and_leaves_no_process(
    program: Program, case: str
) -> None:
    process = subprocess.Popen(
        program.command("hard_end", case),
        env=program.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stdout.readline() == "busy\n"
    begin = time.monotonic()
    _, said = process.communicate(timeout=20)
    assert process.returncode == ENDS[case], said
    assert time.monotonic() - begin < 5
    assert pumpds.wait_for(lambda: pumpds.of_job(process.pid) == pumpds.Pumpd(), 10)
