"""Any system call by which pump-run starts pumpd may fail: the command runs, and hears one line.

What Python's interpreter calls before pump-run's first line is its own: CALLS are those that
only pump-run makes.
"""

from __future__ import annotations

import errno
import os
import random
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from faults import BIN, BOUND_S, FOR_GOOD, MEMORY_MIB, Counted, Fault, Injector, Tally, faults_of

CALLS = ("bind", "chmod", "clone", "listen", "mkdir", "pidfd_open", "socket", "wait4")
SAMPLE = 6
FOUND = [Fault("pump-run", "socket", 1, errno.EMFILE)]
"""What campaigns have found: the command did not run."""


class Started:
    """`pump-run brief`, with a runtime folder of its own."""

    def __init__(self, folder: Path, tools: Path, inject: Path) -> None:
        self.inject = inject
        self.folder = folder
        settings = [f"device.memory_bytes={MEMORY_MIB << 20}", "mode=compute"]
        virtual = [word for setting in settings for word in ("--virtual-set", setting)]
        run = [str(BIN / "pump-run"), "--virtual", "a100-pcie4", *virtual, "--"]
        self.command = [*run, str(tools / "brief"), "short"]
        self.environment: Mapping[str, str] = {
            **os.environ,
            "BRIEF_MS": "0",
            "PUMP_SERVICE": "none",
            "PUMP_VIRTUAL_KERNELS": str(tools / "mix_kernels.so"),
            "XDG_RUNTIME_DIR": str(folder),
        }

    def run(self, fault: Fault | None = None) -> Counted:
        """To the end of the job and of its pumpd."""
        one = Injector(
            self.inject,
            CALLS,
            self.command,
            fault,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        counted = one.ended()
        out, err = one.process.communicate(timeout=BOUND_S)
        assert (one.process.returncode, out) == (0, "right\n"), err
        said = [line for line in err.splitlines() if "peak " not in line]
        lasting = fault is not None and fault.many == FOR_GOOD  # pumpd is missing, and the ledger
        assert len(said) <= 1 + lasting, f"too much is said: {said}"
        return counted


@pytest.fixture
def started(tools: Path, inject: Path) -> Iterator[Started]:
    with tempfile.TemporaryDirectory(prefix="pump-") as folder:  # pytest's are too long for sockets
        yield Started(Path(folder), tools, inject)


def own_faults(started: Started) -> list[Fault]:
    calls = {key: times for key, times in started.run().calls.items() if key[0] == "pump-run"}
    assert {call for _, call in calls} == set(CALLS), (
        "pump-run calls others: bring CALLS up to date"
    )
    return faults_of(calls)


def campaign(started: Started, faults: list[Fault]) -> None:
    with Tally(faults) as tally:
        for fault in tally:
            with tally.one():
                tally.reached += started.run(fault).failed > 0
        started.run()  # which sweeps what another could not remove
        assert list((started.folder / "pump").iterdir()) == []


def test_a_command_runs_whichever_call_of_pump_run_fails(started: Started) -> None:
    campaign(started, FOUND + random.Random(4).sample(own_faults(started), SAMPLE))


@pytest.mark.long
def test_a_command_runs_whichever_call_of_pump_run_fails_and_however(started: Started) -> None:
    campaign(started, own_faults(started))
