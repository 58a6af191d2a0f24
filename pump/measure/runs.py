"""Runs a command with its output in a log, measures its time, and ends all of its processes.

Each run is a process group of its own. So Ctrl-C in the terminal reaches only this process, which
ends the run in order. Processes that outlive a run are killed, so that they do not disturb the next
one. The run's first process is killed when this process dies.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, NamedTuple

from pump.base.names import one_line

TIMEOUT_S = 10.0
"""Time between the signal that ends a command and SIGKILL."""
LOG_BYTES = 1 << 20
"""Bytes at the end of a log that are searched for messages and numbers."""
LINES_SHOWN = 15
PR_SET_PDEATHSIG = 1
OUT_OF_MEMORY = re.compile(
    rb"out.?of.?memory|OutOfMemory|cudaErrorMemoryAllocation|RESOURCE_EXHAUSTED|\bOOM\b",
    re.IGNORECASE,
)
"""Messages of CUDA, PyTorch, CuPy and JAX when an allocation fails."""


class Ran(NamedTuple):
    """A command that has ended. status: as in subprocess, -N after signal N. too_long: whether it
    was killed at its time limit."""

    status: int
    seconds: float
    log: Path
    too_long: bool = False

    @property
    def out_of_memory(self) -> bool:
        """Returns whether the command failed and reported a lack of memory."""
        lines = end(self.log).splitlines()
        said = b"\n".join(line for line in lines if not line.startswith(b"pump"))  # not pump's own
        return self.status != 0 and OUT_OF_MEMORY.search(said) is not None

    def failure(self) -> str:
        """Returns the reason why the command failed; "" if it succeeded."""
        if self.too_long:
            return f"still running after {self.seconds:.0f} s"
        if self.status < 0:
            with contextlib.suppress(ValueError):
                return f"ended by {signal.Signals(-self.status).name}"
            return f"ended by signal {-self.status}"
        return f"exit status {self.status}" if self.status else ""

    def last(self, pattern: re.Pattern[bytes]) -> float | None:
        """Returns the number in the first group of the last match of `pattern` in the log; None
        without a match, or if the number is not above 0."""
        found = [match[1] for match in pattern.finditer(end(self.log))]
        with contextlib.suppress(ValueError, TypeError):  # not a number, or no such group
            number = float(found[-1]) if found else 0.0
            return number if 0 < number < float("inf") else None
        return None


def end(log: Path) -> bytes:
    """Returns the last LOG_BYTES of a log."""
    with log.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - LOG_BYTES))
        return file.read()


def tail(log: Path) -> str:
    """Returns the last lines of a log, safe for a terminal."""
    lines = end(log).decode(errors="replace").splitlines()
    return "\n".join(map(one_line, lines[-LINES_SHOWN:]))


class Stop:
    """While entered, makes SIGINT, SIGTERM and SIGHUP end the run instead of this process; a second
    signal kills it. number: of the first signal, 0 for none. Only for the main thread."""

    def __init__(self) -> None:
        self.number = 0
        self._group = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Stop:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup's choice stays
                self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def begun(self, group: int) -> None:
        """Sets the process group of the run that has begun; 0: the run has ended."""
        self._group = group
        if self.number and group:  # the signal came before the group was known
            self._end(self.number)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        again, self.number = bool(self.number), self.number or number
        if self._group:
            self._end(signal.SIGKILL if again else number)

    def _end(self, number: int) -> None:
        group = self._group
        _signal(group, number)

        def too_late() -> None:
            if self._group == group:
                _signal(group, signal.SIGKILL)

        _call_later(TIMEOUT_S, too_late)


def run(
    command: Sequence[str],
    environ: Mapping[str, str],
    log: Path,
    stop: Stop,
    seconds_most: float | None = None,
) -> Ran:
    """Runs the command to its end, with its output in `log` and empty input. Raises OSError if it
    cannot be started or the log cannot be written."""
    me, prctl = os.getpid(), ctypes.CDLL(None).prctl

    def die_with_me() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != me:  # the parent died before the call
            os._exit(1)

    with log.open("wb") as out:
        began = time.monotonic()
        process = subprocess.Popen(
            command,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            process_group=0,
            preexec_fn=die_with_me,  # noqa: PLW1509 (it takes no lock)
        )
        stop.begun(process.pid)
        late = threading.Event()

        def too_long() -> None:
            late.set()
            _signal(process.pid, signal.SIGKILL)

        timer = None if seconds_most is None else _call_later(seconds_most, too_long)
        try:
            # The group keeps its id until the process has been waited for, so only processes of
            # this run are killed.
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
            seconds = time.monotonic() - began
        finally:
            if timer is not None:
                timer.cancel()
            stop.begun(0)
            _signal(process.pid, signal.SIGKILL)
            status = process.wait()
    return Ran(status, seconds, log, late.is_set())


def _call_later(seconds: float, do: Callable[[], None]) -> threading.Timer:
    timer = threading.Timer(seconds, do)
    timer.daemon = True
    timer.start()
    return timer


def _signal(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
