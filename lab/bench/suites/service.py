"""Service: the cost of `pumpd serve`, and how fast it answers, with 64 clients.

DESIGN
  The service is a separate process. The clients are in this process: connections that join, report
  and beat like jobs' pumpds. Its CPU time is the kernel's count, its memory the proportional set
  size. Restart, and the cost of a job, are measured with real jobs that share a virtual GPU
  (service_jobs.py).

    `service.latency_ms`   Time of a question, while 64 clients report. The row has p99 and max.
    `service.lease_ms`     Time from a newcomer's report to its first grant, among 64 clients.
    `service.idle_cpu`     Share of one CPU core with 64 clients that only beat.
    `service.pss_mib`      Memory with 64 clients. The row has the largest process of each kind of
                           the 16 jobs.
    `service.renewed_s`    Time from the restart of a killed service until all 16 jobs have their
                           leases again.
    `service.top_cpu`      Share of one CPU core that `pump top` takes with the 16 jobs.
    `service.pump_run`     Time of `pump-run true` with a service / without.
    `service.flood`        99th percentile of a question's time in ms, while three users report as
                           fast as they may from 250 jobs of 16 GPUs each. Only root can be three
                           users.
"""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness import (
    MeasurementError,
    Options,
    Row,
    compared,
    host_kernels,
    interval,
    median,
    paired,
    percentile,
)
from study.service_jobs import Jobs, cpu_s, pss_mib

CLIENTS = 64
MIB = 1 << 20
GPU = "5e" * 16
TIMEOUT_S = 30.0
FLOOD = Path(__file__).parents[1] / "load_generators" / "service_flood.py"
FLOODERS = 29001, 29002, 29003
"""Ids of users that do not exist."""


class Client:
    """A job's end of its connection to the service."""

    def __init__(self, path: Path) -> None:
        from pump.wire import service as wire

        self._wire = wire
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(TIMEOUT_S)
        self.socket.connect(str(path))
        self.socket.send(wire.pack_hello())
        wire.check_welcome(self.socket.recv(64))
        self.socket.send(wire.encode(wire.Join()))
        self.grant = self._take()

    def _take(self) -> Any:
        """Returns the service's next message; stores a grant."""
        message = self._wire.decode(
            self.socket.recv(self._wire.REPLY_BYTES), self._wire.FROM_SERVICE
        )
        if isinstance(message, self._wire.Refused):
            raise MeasurementError(f"the service closed the connection: {message.reason}")
        if isinstance(message, self._wire.Grant):
            self.grant = message
        return message

    def report(self, wanted_mib: int) -> None:
        wire = self._wire
        adopted = self.grant.gpus[0].budget_bytes if self.grant.gpus else 8 * MIB
        bytes_ = (40 << 10) * MIB, (39 << 10) * MIB, wanted_mib * MIB, adopted, 8 * MIB
        gpus = (wire.GpuReport(GPU, *bytes_, 1000),)
        self.socket.send(wire.encode(wire.Report(self.grant.number, 1, 0, 0, gpus)))

    def beat(self) -> None:
        self.socket.send(self._wire.encode(self._wire.Beat()))

    def ask(self) -> float:
        """Returns the seconds until the answer to a question."""
        begin = time.perf_counter()
        self.socket.send(self._wire.encode(self._wire.AskService()))
        while not isinstance(self._take(), self._wire.ServiceState):
            pass  # a grant
        return time.perf_counter() - begin

    def drain(self) -> bool:
        """Takes all waiting messages; returns whether there were any."""
        heard = False
        while select.select([self.socket], [], [], 0)[0]:
            self._take()
            heard = True
        return heard


class Service:
    """`pumpd serve` on a socket in `folder`."""

    def __init__(self, python: str, folder: Path, name: str = "service") -> None:
        self.path = folder / name
        self.python = python
        self._command = [python, "-m", "pumpd", "serve", "--socket", str(self.path)]
        self._command += ["--config", str(folder / "none.toml"), "--settle", "0.1"]
        self._command += ["--open"] if os.geteuid() == 0 else []
        self.start_daemon()

    def start_daemon(self) -> None:
        self.process = subprocess.Popen(self._command)
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
                if probe.connect_ex(str(self.path)) == 0:
                    return
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise MeasurementError("pumpd serve does not begin")
            time.sleep(0.005)

    def kill_daemon(self) -> None:
        self.process.kill()
        self.process.wait()


def latency(clients: list[Client], seconds: float) -> list[float]:
    """Lets each client report and ask about once a second, like 64 jobs; returns ms."""
    found: list[float] = []
    end = time.monotonic() + seconds
    turn = 0
    while time.monotonic() < end:
        begin = time.monotonic()
        client = clients[turn % len(clients)]
        client.drain()
        client.report(100 + turn % 7 * 40)
        found.append(client.ask())
        turn += 1
        time.sleep(max(0.0, begin + 1 / len(clients) - time.monotonic()))
    return [1e3 * value for value in found]


