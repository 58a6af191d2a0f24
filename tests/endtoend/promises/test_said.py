"""Pump reports requests without effect, and leaves the right files if it did nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from jobs import BIN, pump_run

FITS = """
from cuda.bindings import driver as cu
cu.cuInit(0)
cu.cuCtxSetCurrent(cu.cuDevicePrimaryCtxRetain(0)[1])
cu.cuMemAlloc(8 << 20)
"""


def test_a_recorded_command_without_cuda_leaves_no_file(tmp_path: Path) -> None:
    pump_run("--record", str(tmp_path / "run.pump"), "true")
    assert list(tmp_path.iterdir()) == []


def test_a_launcher_that_looks_for_gpus_leaves_no_recording_of_its_own(tmp_path: Path) -> None:
    looks = FITS.partition("cu.cuCtxSetCurrent")[0] + "cu.cuDeviceGetCount()\n"
    record = ("--record", str(tmp_path / "run.pump"), "--", sys.executable, "-c")
    pump_run(*record, looks)
    assert list(tmp_path.iterdir()) == []
    launches = looks + "import subprocess, sys; subprocess.run(sys.argv[1:], check=True)"
    pump_run(*record, launches, sys.executable, "-c", FITS)
    assert [file.name for file in tmp_path.iterdir()] == ["run.pump.2"]


def test_a_misspelt_variable_gets_a_suggestion() -> None:
    done = pump_run("true", PUMP_BUGDET="1GiB")
    assert "ignoring unknown variable PUMP_BUGDET (did you mean PUMP_BUDGET?)" in (done.stderr)


@pytest.mark.parametrize("budget", ["65MiB", "1.5x", "64MiB", "50%"])
def test_a_budget_above_the_card_is_said_once_and_counts_as_none(budget: str) -> None:
    words = (
        "-v",
        "--virtual-set",
        "memory=64MiB",
        "--budget",
        budget,
        "--",
        sys.executable,
        "-c",
        FITS,
    )
    said = pump_run(*words).stderr
    above = {"65MiB": "65 MiB", "1.5x": "96 MiB"}.get(budget)
    assert said.count("MiB, which exceeds the") == (above is not None)
    if above:
        assert (
            f"device 0: ignoring the budget of {above}, which exceeds the 64 MiB of the GPU" in said
        )
        assert "budget 62 MiB;" in said, "as without one"


def test_a_service_says_where_it_serves(tmp_path: Path) -> None:
    command = [BIN / "pumpd", "serve", "--socket", tmp_path / "service"]
    service = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert service.stderr
        assert service.stderr.readline() == f"pumpd: serving at {tmp_path}/service, until SIGTERM\n"
    finally:
        service.terminate()
        service.wait(60)
