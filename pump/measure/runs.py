"""Runs a command with its output in a log, measures its time, and ends all of its processes.

Each run is a process group of its own: Ctrl-C in the terminal reaches this process alone, which
ends the run in order, and no process that a run leaves behind disturbs the next one. The run's
first process is killed when this one is.
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

from pump.names import one_line

PATIENCE_S = 10.0
"""For a command that was told to end, before it is killed."""
LOG_BYTES = 1 << 20
"""Of a log's end, in which messages and figures are looked for."""
LINES_SHOWN = 15
PR_SET_PDEATHSIG = 1
OUT_OF_MEMORY = re.compile(
    rb"out.?of.?memory|OutOfMemory|cudaErrorMemoryAllocation|RESOURCE_EXHAUSTED|\bOOM\b",
    re.IGNORECASE,
)
"""What CUDA, PyTorch, CuPy and JAX print where an allocation fails."""


class Ran(NamedTuple):
    """A command that has ended. status: as of subprocess, below 0: the signal that ended it.
    too_long: whether it was ended at its time limit."""

    status: int
    seconds: float
    log: Path
    too_long: bool = False

    @property
    def out_of_memory(self) -> bool:
        """Whether it failed and speaks of memory that was not there."""
        lines = self._end().splitlines()
        said = b"\n".join(line for line in lines if not line.startswith(b"pump"))  # not our advice
        return self.status != 0 and OUT_OF_MEMORY.search(said) is not None

    def failure(self) -> str:
        """How it failed; "" where it did not."""
        if self.too_long:
            return f"still running after {self.seconds:.0f} s"
        if self.status < 0:
            with contextlib.suppress(ValueError):
                return f"ended by {signal.Signals(-self.status).name}"
            return f"ended by signal {-self.status}"
        return f"exit status {self.status}" if self.status else ""

    def last(self, pattern: re.Pattern[bytes]) -> float | None:
        """The number that the first group of `pattern` has at its last match in the log; None
        without a match or a number above 0."""
        found = [match[1] for match in pattern.finditer(self._end())]
        with contextlib.suppress(ValueError, TypeError):  # no number, or a group that is not there
            number = float(found[-1]) if found else 0.0
            return number if 0 < number < float("inf") else None
        return None

    def _end(self) -> bytes:
        return end(self.log)


def end(log: Path) -> bytes:
    """The last LOG_BYTES of a log."""
    with log.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - LOG_BYTES))
        return file.read()


def tail(log: Path) -> str:
    """The last lines of a log, safe for a terminal."""
    lines = end(log).decode(errors="replace").splitlines()
    return "\n".join(map(one_line, lines[-LINES_SHOWN:]))


class Stop:
    """While entered, SIGINT, SIGTERM and SIGHUP end the run under way instead of this process; a
    second one kills it. number: of the first signal, 0 for none. For the main thread alone."""

    def __init__(self) -> None:
        self.number = 0
        self._group = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Stop:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # as of nohup
                self._before[number] = signal.signal(number, self._come)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def begun(self, group: int) -> None:
        """Remember the group of a run that has begun; 0: it has ended."""
        self._group = group
        if self.number and group:  # the signal came before the group was known
            self._end(self.number)

    def _come(self, number: int, _frame: FrameType | None) -> None:
        again, self.number = bool(self.number), self.number or number
        if self._group:
            self._end(signal.SIGKILL if again else number)

    def _end(self, number: int) -> None:
        group = self._group
        _signal(group, number)

        def too_late() -> None:
            if self._group == group:
                _kill(group)

        _later(PATIENCE_S, too_late)


def run(
    command: Sequence[str],
    environ: Mapping[str, str],
    log: Path,
    stop: Stop,
    seconds_most: float | None = None,
) -> Ran:
    """Run the command to its end, its output in `log`, its input empty. Raises OSError where it
    cannot be started or the log cannot be written."""
    me, prctl = os.getpid(), ctypes.CDLL(None).prctl

    def die_with_me() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != me:  # killed before the call
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
            _kill(process.pid)

        timer = None if seconds_most is None else _later(seconds_most, too_long)
        try:
            # The id stays the group's until the process has been waited for, so none but this
            # run's processes are killed.
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
            seconds = time.monotonic() - began
        finally:
            if timer is not None:
                timer.cancel()
            stop.begun(0)
            _kill(process.pid)
            status = process.wait()
    return Ran(status, seconds, log, late.is_set())


def _later(seconds: float, do: Callable[[], None]) -> threading.Timer:
    timer = threading.Timer(seconds, do)
    timer.daemon = True
    timer.start()
    return timer


def _kill(group: int) -> None:
    _signal(group, signal.SIGKILL)


def _signal(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
