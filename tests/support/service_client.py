"""For the service's tests: a service as a separate process, and jobs played in Python."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from supervisor_client import eventually

from pump.service import ServiceClient
from pump.wire import service as wire
from pumpd.common import link

MIB = 1 << 20
GIB = 1 << 30
GPU = "ab" * 16
PUMPD = [sys.executable, "-m", "pumpd"]


class Service:
    """`pumpd serve` on a socket in `folder`."""

    def __init__(self, folder: Path, *options: str, command: list[str] | None = None) -> None:
        self.socket = folder / "service"
        self.log = folder / "service.log"
        self.options = options
        self.command = command or [*PUMPD, "serve"]
        self.start()

    def start(self, **environ: str) -> None:
        words = [*self.command, "--socket", str(self.socket), "--log-level", "info", *self.options]
        with self.log.open("a") as log:
            self.process = subprocess.Popen(words, stderr=log, env={**os.environ, **environ})
        eventually(lambda: link.answers(str(self.socket)), "the service to listen")

    def ask(self) -> ServiceClient:
        return ServiceClient(str(self.socket))

    def descriptors(self) -> list[str]:
        return os.listdir(f"/proc/{self.process.pid}/fd")  # noqa: PTH208

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self) -> int:
        """Ends the service like an administrator would; returns its status."""
        self.process.terminate()
        return self.process.wait(timeout=15)


class Played:
    """Plays a job's pumpd as the service sees it; may or may not follow grants.

    `adopts`: follows grants. `resident`: MiB that it keeps on the GPU regardless of its budget.
    """

    def __init__(
        self,
        service: Service,
        *,
        total_mib: int = 1000,
        wanted_mib: int = 0,
        versions: tuple[int, int] = (wire.OLDEST, wire.VERSION),
        **join: Any,
    ) -> None:
        self.socket = connect(service)
        self.socket.send(wire.pack_hello(*versions))
        self.version = wire.check_welcome(self.socket.recv(64))
        self.say(wire.Join(**join))
        self.total = total_mib * MIB
        self.wanted = wanted_mib * MIB
        self.usable = (self.total - self.total // 100 * 3) // (2 * MIB) * 2 * MIB
        self.adopted = self.usable
        self.resident = 0
        self.acted = 0
        self.use = wire.USE_MOST
        self.adopts = self.beats = True
        self.grant = self.take()
        assert self.grant.number == 0

    def say(self, message: Any) -> None:
        self.spoke = time.monotonic()
        self.socket.send(wire.encode(message, self.version))

    def take(self) -> wire.Grant:
        """Returns the next message of the service."""
        data = self.socket.recv(wire.REPLY_BYTES)
        assert data, "the service closed the connection"
        message = wire.decode(data, wire.FROM_SERVICE, self.version)
        assert isinstance(message, wire.Grant), message
        return message

    def report(self, gpu: str = GPU) -> None:
        entry = wire.GpuReport(
            gpu,
            self.total,
            self.usable,
            self.wanted,
            self.adopted,
            max(self.resident, min(self.wanted, self.adopted)),
            self.use,
        )
        self.say(wire.Report(self.acted, 1, self.wanted, 0, (entry,)))

    @property
    def granted(self) -> int | None:
        """Returns the GPU's budget in the newest grant."""
        return self.grant.gpus[0].budget_bytes if self.grant.gpus else None

    def turn(self) -> None:
        """Reads messages, follows grants and reports this."""
        changed = False
        while select.select([self.socket], [], [], 0)[0]:
            self.grant = self.take()
            changed = True
        if self.adopts and changed and self.granted is not None:
            self.adopted = self.granted
            self.acted = self.grant.number
            self.report()
        elif self.beats and time.monotonic() > self.spoke + 0.1:
            self.say(wire.Beat())

    def close(self) -> None:
        self.socket.close()


def connect(service: Service) -> socket.socket:
    one = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    one.settimeout(15)
    one.connect(str(service.socket))
    return one


def is_closed(one: socket.socket) -> bool:
    """Returns whether the other side has closed; reads its earlier messages."""
    try:
        while select.select([one], [], [], 0)[0]:
            if not one.recv(wire.REPLY_BYTES):
                return True
    except OSError:
        return True
    return False


def until(condition: Any, what: str, *jobs: Played) -> None:
    """Lets jobs play until `condition()` holds."""

    def holds() -> bool:
        for job in jobs:
            job.turn()
        return bool(condition())

    eventually(holds, what)


def settle(service: Service, *jobs: Played, seconds: float = 0.3) -> None:
    """Lets jobs play for a moment."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for job in jobs:
            job.turn()
        time.sleep(0.01)


@contextlib.contextmanager
def closing(*jobs: Played) -> Any:
    try:
        yield jobs
    finally:
        for job in jobs:
            job.close()
