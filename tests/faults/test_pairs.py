"""One of a pair of pump's processes is killed, stopped or slow while a job waits for its turn: the
job continues within the bound, and its result is right.

The jobs of this file wait at the same time, each with its own pumpd and a service that the test
plays. The service makes a job wait and gives it a turn only if a process is slow. For processes
that answer queries see tests/unit/pump/cli/test_silent_servers.py, for NVML's process
test_service_cards.py, for `pumpd jobs` tests/endtoend/enabled.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest
from faults import BIN, BOUND_S, eventually, workers_of

from pump.control import Control, ControlError
from pump.wire import control
from pump.wire import service as wire
from pumpd.common.link import answers
from pumpd.lease.lease_client import SILENT_S
from pumpd.lease.rounds import HOLD_MS, HOLD_ROUND_S

BY_CLOCK_S = control.HOLD_MS_MOST / 1000
"""A hold that is not renewed ends after this time (PUMP_HOLD_MOST_NS)."""
BY_SILENCE_S = HOLD_ROUND_S + SILENT_S
"""pumpd stops holding the job this long after the service's last answer."""
TURN_S = 1.0
"""A job with a slow pumpd gets its turn after this time."""
BUSY_S = 4.0
"""Extra time for a busy machine."""
RECORDER_S, RECORDED_S = 4.0, 3.0
"""A recorded program waits at most this long at its first cuInit and at its end (limits.h)."""
HOWS = ("killed", "stopped", "slow")
STOPPED_S, RUNS_S = 0.3, 0.03
"""A slow process alternates between stops and runs of this length."""
BOUNDS_S = {
    **{("worker", how): BY_CLOCK_S for how in HOWS},
    **{("pumpd", how): BY_CLOCK_S + (TURN_S if how == "slow" else 0.0) for how in HOWS},
    **{("service", how): BY_SILENCE_S for how in HOWS},
}


class PlayedService(threading.Thread):
    """Makes each job wait until `turn` is set; delays each answer by `late_s`."""

    def __init__(self, path: Path) -> None:
        super().__init__(daemon=True)
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(str(path))
        self.listener.listen(4)
        self.turn = threading.Event()
        self.ends = threading.Event()
        self.late_s = 0.0
        self.start()

    def run(self) -> None:
        with self.listener:
            job, _ = self.listener.accept()
        with job, contextlib.suppress(OSError):
            assert wire.check_hello(job.recv(64)) == (wire.OK, wire.VERSION)
            job.send(wire.pack_welcome(wire.OK, wire.VERSION))
            self._serve(job)

    def _serve(self, job: socket.socket) -> None:
        grant = wire.Grant(0, 2000)
        gpus: list[tuple[str, int]] = []
        while not self.ends.wait(self.late_s):
            if not select.select([job], [], [], 0.02)[0]:
                continue
            if not (data := job.recv(wire.FRAME_BYTES)):
                return
            said = wire.decode(data, wire.FROM_CLIENTS)
            if isinstance(said, wire.Report):
                gpus = [(gpu.gpu, gpu.usable_bytes) for gpu in said.gpus]
            waits = not self.turn.is_set()
            if gpus and grant.number < 2 - waits:
                told = tuple(wire.GpuGrant(*gpu, waits=waits) for gpu in gpus)
                grant = wire.Grant(2 - waits, 2000, told)
                job.send(wire.encode(grant))
            elif isinstance(said, wire.Join | wire.Beat):
                job.send(wire.encode(grant))


class Outcome(NamedTuple):
    """The outcome of a job after something happened to one of its processes."""

    went_on_s: float
    status: int
    out: str
    err: str
    log: str


