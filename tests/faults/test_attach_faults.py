"""Any system call of pump inside a job may fail: the job is right, ends and prints one line."""

from __future__ import annotations

import errno
import random
import re
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from faults import (
    BOUND_S,
    FOR_GOOD,
    MEMORY_MIB,
    WHAT_FAILS,
    Counted,
    Fault,
    Injector,
    Tally,
    eventually,
    faults_of,
    warnings_in,
    workers_of,
)

CALLS = [*WHAT_FAILS, "getpriority"]
PROGRAM = "brief"
"""New threads also have the program's name until they get their own."""
SAMPLE = 24
FOUND = [
    Fault(f"pump-{kind}-0", "mmap", 1, errno.ENOMEM, FOR_GOOD) for kind in ("in", "out", "mark")
]
"""Found by campaigns: without memory for a thread's driver data, the process ended."""
LINK = "pump-link"
DIFFERENT_MOST = 3
"""Things that can be missing after lasting failures: pumpd, the ledger, the limit."""


class Outcome(NamedTuple):
    """end: status, output and the program's stderr. pumps: the lines of pump."""

    end: tuple[int, str, tuple[str, ...]]
    pumps: list[str]


RIGHT = (0, "right\n", ())


class Attached:
    """Runs the job again and again under one pumpd."""

    def __init__(
        self, inject: Path, tools: Path, environment: dict[str, str], ledger: Path
    ) -> None:
        self.inject = inject
        self.ledger = ledger
        self.command = [str(tools / PROGRAM), "short"]
        self.environment = environment | {"BRIEF_MS": "60", "PUMP_LEDGER": str(ledger)}
        self._without: dict[tuple[str, int], set[Any]] = {}

    def run(self, fault: Fault | None = None, **environ: str) -> tuple[Counted, Outcome]:
        one = Injector(
            self.inject,
            CALLS,
            self.command,
            fault,
            env=self.environment | environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        counted = one.ended()
        out, err = one.process.communicate(timeout=BOUND_S)
        err = re.sub("PUMP_VIRTUAL_KERNELS: [^ ]*: [^ ]*", "PUMP_VIRTUAL_KERNELS", err)
        lines = [re.sub(r"\d{2,}", "N", line) for line in err.splitlines()]
        own = tuple(line for line in lines if not line.startswith("pump: "))
        pumps = [line for line in lines if line.startswith("pump: ")]
        return counted, Outcome((one.process.returncode, out, own), pumps)

    def run_without_pump(self, fault: Fault | None = None) -> tuple[Counted, Outcome]:
        """Runs the job on a GPU with enough memory."""
        profile = self.environment["PUMP_VIRTUAL_PROFILE"]
        small, roomy = f"memory_bytes={MEMORY_MIB << 20}", f"memory_bytes={64 << 20}"
        return self.run(fault, LD_PRELOAD="", PUMP_VIRTUAL_PROFILE=profile.replace(small, roomy))

    def without_pump(self, call: str, error: int) -> set[Any]:
        """Returns the outcomes of the program when one of its own calls fails."""
        if (call, error) not in self._without:
            own = self.run_without_pump()[0].calls.get((PROGRAM, call), 0)
            faults = faults_of({(PROGRAM, call): own})
            self._without[call, error] = {
                self.run_without_pump(fault)[1].end for fault in faults if fault.error == error
            }
            if error == errno.ENOMEM:  # without memory for its tables pump disables itself
                self._without[call, error].add(self.run(LD_PRELOAD="")[1].end)
        return self._without[call, error]

    def calls(self) -> dict[tuple[str, str], int]:
        """Returns the job's calls under pump; no single run makes all of them."""
        most: Counter[tuple[str, str]] = Counter()
        for _ in range(3):
            counted, outcome = self.run()
            assert outcome.end == RIGHT, outcome
            most |= Counter(counted.calls)
        return dict(most)

    def check(self, fault: Fault) -> bool:
        """Raises AssertionError unless the job behaves as without pump; returns whether the fault
        occurred."""
        counted, outcome = self.run(fault)
        if outcome.end != RIGHT:
            assert fault.task == PROGRAM, outcome
            assert outcome.end in self.without_pump(fault.call, fault.error), outcome
        said = warnings_in(outcome.pumps)
        assert len(said) == len(set(said)), "a line is said twice"
        # Without its thread the link also keeps no ledger: two things are missing.
        several = fault.many != 1 or any(LINK in line for line in said)
        assert len(said) <= (DIFFERENT_MOST if several else 1), f"too much is said: {said}"
        return counted.failed > 0


@pytest.fixture(scope="module")
def attached(
    inject: Path,
    tools: Path,
    job_environment: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Attached:
    return Attached(inject, tools, job_environment, tmp_path_factory.mktemp("ledger"))


def campaign(attached: Attached, faults: list[Fault]) -> None:
    with Tally(faults) as tally:
        for fault in tally:
            with tally.one():
                tally.reached += attached.check(fault)
    attached.run()  # removes the claims of jobs that could not remove their own
    assert list(attached.ledger.glob("*/[0-9]*")) == [], "entries of processes that are gone"
    socket = attached.environment["PUMP_SOCKET"]
    eventually(lambda: not workers_of(socket), "no worker to be left")


def test_a_job_is_right_whichever_call_of_its_attach_fails(attached: Attached) -> None:
    faults = faults_of(attached.calls(), 40)
    campaign(attached, 3 * FOUND + random.Random(1).sample(faults, SAMPLE))  # names appear late


@pytest.mark.long
def test_a_job_is_right_whichever_call_fails_with_whatever_error(attached: Attached) -> None:
    campaign(attached, faults_of(attached.calls(), 100))
