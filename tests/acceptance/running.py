"""Runs programs with and without pump, on a GPU or on the virtual GPU, within time limits.

Libraries come from a plain CMake build (build/acceptance, see build.py) or from PUMP_LIB_DIR. Pump
need not be installed: build.py lays out a folder `site` that contains the checkout's packages and
the carried wheels. That folder is the programs' PYTHONPATH.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from acceptance import processes
from acceptance.contract import LATE, NO_MEMORY, Context, Json

BUILD = "build/acceptance"
VIRTUAL_DRIVER = "../../pump_lab/_lib/virtual/libcuda.so.1"
"""Path relative to the folder of libpump.so."""
TAIL_CHARACTERS = 3000
STDOUT_CHARACTERS = 4_000_000
END_S = 2.0
"""Seconds of a stage kept in reserve after a kill, while the driver frees the program's memory."""
PUMPD_END_S = 10.0
"""Time for pumpd to end after its job; pumpd polls nothing, so this is generous."""

START = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); from pump import start; "
    "start.find_packages(); sys.exit(start.run(sys.argv[1:]))"
)
"""Runs pump/start.py of the folder in the first argument, even if another pump is installed."""
REFUSALS = (
    re.compile(r"out of memory: .* would exceed the headroom of "),
    re.compile(r"\bMemoryError\b|\bbad_alloc\b|Cannot allocate memory"),
)
"""Lines that show refused host memory: by pump's guard, or by a system without free memory."""
OURS = "PUMP_"
"""Prefix of variables of an outer pump or a developer; they would change the measurement."""


@dataclass(frozen=True)
class Run:
    """How a program ended. `returncode`: None if it reached its limit and was killed.

    `stderr`: its last part. `log`: pump's own lines at level info. `summary`: pump's counters as
    JSON (PUMP_SUMMARY), None without pump or if the program never used CUDA. `driver_report`:
    report of the virtual driver, None on a real GPU. `left`: processes that still ran `PUMPD_END_S`
    after its end and were killed. `late`: it was killed because the stage's time was over, before
    its own limit. `killed_for_memory`: the kernel killed it because the machine had no memory left.
    """

    words: tuple[str, ...]
    returncode: int | None
    seconds: float
    stdout: str
    stderr: str
    log: str = ""
    summary: Mapping[str, Json] | None = None
    driver_report: Mapping[str, Json] | None = None
    left: tuple[str, ...] = ()
    late: bool = False
    killed_for_memory: bool = False

    @property
    def ok(self) -> bool:
        return self.returncode == 0

    def trouble(self) -> str:
        """Returns a line about a bad end: exit status, the program's last stderr line. "" if good.

        Returns LATE if the end of the stage stopped the program. Begins with NO_MEMORY if the
        program was refused memory. Neither is a verdict on the program.
        """
        if self.ok:
            return ""
        if self.late:
            return LATE
        refused = self.refused()
        if refused:
            return f"{NO_MEMORY}: {refused}"
        ended = "no end within its limit" if self.returncode is None else f"{self.returncode}"
        said = [line.strip() for line in self.stderr.splitlines() if line.strip()]
        own = [line for line in said if not line.startswith("pump: ")] or said
        return f"exit status {ended}: {own[-1][:300] if own else 'without a word'}"

    def refused(self) -> str:
        """Returns the line with which the program was refused host memory, "" if that is not why it
        ended. A limit set by the acceptance itself does not count."""
        if self.ok:
            return ""
        if self.killed_for_memory:
            return "the kernel killed it for want of memory"
        for line in (self.log + "\n" + self.stderr).splitlines():
            if any(pattern.search(line) for pattern in REFUSALS):
                return line.strip()[:300]
        return ""

    def lacks(self) -> str:
        """Returns the missing Python module that made the program end; "" if there is none."""
        found = re.search(r"No module named '([^']+)'", "" if self.ok else self.trouble())
        return found[1] if found else ""

    def result(self) -> dict[str, Json] | None:
        """Returns the JSON result in the last line of stdout; None without one."""
        lines = self.stdout.strip().splitlines()
        try:
            found = json.loads(lines[-1]) if lines else None
        except ValueError:
            return None
        return found if isinstance(found, dict) else None

    def evidence(self) -> dict[str, Json]:
        """Returns the details of the run that a failed item keeps."""
        return {
            "returncode": self.returncode,
            "run_s": round(self.seconds, 3),
            "stderr_tail": self.stderr,
            "log_tail": self.log[-TAIL_CHARACTERS:],
            "left": list(self.left),
        }


