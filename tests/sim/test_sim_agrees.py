"""The simulator against the virtual GPU: the same programs, through a recording.

The virtual GPU runs in real time and shares the machine with other load, which the simulator does
not know. If pump's own threads take part, the test compares the best of several runs, and with a
wide tolerance: `scripts/bench sim` has the numbers.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import host_build
import pytest
from places import ROOT
from study.studied_policies import by_name, simulate

from pump.trace.info import opened
from pump_lab import profiles
from pump_lab.sim import recording
from pump_lab.sim.program import Program, ProgramError
from pump_lab.sim.report import Case, compared
from pump_lab.sim.simulation import Machine, Outcome
from pump_lab.sim.sweep import as_text, over_memory

pytestmark = pytest.mark.alone

EXAMPLES = ROOT / "examples"
MIB = 1 << 20
SWEEP = ["cyclic_sweep.py", "--buffers=16", "--buffer-mib=64", "--iterations=8"]
BUFFER_BYTES = 64 << 20
MEMORY_MIB = 640
SETTINGS = {"kernel.sweep.gbps": "60"}


@pytest.fixture(scope="module")
def kernel_library() -> Path:
    """Returns the path of the examples' kernels, compiled for the virtual GPU."""
    return Path(host_build.build())


def measure_sweep(
    kernel_library: Path, folder: Path, memory_mib: int, *options: str, naive: bool = False
) -> float:
    """Runs the sweep on the virtual GPU, with `options` of pump-run or (`naive`) without pump.
    Returns the seconds of its timed iterations."""
    settings = {"mode": "timing", "memory": f"{memory_mib}MiB", **SETTINGS}
    command = [str(Path(sys.executable).parent / "pump-run"), "--virtual", "a100-pcie4"]
    for key, value in settings.items():
        command += ["--virtual-set", f"{key}={value}"]
    result = folder / "result.json"
    words = [str(EXAMPLES / SWEEP[0]), *SWEEP[1:], "--no-hash", "--json", str(result)]
    environ = {**os.environ, "PUMP_VIRTUAL_KERNELS": str(kernel_library)}
    if naive:
        environ["PUMP_DISABLE"] = "1"
        words.append("--managed")
    done = subprocess.run(
        [*command, *options, "--", sys.executable, *words],
        env=environ, capture_output=True, text=True, timeout=90, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return float(json.loads(result.read_text())["seconds"])


@pytest.fixture(scope="module")
def recorded(kernel_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Program:
    folder = tmp_path_factory.mktemp("recorded")
    file = folder / "sweep.trace"
    measure_sweep(kernel_library, folder, 2048, "--record", str(file))
    with opened(str(file)) as (stream, being_written):
        assert not being_written
        return recording.program(stream.read(), "sweep.trace")


def simulated(program: Program, policy: str) -> Outcome:
    profile = profiles.load("a100-pcie4").changed(SETTINGS)
    return simulate(by_name(policy), program, Machine(profile, MEMORY_MIB * MIB))


def timed_seconds(outcome: Outcome) -> float:
    """Returns the time from the second wait, after the warm-up, to the third, at the end."""
    return outcome.syncs_seconds[2] - outcome.syncs_seconds[1]


def test_a_recording_becomes_the_program_that_ran(recorded: Program) -> None:
    assert recorded.operations == 16 + 8 * 16
    assert recorded.peak_bytes == 16 * BUFFER_BYTES
    assert recorded.facts["events_lost"] == 0
    # 64 MiB at 60 GB/s, 128 times; estimated from markers, on a machine with other work
    sweeps = recorded.steps["duration_ns"][recorded.steps["seq"] > 16]
    assert float(sweeps.sum()) / 1e9 == pytest.approx(128 * BUFFER_BYTES / 60e9, rel=0.15)


def test_the_figures_of_a_recording_are_those_behind_its_start(recorded: Program) -> None:
    profile = profiles.load("a100-pcie4").changed(SETTINGS)
    case = Case(recorded, Machine(profile, MEMORY_MIB * MIB))
    found = compared(case, [by_name(name) for name in ("naive", "naive+discard", "g10")])
    (naive,) = found["policies"]
    assert naive["seconds"] == pytest.approx(timed_seconds(simulated(recorded, "naive")), rel=0.01)
    assert naive["slowdown"] > 2
    # 6 of the 8 rounds come after the first wait
    assert found["floor"]["compute_seconds"] == pytest.approx(96 * BUFFER_BYTES / 60e9, rel=0.15)
    assert found["left_out"] == ["naive+discard", "g10"]
    with pytest.raises(ProgramError, match="g10 needs to know which memory is dead"):
        compared(case, [by_name("g10")])
    curve = over_memory(case, [by_name(name) for name in ("naive", "g10")])
    assert curve["left_out"] == ["g10"] and "Left out" in as_text(curve)
    with pytest.raises(ProgramError, match="g10 needs to know which memory is dead"):
        over_memory(case, [by_name("g10")])


def test_naive_takes_as_long_simulated_as_on_the_virtual_gpu(
    recorded: Program, kernel_library: Path, tmp_path: Path
) -> None:
    measured = measure_sweep(kernel_library, tmp_path, MEMORY_MIB, naive=True)
    assert timed_seconds(simulated(recorded, "naive")) == pytest.approx(measured, rel=0.1)


def test_the_window_is_about_as_fast_simulated_as_on_the_virtual_gpu(
    recorded: Program, kernel_library: Path, tmp_path: Path
) -> None:
    expected = timed_seconds(simulated(recorded, "window"))
    best = math.inf
    for _ in range(4):
        seconds = measure_sweep(kernel_library, tmp_path, MEMORY_MIB, "--policy", "window")
        best = min(best, seconds)
        if best < 1.25 * expected:
            break
    # A machine without a free core for pump makes the virtual run slower, never faster.
    assert 0.9 * expected < best < 2 * expected


def test_what_is_no_sound_recording_is_told_in_one_line() -> None:
    for data in (b"\x93PUMPTR\n", b"\x93PUMPTR\n" + bytes(40)):
        assert recording.is_recording(data)
        with pytest.raises(ProgramError, match=r"^some\.trace: "):
            recording.program(data, "some.trace")
