"""Any system call of the service may fail: it answers the next visitor and leaks nothing."""

from __future__ import annotations

import contextlib
import errno
import random
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import psutil
import pytest
from faults import (
    BIN,
    FOR_GOOD,
    REFUSED,
    RESOURCES,
    WHAT_FAILS,
    Fault,
    Injector,
    Tally,
    eventually,
    faults_of,
)
from service_client import Played, closing, until

from pump.service import ServiceClient, ServiceError
from pump.wire.strict import FrameError
from pumpd.common.link import answers

SAMPLE = 30
PAUSE_S = 0.1
"""Pause between connections; a user may connect 64 times a second."""
FOUND = [
    Fault("pumpd-serve", "epoll_ctl", 1, errno.ENOSPC),
    Fault("pumpd-serve", "epoll_ctl", 3, errno.ENOMEM),
]
"""Found by campaigns: a connection that could not be watched ended the service."""


class Served:
    """Runs `pumpd serve` under the injector."""

    def __init__(
        self,
        folder: Path,
        inject: Path,
        calls: Iterable[str] = tuple(WHAT_FAILS),
        fault: Fault | None = None,
    ) -> None:
        """Starts the service. calls: calls that can fail. fault: armed from the start."""
        self.socket = folder / "service"
        self.log = folder / "log"
        words = ["--socket", str(self.socket), "--beat", "0.5", "--settle", "0.05"]
        with self.log.open("w") as log:
            self.injector = Injector(
                inject,
                calls,
                [str(BIN / "pumpd"), "serve", *words, "--log-level", "warning"],
                fault,
                stderr=log,
            )
        eventually(lambda: answers(str(self.socket)), "the service to listen")
        self.process = psutil.Process(self.injector.process.pid).children()[0]
        self.visit()
        eventually(self.comes_to_nothing, "the service to forget the visitor's job")
        time.sleep(0.1)
        self.descriptors = self.process.num_fds()

    def visit(self) -> None:
        """Plays a job that joins, reports and gets a lease; an observer queries the jobs."""
        with closing(Played(self, wanted_mib=10)) as (job,):  # type: ignore[arg-type]
            job.report()
            until(lambda: job.granted, "a grant", job)
            with ServiceClient(str(self.socket)) as client:
                assert len(client.jobs()) == 1 and client.state().jobs == 1

    def comes_to_nothing(self) -> bool:
        """Returns whether no job is listed, so that the next visitor finds the initial state."""
        with contextlib.suppress(ServiceError), ServiceClient(str(self.socket)) as client:
            return client.state().jobs == 0
        time.sleep(PAUSE_S)
        return False

    def check(self, fault: Fault) -> bool:
        time.sleep(PAUSE_S)
        self.injector.arm(fault)
        with contextlib.suppress(
            OSError, AssertionError, ServiceError, FrameError
        ):  # only the visitor may fail
            self.visit()
        failed = self.injector.counts().failed
        self.injector.arm(None)
        eventually(self.comes_to_nothing, "an answer, and no job left in the registry")
        self.visit()
        eventually(
            lambda: self.process.num_fds() <= self.descriptors,
            f"{self.descriptors} descriptors, not {self.process.num_fds()}",
        )
        assert "Traceback" not in self.log.read_text(), self.log.read_text()
        return failed > 0

    def calls(self) -> dict[tuple[str, str], int]:
        self.injector.counts()
        most: Counter[tuple[str, str]] = Counter()
        for _ in range(3):
            self.visit()
            most |= Counter(self.injector.counts().calls)
        return dict(most)

    def end(self) -> None:
        self.process.terminate()
        self.injector.ended()
        assert self.injector.process.returncode == 0
        assert not self.socket.exists()

    def close(self) -> None:
        self.injector.kill()


@pytest.fixture
def served(tmp_path: Path, inject: Path) -> Iterator[Served]:
    made = Served(tmp_path, inject)
    yield made
    made.close()


def campaign(served: Served, faults: list[Fault]) -> None:
    with Tally(faults) as tally:
        for fault in tally:
            with tally.one():
                tally.reached += served.check(fault)
            assert served.process.is_running(), "\n".join([*tally.failures, served.log.read_text()])
    served.end()


def test_the_service_answers_whichever_of_its_calls_fails(served: Served) -> None:
    faults = [fault for fault in faults_of(served.calls(), 6) if fault.many != FOR_GOOD]
    campaign(served, FOUND + random.Random(3).sample(faults, SAMPLE))


@pytest.mark.parametrize("calls", [RESOURCES, ("chmod",)], ids=["@resources", "chmod"])
def test_the_service_serves_where_a_filter_refuses_what_it_can_do_without(
    tmp_path: Path, inject: Path, calls: tuple[str, ...]
) -> None:
    served = Served(tmp_path, inject, calls, REFUSED)  # a visitor already got its lease here
    try:
        (line,) = served.log.read_text().splitlines()
        assert line.endswith("until SIGTERM")
        served.end()
    finally:
        served.close()


@pytest.mark.long
def test_the_service_answers_whichever_of_its_calls_fails_and_however(served: Served) -> None:
    campaign(served, faults_of(served.calls(), 30))