class Program:
    """A started program. `pid` is its own, also with pump (pump-run becomes the program)."""

    def __init__(
        self,
        context: Context,
        words: Sequence[str],
        environ: dict[str, str],
        stdin: int = subprocess.DEVNULL,
    ) -> None:
        self.words = tuple(words)
        self._left_s = context.left_s
        self.mark = processes.new_mark()
        self.folder = Path(tempfile.mkdtemp(dir=context.work, prefix="run-"))
        self.stdout_file = self.folder / "stdout"
        self.stderr_file = self.folder / "stderr"
        self.log_file = self.folder / "pump.log"
        environ = {**environ, processes.PROGRAM_MARK: self.mark}
        environ.setdefault("PUMP_SUMMARY", str(self.folder / "summary.json"))
        environ.setdefault("PUMP_VIRTUAL_REPORT", str(self.folder / "driver.json"))
        self._reports = Path(environ["PUMP_SUMMARY"]), Path(environ["PUMP_VIRTUAL_REPORT"])
        self._kills_before = processes.memory_kills()
        self.started = time.monotonic()
        with self.stdout_file.open("wb") as out, self.stderr_file.open("wb") as err:
            self.popen = self._popen(self._logged(words), environ, stdin, out, err)

    def _logged(self, words: Sequence[str]) -> list[str]:
        return [str(self.log_file) if word == LOG_FILE else word for word in words]

    def _popen(
        self, words: list[str], environ: dict[str, str], stdin: int, out: IO[bytes], err: IO[bytes]
    ) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            words,
            env=environ,
            stdin=stdin,
            stdout=out,
            stderr=err,
            cwd=self.folder,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        return self.popen.pid

    def processes(self) -> list[int]:
        """Returns the process ids of the program, of pumpd and of everything that they started."""
        return processes.marked(processes.PROGRAM_MARK, self.mark)

    def wait_for_output(self, text: str, limit_s: float) -> bool:
        """Waits until stdout contains `text`; returns False at the program's end or `limit_s`."""
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            ended = self.popen.poll() is not None
            if text in _text(self.stdout_file, STDOUT_CHARACTERS):
                return True
            if ended:
                return False
            time.sleep(0.01)
        return False

    def finish(self, limit_s: float) -> Run:
        """Waits, kills a late program and everything that it started, and returns the Run.

        Waits until `limit_s` or the end of the stage's time, whichever comes first.
        """
        returncode: int | None
        left_s = self._left_s() - END_S
        try:
            returncode = self.popen.wait(max(0.1, min(limit_s, left_s)))
        except subprocess.TimeoutExpired:
            returncode = None
        seconds = time.monotonic() - self.started
        left: list[int] = []
        if returncode is not None:
            left = processes.wait_gone(processes.PROGRAM_MARK, self.mark, PUMPD_END_S)
        titles = tuple(filter(None, map(processes.title, left)))
        self.kill()
        log = _text(self.log_file, STDOUT_CHARACTERS)
        return Run(
            words=self.words,
            returncode=returncode,
            seconds=seconds,
            stdout=_text(self.stdout_file, STDOUT_CHARACTERS),
            stderr=_text(self.stderr_file, TAIL_CHARACTERS),
            log=log,
            summary=_json(self._reports[0]),
            driver_report=_json(self._reports[1]),
            left=titles,
            late=returncode is None and left_s < limit_s,
            killed_for_memory=returncode == -signal.SIGKILL
            and processes.memory_kills() > self._kills_before,
        )

    def kill(self) -> None:
        """Kills the program and everything that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        processes.kill_marked(processes.PROGRAM_MARK, self.mark)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.popen.wait(10)


LOG_FILE = "@log"
"""Placeholder for the path of the program's log in a command's arguments."""


def site(context: Context) -> Path:
    """Returns the folder that holds pump, pumpd and the carried packages for programs."""
    return context.root / BUILD / "site"


def pump_command(root: Path, *words: str) -> list[str]:
    """Returns the command that runs a part of the checkout's pump (pump-run, pump, or -c and code).
    PYTHON variables and sitecustomize do not affect its interpreter."""
    folder = str(root / BUILD / "site")
    return [sys.executable, "-E", "-P", "-S", "-c", START, folder, *words]


def see_packages(root: Path) -> None:
    """Makes the checkout's pump and the carried packages importable in this process, with lower
    precedence than installed ones. Stages import them when they are loaded."""
    folder = str(root / BUILD / "site")
    if folder not in sys.path:
        sys.path.append(folder)


def library_folder(root: Path) -> Path:
    """Returns the folder for libpump.so: PUMP_LIB_DIR, else the build of this checkout."""
    given = os.environ.get("PUMP_LIB_DIR")
    return Path(given).absolute() if given else root / BUILD / "pump" / "_lib"


def environment(context: Context, environ: Mapping[str, str]) -> dict[str, str]:
    """Returns a program's environment: ours without pump's variables, plus `environ`."""
    base = {k: v for k, v in os.environ.items() if not k.startswith(OURS) and k != "LD_PRELOAD"}
    path = [str(site(context)), *filter(None, environ.get("PYTHONPATH", "").split(":"))]
    found = {
        **base,
        **environ,
        "PYTHONPATH": ":".join(path),
        "PUMP_LIB_DIR": str(library_folder(context.root)),
    }
    if "PUMP_VIRTUAL_KERNELS" not in found and kernels(context).exists():
        found["PUMP_VIRTUAL_KERNELS"] = str(kernels(context))
    return found


def kernels(context: Context) -> Path:
    """Returns the path of examples/'s host functions for the virtual GPU; build.py builds them."""
    return context.root / BUILD / "kernels.so"


