"""Any system call of pump-run while it starts pumpd may fail: the command runs and prints one line.

CALLS has only calls of pump-run itself. The interpreter does not make them before pump-run's first
line.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from faults import (
    BIN,
    BOUND_S,
    FOR_GOOD,
    MEMORY_MIB,
    REFUSED,
    RESOURCES,
    WHAT_FAILS,
    Counted,
    Fault,
    Injector,
    Tally,
    faults_of,
    warnings_in,
)

from pump.control import Control, ControlError

CALLS = ("bind", "clone", "listen", "mkdir", "pidfd_open", "socket", "wait4")
SAMPLE = 6
UNSERVED_S = 8.0
THREADS = {"pump-link", "pump-in-0", "pump-out-0", "pump-mark-0"}
NEEDED = {
    *("clone3", "fcntl", "futex", "getdents64", "mmap", "openat", "pipe2", "pread64", "read"),
    *("pwrite64", "write"),
}
"""Without these calls the interpreter, the virtual driver or the program fails. Without pwrite64 no
claim of host memory is written, and the program needs more than an eighth of the headroom."""
NEEDED_BY_PUMPD = {
    *("accept4", "bind", "clone", "connect", "epoll_ctl", "epoll_wait", "ftruncate", "getsockopt"),
    *("listen", "memfd_create", "mkdir", "poll", "recvfrom", "recvmsg", "sendmsg"),
    *("sendto", "socket", "socketpair"),
}
"""Without these calls a job has no pumpd: it starts its threads and uses demand paging."""


FOUND = [Fault("pump-run", "socket", 1, errno.EMFILE)]
"""Found by campaigns: the command did not run."""


class Started:
    """Runs `pump-run brief` with its own runtime folder."""

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
        """Runs the job and its pumpd to their end."""
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
        said = warnings_in(err.splitlines())
        lasting = fault is not None and fault.many == FOR_GOOD  # pumpd and the ledger are missing
        assert len(said) <= 1 + lasting, f"too much is said: {said}"
        return counted


@pytest.fixture
def started(tools: Path, inject: Path) -> Iterator[Started]:
    with tempfile.TemporaryDirectory(prefix="pump-") as folder:  # pytest's folders are too long
        yield Started(Path(folder), tools, inject)


class Refused(NamedTuple):
    """`failed`: the number of refused calls. `said`: the lines of pump. `threads`: names of the
    job's threads. `prefetched`: whether pumpd moved blocks for the job."""

    failed: int
    said: list[str]
    threads: set[str]
    prefetched: bool


def run_refused(started: Started, calls: Sequence[str]) -> Refused:
    """Runs a job and its pumpd under a filter that refuses these calls. Ends when the job
    prefetches or after UNSERVED_S. The job converts more than an eighth of the host's headroom."""
    folder = started.folder
    threads, host = folder / "threads", folder / "proc"
    host.mkdir()
    (host / "meminfo").write_text("MemTotal: 1048576 kB\nMemAvailable: 712704 kB\n")
    more = {"BRIEF_MS": "30000", "BRIEF_THREADS": str(threads)}
    more |= {"PUMP_PROC_ROOT": str(host), "PUMP_CGROUP_ROOT": str(host)}
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    env = {**started.environment, **more}
    one = Injector(started.inject, calls, started.command, REFUSED, env=env, **pipes)
    until = time.monotonic() + UNSERVED_S
    while not (prefetched := _prefetches(folder)) and time.monotonic() < until:
        time.sleep(0.05)
    threads.touch()
    failed = one.ended().failed
    out, err = one.process.communicate(timeout=BOUND_S)
    assert (one.process.returncode, out) == (0, "right\n"), err
    assert "Traceback" not in err, err
    return Refused(failed, err.splitlines(), set(threads.read_text().split("\n")), prefetched)


def _prefetches(folder: Path) -> bool:
    for path in folder.glob("pump/*/socket"):
        with contextlib.suppress(ControlError), Control(str(path)) as control:
            return any(client.shim.get("moved_to_gpu_bytes") for client in control.state())
    return False


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
        started.run()  # removes files that earlier jobs could not remove
        assert list((started.folder / "pump").iterdir()) == []


def test_a_command_runs_whichever_call_of_pump_run_fails(started: Started) -> None:
    campaign(started, FOUND + random.Random(4).sample(own_faults(started), SAMPLE))


@pytest.mark.parametrize(
    "calls",
    [
        pytest.param(("sched_setaffinity",), id="sched_setaffinity"),
        pytest.param(RESOURCES, id="@resources"),
        pytest.param(("chmod",), id="chmod"),
    ],
)
def test_calls_that_a_filter_refuses_cost_a_job_neither_threads_nor_memory_nor_prefetches(
    started: Started, calls: Sequence[str]
) -> None:
    refused = run_refused(started, calls)
    assert refused.failed or calls == ("chmod",), "pump has no need of it"
    assert refused.threads >= THREADS and refused.prefetched, refused
    assert warnings_in(refused.said) == []


@pytest.mark.long
def test_a_command_runs_whichever_call_of_pump_run_fails_and_however(started: Started) -> None:
    campaign(started, own_faults(started))


@pytest.mark.long
@pytest.mark.parametrize("call", sorted(set(WHAT_FAILS) - NEEDED))
def test_any_call_that_a_filter_refuses_costs_a_job_what_needs_it(
    started: Started, call: str
) -> None:
    refused = run_refused(started, [call])
    assert len(refused.said) <= 3, refused.said
    needless = {"pump-link"} if call == "mkdir" else set()  # pumpd and ledger have no folder
    assert refused.threads >= THREADS - needless
    assert refused.prefetched == (call not in NEEDED_BY_PUMPD), refused