def flood(python: str, folder: Path, quick: bool) -> Row:
    """Runs a separate service with three users at their limits; times the questions of a job."""
    name, unit = "service.flood", "ms"
    if os.geteuid() != 0:
        return Row(name, None, unit, why="only root can be three users")
    folder.chmod(0o711)
    jobs, seconds = (20, 2.0) if quick else (250, 20.0)
    service = Service(python, folder, "flooded")
    words = [
        "nice",
        "-n",
        "19",
        python,
        str(FLOOD),
        str(service.path),
        str(jobs),
        str(seconds + TIMEOUT_S),
    ]
    floods = []
    try:
        for user in FLOODERS:
            floods.append(
                subprocess.Popen(
                    words, stdout=subprocess.PIPE, user=user, group=user, extra_groups=[]
                )
            )
        for one in floods:
            assert one.stdout is not None
            if one.stdout.readline() != b"ready\n":
                return Row(name, None, unit, why="other users cannot run this Python")
        client, answers = Client(service.path), []
        client.report(100)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            answers.append(1e3 * client.ask())
            time.sleep(0.02)
        more = {"median": median(answers), "max": max(answers), "users": len(FLOODERS)}
        return Row(name, percentile(answers, 99), unit, jobs=jobs, **more)
    finally:
        for one in floods:
            one.kill()
            one.wait()
        service.kill_daemon()


def newcomer(path: Path) -> float:
    """Returns the milliseconds until a newcomer has its first grant."""
    client = Client(path)
    begin = time.perf_counter()
    client.report(500)
    if not select.select([client.socket], [], [], TIMEOUT_S)[0]:
        raise MeasurementError("no grant for a newcomer")
    took = time.perf_counter() - begin
    client.socket.close()
    return 1e3 * took


def idle_cpu(service: Service, clients: list[Client], seconds: float) -> float:
    """Returns the share of one CPU core while clients beat at the default rate."""
    for _ in range(3):  # lets the clients use their grants
        for client in clients:
            client.drain()
            client.report(100)
        time.sleep(0.3)
    rate = len(clients) * 0.3  # lease_s is 10 s, and there are three beats in that time
    pid = service.process.pid
    before, begin, turn = cpu_s(pid), time.monotonic(), 0
    while time.monotonic() < begin + seconds:
        client = clients[turn % len(clients)]
        client.report(100) if client.drain() else client.beat()
        turn += 1
        time.sleep(max(0.0, begin + turn / rate - time.monotonic()))
    return (cpu_s(pid) - before) / (time.monotonic() - begin)


def renewed(service: Service, jobs: Jobs, restarts: int) -> list[float]:
    """Returns, by restart, the seconds from it until all jobs have their leases again."""
    found = []
    for _ in range(restarts):
        service.kill_daemon()
        time.sleep(0.5)
        service.start_daemon()
        found.append(jobs.wait_for_all())
    return found


def pump_run_s(options: Options, service: str) -> float:
    """Returns the seconds that `pump-run true` takes."""
    environ = os.environ | {"PUMP_SERVICE": service}
    command = [options.tools.pump_run, "--virtual", "a100-pcie4", "--", "true"]
    begin = time.perf_counter()
    subprocess.run(command, env=environ, check=True, timeout=TIMEOUT_S)
    return time.perf_counter() - begin


def names(pss: dict[str, float]) -> dict[str, float]:
    """Returns keys of a row, by kind of process: pumpd, pumpd_warm, pumpd_worker."""
    return {f"{name.replace('-', '_')}_mib": value for name, value in sorted(pss.items())}


def run(options: Options) -> Iterator[Row]:
    """Yields the results of one service, in the order of the list above."""
    seconds = 2.0 if options.quick else 20.0
    kernels = host_kernels()
    with tempfile.TemporaryDirectory(prefix="pump-b-") as folder:
        service = Service(options.tools.python or sys.executable, Path(folder))
        try:
            clients = [Client(service.path) for _ in range(CLIENTS)]
            answers = latency(clients, seconds)
            yield Row(
                "service.latency_ms",
                median(answers),
                "ms",
                interval=interval(answers),
                p99=percentile(answers, 99),
                max=max(answers),
                clients=CLIENTS,
            )
            grants = [newcomer(service.path) for _ in range(3 if options.quick else 30)]
            yield Row("service.lease_ms", median(grants), "ms", interval=interval(grants))
            share = idle_cpu(service, clients, seconds)
            yield Row("service.idle_cpu", share, "of a processor", clients=CLIENTS)
            own = pss_mib(service.process.pid)
            for client in clients:
                client.socket.close()
            with Jobs(options, kernels, Path(folder), service.path) as jobs:
                jobs.wait_for_all()
                pss = jobs.pss_mib()
                yield Row("service.pss_mib", own, "MiB", clients=CLIENTS, **names(pss))
                took = renewed(service, jobs, 1 if options.quick else 5)
                yield Row("service.renewed_s", max(took), "s", jobs=jobs.count, restarts=len(took))
                share = jobs.top_cpu(seconds / 2)
                yield Row("service.top_cpu", share, "of a processor", jobs=jobs.count)
            compared_ = paired(
                lambda: pump_run_s(options, str(service.path)),
                lambda: pump_run_s(options, "none"),
                options.pairs,
                1,
            )
            yield compared("service.pump_run", compared_, "ratio", baseline="without a service")
            yield flood(service.python, Path(folder), options.quick)
        finally:
            service.kill_daemon()
