"""Real jobs on one shared virtual GPU, for the suite of the service: their cost, and whether they
return to a service that was killed.

Each job sweeps through its buffers (examples/cyclic_sweep.py) and pauses after each iteration.
Together the jobs allocate more than the GPU has.
"""

from __future__ import annotations

import contextlib
import os
import pty
import select
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from harness import ROOT, MeasurementError, Options

if TYPE_CHECKING:
    from pump.wire.service import JobState

PROFILE = "a100-pcie4"
BUFFERS, BUFFER_MIB, PAUSE_MS = 4, 8, 500
CARD_SHARE = 0.75
"""The GPU's memory / the allocations of all jobs."""
NAME = "bench"
TIMEOUT_S = 60.0


class Jobs:
    """Several jobs, which find a service at `socket`. Use as a context."""

    def __init__(self, options: Options, kernels: Path, folder: Path, socket: Path) -> None:
        self.count = 4 if options.quick else 16
        self.service = str(socket)
        self._pump = str(Path(options.tools.pump_run).with_name("pump"))
        self._environ = {
            **os.environ,
            "PUMP_SERVICE": self.service,
            "PUMP_VIRTUAL_KERNELS": str(kernels),
            "PUMP_VIRTUAL_CARDS": str(folder),
            "XDG_RUNTIME_DIR": str(folder),
        }
        memory_mib = int(self.count * BUFFERS * BUFFER_MIB * CARD_SHARE)
        settings = [f"memory={memory_mib}MiB", "mode=timing", f"shared=service-{os.getpid()}"]
        self._command = [options.tools.pump_run, "--name", NAME, "--virtual", PROFILE]
        self._command += [word for one in settings for word in ("--virtual-set", one)]
        program = ROOT / "examples" / "cyclic_sweep.py"
        self._command += ["--", options.tools.python, str(program), f"--buffers={BUFFERS}"]
        self._command += [f"--buffer-mib={BUFFER_MIB}", f"--pause-ms={PAUSE_MS}"]
        self._command += ["--iterations=100000", "--no-hash"]
        self._running: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Jobs:
        for _ in range(self.count):
            self._running.append(
                subprocess.Popen(
                    self._command,
                    env=self._environ,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
            )
        return self

    def __exit__(self, *_: object) -> None:
        for one in self._running:
            one.kill()
            one.wait()

    def served(self) -> list[JobState]:
        """Returns the jobs with a lease on the GPU; an empty list without a service."""
        from pump.service import ServiceClient, ServiceError

        with contextlib.suppress(ServiceError), ServiceClient(self.service) as client:
            return [
                job
                for job in client.jobs()
                if job.name == NAME and any(gpu.granted_bytes for gpu in job.gpus)
            ]
        return []

    def wait_for_all(self) -> float:
        """Returns the seconds until all jobs have a lease. Raises MeasurementError."""
        begin = time.monotonic()
        while len(self.served()) < self.count:
            if any(one.poll() is not None for one in self._running):
                raise MeasurementError("a job has ended")
            if time.monotonic() > begin + TIMEOUT_S:
                raise MeasurementError(f"{len(self.served())} of {self.count} jobs have a lease")
            time.sleep(0.01)
        return time.monotonic() - begin

    def pss_mib(self) -> dict[str, float]:
        """Returns the largest supervisor, warm process and worker of all jobs, by name, in MiB."""
        found: dict[str, float] = {}
        for job in self.served():
            for pid in _family(job.pid):
                with contextlib.suppress(OSError):
                    name = Path(f"/proc/{pid}/comm").read_text().strip()
                    found[name] = max(found.get(name, 0.0), pss_mib(pid))
        if "pumpd-worker" not in found:
            raise MeasurementError("no job has a worker")
        return found

    def top_cpu(self, seconds: float) -> float:
        """Returns the share of one CPU core that `pump top` takes; it refreshes twice a second."""
        with _on_a_terminal([self._pump, "top"], self._environ) as (pid, shown):
            shown(TIMEOUT_S, b"pump top")
            before, begin = cpu_s(pid), time.monotonic()
            shown(seconds, None)
            return (cpu_s(pid) - before) / (time.monotonic() - begin)


@contextlib.contextmanager
def _on_a_terminal(
    command: list[str], environ: dict[str, str]
) -> Iterator[tuple[int, Callable[[float, bytes | None], None]]]:
    """Runs a command on a terminal. Yields its process id, and a function that reads the terminal
    until it shows a word or the seconds have passed."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(command, env=environ, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)

    def shown(seconds: float, word: bytes | None) -> None:
        seen, end = b"", time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if select.select([ours], [], [], left)[0]:
                seen = seen[-100:] + os.read(ours, 65536)
                if word is not None and word in seen:
                    return
        if word is not None:
            raise MeasurementError(f"{command[0]} does not show {word!r}")

    try:
        yield process.pid, shown
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def _family(pid: int) -> list[int]:
    """Returns a process and all its descendants."""
    found = [pid]
    for one in found:
        with contextlib.suppress(OSError):
            for children in Path(f"/proc/{one}/task").glob("*/children"):
                found += map(int, children.read_text().split())
    return found


def pss_mib(pid: int) -> float:
    """Returns the proportional set size in MiB. Raises OSError, MeasurementError."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    raise MeasurementError("the kernel tells no proportional set size")


def cpu_s(pid: int) -> float:
    """Returns the CPU time that a process has used, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