class Scene:
    """A pumpd with one job, which runs until its file exists."""

    def __init__(
        self,
        folder: Path,
        tools: Path,
        environment: dict[str, str],
        *,
        serves: bool = False,
        records: bool = False,
    ) -> None:
        folder.mkdir()
        self.folder = folder
        self.socket = str(folder / "job")
        self.program = tools / "brief"
        own = {"PUMP_SOCKET": self.socket, "BRIEF_UNTIL": str(folder / "until")}
        words = ["--log-level", "info", "--log-file", str(folder / "log")]
        words += ["--socket", self.socket, "--job-pid", str(os.getpid())]
        self.service = None
        if serves:
            self.service = PlayedService(folder / "service")
            words += ["--service", str(folder / "service")]
        if records:
            own["PUMP_RECORD"] = str(folder / "recording")
            words += ["--record", str(folder / "recording")]
        self.environment = environment | own
        self.pumpd = subprocess.Popen([BIN / "pumpd", "job", *words], stderr=subprocess.DEVNULL)
        eventually(lambda: answers(self.socket), "pumpd to listen")
        self.job: subprocess.Popen[str] | None = None

    def start(self) -> None:
        self.job = subprocess.Popen(
            [
                "sh",
                "-c",
                'PUMP_JOB_PID=$$ exec "$0" short',
                self.program,
            ],  # the job's first process
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def held(self) -> bool:
        """Returns whether the job is held."""
        assert self.job is not None and self.job.poll() is None
        with contextlib.suppress(ControlError), Control.of_job(self.socket) as there:
            return any(one.held_threads for client in there.state() for one in client.devices)
        return False

    def hold(self) -> None:
        """Holds the job once, as a service's grant would."""

        def is_held() -> bool:
            with Control.of_job(self.socket) as there:
                if any(client.devices for client in there.state()):
                    there._ask(control.Request(control.SET, device=0, hold_ms=HOLD_MS))
            return self.held()

        eventually(is_held, "the job to be held", BOUND_S)

    def ends_after(self, happens: Callable[[], None]) -> Outcome:
        """Lets a held job end, calls `happens`, and returns how the job continued."""
        (self.folder / "until").touch()
        begin = time.monotonic()
        happens()
        assert self.job is not None
        out, err = self.job.communicate(timeout=BOUND_S)
        went_on_s = time.monotonic() - begin
        log = self.folder / "log"
        return Outcome(went_on_s, self.job.returncode, out, err, log.read_text())

    def close(self) -> None:
        """Ends all processes and checks that no worker is left."""
        if self.service is not None:
            self.service.ends.set()
        if self.job is not None:
            self.job.kill()
            self.job.communicate()
        for one in (*workers_of(self.socket), psutil.Process(self.pumpd.pid)):
            with contextlib.suppress(psutil.Error):
                one.resume()
        self.pumpd.terminate()
        self.pumpd.wait(BOUND_S)
        eventually(lambda: not workers_of(self.socket), "no worker of an ended job")


@contextlib.contextmanager
def slowed(pid: int) -> Iterator[None]:
    """Slows the process down to a tenth of its speed inside the context."""
    ends = threading.Event()

    def slow() -> None:
        with contextlib.suppress(ProcessLookupError):
            while not ends.wait(RUNS_S):
                os.kill(pid, signal.SIGSTOP)
                ends.wait(STOPPED_S)
                os.kill(pid, signal.SIGCONT)

    thread = threading.Thread(target=slow)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()


def happens_to(pid: int, how: str, stack: contextlib.ExitStack) -> None:
    if how == "slow":
        stack.enter_context(slowed(pid))
    else:
        os.kill(pid, signal.SIGKILL if how == "killed" else signal.SIGSTOP)


def happens(scene: Scene, victim: str, how: str, stack: contextlib.ExitStack) -> None:
    service = scene.service
    if victim == "worker":
        (worker,) = workers_of(scene.socket)
        happens_to(worker.pid, how, stack)
    elif victim == "pumpd":
        assert service is not None
        happens_to(scene.pumpd.pid, how, stack)
        if how == "slow":
            time.sleep(TURN_S)
            service.turn.set()
    else:
        assert service is not None
        service.late_s = {"killed": 0.0, "stopped": 2 * BOUND_S, "slow": 1.5 * SILENT_S}[how]
        if how == "killed":
            service.ends.set()


def played(pair: tuple[str, str], folder: Path, **surroundings: Any) -> Outcome:
    victim, how = pair
    scene = Scene(folder / f"{victim}-{how}", serves=victim != "worker", **surroundings)
    try:
        scene.start()
        if victim == "worker":
            scene.hold()
        else:
            eventually(scene.held, "the job to wait for its turn", BOUND_S)
        with contextlib.ExitStack() as stack:
            return scene.ends_after(lambda: happens(scene, victim, how, stack))
    finally:
        scene.close()


@pytest.fixture(scope="module")
def outcomes(
    tools: Path, job_environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[tuple[str, str], Future[Outcome]]]:
    folder = tmp_path_factory.mktemp("pairs")
    with ThreadPoolExecutor(len(BOUNDS_S)) as pool:
        yield {
            pair: pool.submit(played, pair, folder, tools=tools, environment=job_environment)
            for pair in BOUNDS_S
        }


@pytest.mark.parametrize(("victim", "how"), BOUNDS_S)
def test_a_job_that_waits_goes_on_within_the_bound(
    outcomes: dict[tuple[str, str], Future[Outcome]], victim: str, how: str
) -> None:
    outcome = outcomes[victim, how].result()
    assert (outcome.status, outcome.out) == (0, "right\n"), outcome
    assert outcome.went_on_s < BOUNDS_S[victim, how] + BUSY_S, outcome
    assert "x the budget" in outcome.err, outcome.err
    assert len(outcome.err.splitlines()) <= 2, outcome.err
    silent = "no answer from the service for 2 s" in outcome.log
    assert silent == (victim == "service" and how != "killed"), outcome.log


def recorded(victim: str, folder: Path, **surroundings: Any) -> Outcome:
    """Runs a job. Stops its pumpd before the job's start, or its worker before the end."""
    scene = Scene(folder / victim, records=True, **surroundings)

    def is_served() -> bool:
        with Control.of_job(scene.socket) as there:
            return any(client.devices for client in there.state())

    try:
        if victim == "pumpd":
            os.kill(scene.pumpd.pid, signal.SIGSTOP)
            return scene.ends_after(scene.start)
        scene.start()
        eventually(is_served, "a worker that records", BOUND_S)
        return scene.ends_after(workers_of(scene.socket)[0].suspend)
    finally:
        scene.close()


def test_a_recorded_job_waits_for_a_stopped_pumpd_or_worker_for_seconds_only(
    tools: Path, job_environment: dict[str, str], tmp_path: Path
) -> None:
    with ThreadPoolExecutor(2) as pool:
        start, end = (
            pool.submit(recorded, victim, tmp_path, tools=tools, environment=job_environment)
            for victim in ("pumpd", "worker")
        )
    for outcome, bound_s in ((start.result(), RECORDER_S), (end.result(), RECORDED_S)):
        assert (outcome.status, outcome.out) == (0, "right\n"), outcome
        assert outcome.went_on_s < bound_s + BUSY_S, outcome
    assert "recorded nothing to" in start.result().err
    assert "no pumpd answers at" in start.result().err
    assert "is not complete yet" in end.result().err
