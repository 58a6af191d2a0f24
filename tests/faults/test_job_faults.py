"""Any system call of a job's pumpd or its recorder may fail: the job does not notice.

One pumpd serves one job after another, each with another fault. So leaks of descriptors, processes
and dead connections add up.
"""

from __future__ import annotations

import contextlib
import errno
import json
import random
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from faults import (
    BIN,
    BOUND_S,
    FOR_GOOD,
    WHAT_FAILS,
    Fault,
    Injector,
    Tally,
    eventually,
    faults_of,
    named,
    workers_of,
)

from pump.control import Control, ControlError
from pump.trace.format import TraceError
from pump.trace.info import summary
from pumpd.common.link import answers

SAMPLE = 10
FOUND = [
    Fault("pumpd", "epoll_ctl", 1, errno.ENOSPC),  # an unwatched client: pumpd ended
    Fault("pumpd", "epoll_ctl", 3, errno.ENOMEM),  # an unwatched worker: pumpd did not end
    Fault("pumpd-worker", "clone3", 1, errno.EAGAIN),  # no thread for the recording: no worker
    Fault("pumpd-worker", "clone3", 2, errno.EAGAIN),  # no thread for requests: no worker
    Fault("pumpd-worker", "mmap", 10, errno.ENOMEM),  # no memory for the first line of a thread:
    Fault("pumpd-worker", "mmap", 22, errno.ENOMEM),  # its worker waited for it forever
    Fault("pumpd-worker", "write", 3, errno.ENOSPC, FOR_GOOD),  # a lost last message
]
"""Found by campaigns: pumpd ended, the job's last process could not end pumpd, or a client claimed
to be recorded although the disk was full."""
DETAILS = re.compile(
    r"pump: (recorded \d|time lost|.* waited for a CPU core: |memory: |hit rate|the worker"
    r"|.* the budget)"
)
"""Lines that do not report a fault."""
RECORDED = re.compile(r"recorded (\d+) operations to (\S+)$", re.MULTILINE)