def start(
    context: Context,
    words: Sequence[str],
    *,
    pump: bool = True,
    policy: str = "window",
    budget_bytes: int | None = None,
    limit_bytes: int | None = None,
    record: Path | None = None,
    environ: Mapping[str, str] | None = None,
    settings: Mapping[str, str] | None = None,
    stdin: int = subprocess.DEVNULL,
) -> Program:
    """Starts `words`, with or without pump. `settings`: of the virtual GPU (--virtual-set).

    `stdin`: as in subprocess. On the virtual GPU a program without pump still starts through
    pump-run, the only way to use the virtual GPU, with PUMP_DISABLE=1. The caller ends the program
    with `finish`.
    """
    found = environment(context, environ or {})
    virtual = context.machine.virtual
    command: list[str] = []
    if pump or virtual:
        command = pump_command(context.root, "pump-run")
    if virtual:
        command += ["--virtual", context.machine.profile]
        for key, value in (settings or {}).items():
            command += ["--virtual-set", f"{key}={value}"]
    if not pump:
        found["PUMP_DISABLE"] = "1"
    else:
        command += ["--policy", policy, "-v", "--log-file", LOG_FILE]
        if budget_bytes is not None:
            command += ["--budget", str(budget_bytes)]
        if limit_bytes is not None:
            command += ["--limit", str(limit_bytes)]
        if record is not None:
            command += ["--record", str(record)]
    command += ["--"] if command else []
    return Program(context, [*command, *words], found, stdin)


def tool(context: Context, words: Sequence[str], *, limit_s: float) -> Run:
    """Runs a command that needs no GPU, in the programs' environment."""
    program = Program(context, words, environment(context, {}))
    return program.finish(limit_s)


def plain(
    context: Context,
    words: Sequence[str],
    *,
    environ: Mapping[str, str] | None = None,
    settings: Mapping[str, str] | None = None,
    limit_s: float,
) -> Run:
    """Runs a program without pump, to its end or to the earlier of both limits."""
    program = start(context, words, pump=False, environ=environ, settings=settings)
    return program.finish(limit_s)


def pumped(
    context: Context,
    words: Sequence[str],
    *,
    policy: str = "window",
    budget_bytes: int | None = None,
    limit_bytes: int | None = None,
    record: Path | None = None,
    environ: Mapping[str, str] | None = None,
    settings: Mapping[str, str] | None = None,
    limit_s: float,
) -> Run:
    """Runs a program under pump-run, to its end or to the earlier of both limits."""
    program = start(
        context,
        words,
        policy=policy,
        budget_bytes=budget_bytes,
        limit_bytes=limit_bytes,
        record=record,
        environ=environ,
        settings=settings,
    )
    return program.finish(limit_s)


def _text(file: Path, characters: int) -> str:
    """Returns the end of a file; "" if there is none."""
    with contextlib.suppress(OSError), file.open("rb") as stream:
        stream.seek(0, os.SEEK_END)
        stream.seek(max(0, stream.tell() - characters))
        return stream.read().decode(errors="replace")
    return ""


def _json(file: Path) -> Mapping[str, Json] | None:
    """Returns the JSON object that a program wrote; None if it is missing or broken."""
    with contextlib.suppress(OSError, ValueError):
        found = json.loads(file.read_text())
        if isinstance(found, dict):
            return found
    return None
