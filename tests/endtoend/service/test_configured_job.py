"""A job on the virtual GPU with settings in pump.toml: the answers that the program gets."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pumpds import wait_for

PUMP_RUN = Path(sys.executable).parent / "pump-run"
MIB = 1 << 20
CARD_MIB = 256

# Prints free and total memory (MiB) before and after an allocation of 64 MiB.
PROGRAM = """
from cuda.bindings import driver as d
d.cuInit(0)
d.cuCtxSetCurrent(d.cuDevicePrimaryCtxRetain(0)[1])
before = d.cuMemGetInfo()
assert d.cuMemAlloc(64 << 20)[0] == 0
after = d.cuMemGetInfo()
print(*(value >> 20 for value in (*before[1:], *after[1:])))
"""


def told(folder: Path, *options: str) -> tuple[list[int], str]:
    virtual = ["--virtual", "a100-pcie4", "--virtual-set", f"memory={CARD_MIB}MiB"]
    done = subprocess.run(
        [PUMP_RUN, *virtual, *options, sys.executable, "-c", PROGRAM],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return [int(word) for word in done.stdout.split()], done.stderr


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('budget = "128MiB"', [128, CARD_MIB, 64, CARD_MIB]),
        ('budget = "0.5x"', [128, CARD_MIB, 64, CARD_MIB]),
        ('limit = "1.5x"\nreport = "limit"', [384, 384, 320, 384]),
        ('limit = "128MiB"\nreport = "limit"', [128, CARD_MIB, 64, CARD_MIB]),
    ],
)
def test_a_program_is_told_what_its_file_asks_for(
    text: str, expected: list[int], tmp_path: Path
) -> None:
    (tmp_path / "pump.toml").write_text(f"[job]\n{text}\n")
    answers, said = told(tmp_path)
    assert answers == expected
    assert said.startswith("pump: everything fitted on the GPU") and said.count("\n") == 1


def test_an_option_counts_before_the_file(tmp_path: Path) -> None:
    (tmp_path / "pump.toml").write_text('[job]\nbudget = "128MiB"\n')
    assert told(tmp_path, "--budget", "192MiB")[0][0] == 192


# Runs pump-run with another file as the administrator's configuration.
BOUNDED = """
import sys
from pump.cli import run
from pump.config import layers
places, bounds = layers.places, sys.argv.pop(1)
layers.places = lambda *words: places(*words)._replace(administrator=bounds)
sys.argv[0] = "pump-run"
sys.exit(run.main())
"""
ALLOCATE = (
    PROGRAM
    + """
print(d.cuMemAlloc(64 << 20)[0].name, flush=True)
import time
from pump.control import Control
from pump.service import ServiceClient
def first(look):  # its worker and its pumpd begin beside the program
    until = time.monotonic() + 60
    while not (found := look()) and time.monotonic() < until:
        time.sleep(0.05)
    return found
(client,) = first(Control.of_job().state)
print(client.devices[0].budget_bytes >> 20, client.devices[0].emulated)
print(*(job.priority for job in first(ServiceClient.find().jobs)))
"""
)


def test_what_a_job_asks_above_the_administrators_bounds_is_brought_down_and_said(
    tmp_path: Path,
) -> None:
    (tmp_path / "admin.toml").write_text(
        '[limits]\nbudget = "50%"\nlimit = "100MiB"\npriority = 3\n'
    )
    asked = ["--budget", "90%", "--limit", "1GiB", "--priority", "9"]
    virtual = ["--virtual", "a100-pcie4", "--virtual-set", f"memory={CARD_MIB}MiB"]
    pump_run = [sys.executable, "-c", BOUNDED, tmp_path / "admin.toml"]
    socket = tmp_path / "service"
    service = subprocess.Popen([PUMP_RUN.with_name("pumpd"), "serve", "--socket", socket])
    try:
        wait_for(socket.exists, 30)
        done = subprocess.run(
            [*pump_run, *virtual, *asked, sys.executable, "-c", ALLOCATE],
            cwd=tmp_path,
            env={**os.environ, "PUMP_SERVICE": str(socket)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    finally:
        service.terminate()
        service.wait(20)
    assert done.returncode == 0, done.stderr
    free, error, budget, priority = done.stdout.splitlines()
    assert free.split()[0] == "128"
    assert error == "CUDA_ERROR_OUT_OF_MEMORY"
    assert budget == "128 True"
    assert priority == "3"
    for words in (
        "priority 9 is lowered to 3, the administrator's maximum",
        "the budget of 230 MiB is lowered to 128 MiB",
        "the limit of 1024 MiB is lowered to 100 MiB, the administrator's maximum",
        "this job's limit of 100 MiB (set by the administrator in /etc/pump/config.toml)",
    ):
        assert words in done.stderr, done.stderr


def test_a_fault_in_the_file_stops_pump_run_before_the_job(tmp_path: Path) -> None:
    (tmp_path / "pump.toml").write_text('[job]\nbudget = "128MiX"\n')
    done = subprocess.run(
        [PUMP_RUN, "touch", "it-ran"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("pump-run: pump.toml:2: job.budget: '128MiX'")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "it-ran").exists()