class Daemon:
    """Runs a recorded job's pumpd under the injector, with a service and clients of the job."""

    def __init__(
        self, folder: Path, tools: Path, inject: Path, environment: dict[str, str]
    ) -> None:
        self.folder = folder
        self.inject = inject
        self.program = [str(tools / "brief"), "short"]
        self.socket = folder / "socket"
        self.log = folder / "log"
        self.summary = folder / "summary"
        self.record = folder / "recording"
        self.environment = environment | {
            "BRIEF_MS": "40",
            "PUMP_SOCKET": str(self.socket),
            "PUMP_RECORD": str(self.record),
            "PUMP_SUMMARY": str(self.summary),
            "PUMP_LOG_LEVEL": "info",
        }
        self.service = subprocess.Popen(
            [str(BIN / "pumpd"), "serve", "--socket", str(folder / "service"), "--beat", "0.2"],
            stderr=subprocess.DEVNULL,
        )
        eventually(lambda: answers(str(folder / "service")), "the service to listen")
        self.start()

    def start(self) -> None:
        self.log.write_text("")
        self.holder = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
        job = ["--job-pid", str(self.holder.pid), "--record", str(self.record)]
        log = ["--log-file", str(self.log), "--log-level", "info"]
        where = ["--socket", str(self.socket), "--service", str(self.folder / "service")]
        with (self.folder / "errors").open("w") as errors:
            self.pumpd = Injector(
                self.inject,
                WHAT_FAILS,
                [str(BIN / "pumpd"), "job", *where, *job, *log],
                stderr=errors,
            )
        for line in ("is ready after", "attached to the service"):
            eventually(lambda: line in self.log.read_text(), line)  # noqa: B023
        self.run()
        self.descriptors = self.count_descriptors()

    def end(self) -> None:
        """Ends the job; pumpd and all its descendants must exit."""
        assert self.holder.stdin is not None
        self.holder.stdin.close()
        self.holder.wait(BOUND_S)
        self.pumpd.ended()
        assert (self.folder / "errors").read_text() == ""
        assert not self.socket.exists()

    def stop(self) -> None:
        """Kills pumpd and the job in any state."""
        self.pumpd.kill()
        self.holder.kill()
        self.holder.communicate()
        self.socket.unlink(missing_ok=True)

    def close(self) -> None:
        self.stop()
        self.service.kill()
        self.service.wait()

    def count_descriptors(self) -> int:
        (supervisor,) = named("pumpd", str(self.socket))
        with contextlib.suppress(psutil.NoSuchProcess):
            return supervisor.num_fds()
        return -1

    def run(self) -> str:
        """Runs one client of the job, queries its state and returns its stderr."""
        self.summary.unlink(missing_ok=True)
        with subprocess.Popen(
            self.program,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as job:
            with contextlib.suppress(ControlError), Control.of_job(str(self.socket)) as control:
                control.state()
            out, err = job.communicate(timeout=BOUND_S)
        assert (job.returncode, out) == (0, "right\n"), err
        eventually(lambda: not workers_of(str(self.socket)), "the worker's end")
        return err

    @property
    def served(self) -> bool:
        return json.loads(self.summary.read_text())["shim"]["attaches"] > 0

    def check(self, fault: Fault) -> bool:
        begin = self.log.stat().st_size
        self.pumpd.arm(fault)
        err = self.run()
        failed = self.pumpd.counts().failed
        self.pumpd.arm(None)
        said = [line for line in err.splitlines() if not DETAILS.match(line)]
        assert len(said) == len(set(said)) <= 2, f"too much is said: {said}"
        assert self.served or said, "nothing says that the job was not served"
        for count, file in RECORDED.findall(err):
            found = self.recorded(file)
            assert found == ("complete", int(count)), f"{file}: {found}"
        eventually(lambda: self.run() != "" and self.served, "a client that is served again")
        logged = self.log.read_text()[begin:]
        assert "Traceback" not in logged, logged
        eventually(
            lambda: self.count_descriptors() <= self.descriptors,
            f"{self.descriptors} descriptors, not {self.count_descriptors()}",
        )
        if "warm process ended" in logged:  # the next one starts later each time
            self.end()
            self.start()
        return failed > 0

    @staticmethod
    def recorded(file: str) -> tuple[str, int]:
        """Returns the state of a recording and its number of operations."""
        try:
            found = summary(file)
        except TraceError as error:
            return str(error), 0
        return found["state"], found["operations"]

    def calls(self) -> dict[tuple[str, str], int]:
        self.pumpd.counts()
        most: Counter[tuple[str, str]] = Counter()
        for _ in range(3):
            self.run()
            most |= Counter(self.pumpd.counts().calls)
        return dict(most)


@pytest.fixture
def daemon(
    tmp_path: Path, tools: Path, inject: Path, job_environment: dict[str, str]
) -> Iterator[Daemon]:
    made = Daemon(tmp_path, tools, inject, job_environment)
    yield made
    made.close()


def campaign(daemon: Daemon, faults: list[Fault]) -> None:
    with Tally(faults) as tally:
        for fault in tally:
            with tally.one():
                tally.reached += daemon.check(fault)
            if tally.failed_now:  # leaks of this fault must not count against the next
                daemon.stop()
                daemon.start()
    daemon.end()


def test_a_job_is_right_whichever_call_of_its_pumpd_fails(daemon: Daemon) -> None:
    faults = [fault for fault in faults_of(daemon.calls(), 8) if fault.many != FOR_GOOD]
    campaign(daemon, FOUND + random.Random(2).sample(faults, SAMPLE))


@pytest.mark.long
def test_a_job_is_right_whichever_call_of_its_pumpd_fails_and_however(daemon: Daemon) -> None:
    campaign(daemon, faults_of(daemon.calls(), 30))
