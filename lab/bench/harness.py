"""Code shared by the benchmark suites: options, rows, paired measurements, pinning.

A suite is a module of suites/. The first line of its docstring describes it, and `run(options:
Options) -> Iterator[Row]` yields its rows one by one. It raises UnavailableError if this machine
lacks something, and MeasurementError if a measurement fails. Either error ends only that suite.
scripts/bench runs the suites. No suite compares its results with a target. Imports need only the
standard library and the source tree, because scripts/bench imports this module before pump is
installed.
"""

from __future__ import annotations

import contextlib
import math
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

from pump.measure.paired import Paired, compare, in_rounds, interval, percentile

ROOT = Path(__file__).resolve().parents[2]
PAIRS = 30
PAIRS_QUICK = 3
TIME_SCALE = 1.0
"""Scale of the virtual GPU's time: its clock is always the wall clock."""

NAME = re.compile(r"[a-z0-9_]+(\.[a-z0-9_]+)*")
SHOWN = ("oversubscription", "sync_every", "beside", "told", "missed", "idle", "case", "ran_s",
         "blocked", "preempted", "wake", "threads", "least_s", "most_s", "run_s", "met", "held",
         "runs", "room_spread_s", "mode")  # fmt: skip
"""Keys of a row that its text shows, to distinguish rows with the same name."""

CHILD_SECONDS_MAX = 300
LOG_LINES_SHOWN = 15


class UnavailableError(Exception):
    """A suite cannot run on this machine; the text names the missing thing and the remedy."""


class MeasurementError(Exception):
    """A measurement failed; the text names it and shows the end of its output."""


@dataclass(frozen=True)
class Tools:
    """Files of the pump under test.

    `python`: the interpreter that has pump. `lib_dir`: the folder of libpump.so. `pump_run`: the
    command. `root`: the source tree. `work`: the folder for files that suites build.
    """

    python: str = sys.executable
    root: Path = ROOT
    work: Path = ROOT / "build" / "bench"

    @property
    def lib_dir(self) -> Path:
        """Returns the folder of libpump.so. Raises UnavailableError if pump is not installed."""
        try:
            from pump.base import paths

            return Path(paths.library("libpump.so")).parent
        except Exception as error:  # not importable, or without its library
            raise UnavailableError(
                f"pump is not installed here ({error}); scripts/bench does"
            ) from None

    @property
    def pump_run(self) -> str:
        """Returns the path of pump-run. Raises UnavailableError if Python's folder lacks it."""
        path = Path(self.python).parent / "pump-run"
        if not path.exists():
            raise UnavailableError(f"there is no {path}; install pump into that Python")
        return str(path)


@dataclass(frozen=True)
class Options:
    """How to measure. `pairs`: interleaved pairs of each comparison. `quick`: only enough to show
    that the suite works; its numbers are meaningless. `rest`: options of the suite."""

    pairs: int = PAIRS
    quick: bool = False
    rest: list[str] = field(default_factory=list)
    tools: Tools = field(default_factory=Tools)


class Row:
    """One result. `value`: None if there is none; then `more` has the reason. `baseline`: the name
    or value that `ratio` compares with.

    `interval`: 95 % interval of the ratio, or of the value if there is no ratio. `more`: further
    keys of the JSON line. Raises ValueError for a bad name or a number that JSON cannot represent.
    """

    __slots__ = ("baseline", "interval", "more", "name", "ratio", "unit", "value")

    def __init__(
        self,
        name: str,
        value: float | None,
        unit: str,
        baseline: str | float | None = None,
        *,
        ratio: float | None = None,
        interval: Sequence[float] | None = None,
        **more: Any,
    ) -> None:
        if not NAME.fullmatch(name):
            raise ValueError(f"'{name}' is no name of a row; write words.with_dots")
        for number in (value, ratio, *(interval or ()), *more.values()):
            if isinstance(number, float) and not math.isfinite(number):
                raise ValueError(f"{name} carries {number}; a row's numbers must be finite")
        self.name = name
        self.value = value
        self.unit = unit
        self.baseline = baseline
        self.ratio = ratio
        self.interval = interval
        self.more = more

    def __repr__(self) -> str:
        return f"Row({self.name} {_short(self.value)} {self.unit})"

    def as_json(self) -> dict[str, Any]:
        """Returns the keys of the JSON line, including a comparison's if there is one."""
        found: dict[str, Any] = {"name": self.name, "value": _plain(self.value), "unit": self.unit}
        if self.baseline is not None or self.ratio is not None:
            found["baseline"] = _plain(self.baseline)
            found["ratio"] = _plain(self.ratio)
        if self.interval is not None or self.ratio is not None:
            found["interval"] = None if self.interval is None else [*map(_plain, self.interval)]
        return found | {key: _plain(value) for key, value in self.more.items()}

    def as_text(self) -> str:
        """Returns the row as one line of text."""
        words = []
        if self.ratio is not None:
            words.append(f"ratio {_short(self.ratio)}")
        if self.interval is not None:
            words.append(f"[{_short(self.interval[0])}, {_short(self.interval[1])}]")
        if self.baseline is not None:
            words.append(f"against {_short(self.baseline)}")
        words += [f"{key} {_short(self.more[key])}" for key in SHOWN if key in self.more]
        text = f"{self.name:<40} {_short(self.value):>10} {self.unit:<8} {', '.join(words)}"
        return text.rstrip()


def _plain(value: Any) -> Any:
    """Rounds floats to seven digits, more than any of these measurements has."""
    return float(f"{value:.7g}") if isinstance(value, float) else value


def _short(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


# ---- measuring --------------------------------------------------------------


def rounds(
    measures: Mapping[str, Callable[[], float]], count: int, warm_up: int = 0
) -> dict[str, list[float]]:
    """Calls all measures once in each round; returns the values of each (paired.in_rounds).

    The first `warm_up` rounds do not count.
    """
    found: dict[str, list[float]] = {name: [] for name in measures}
    from rich.progress import Progress

    from pump.base.console import console

    shown = console(sys.stderr)
    with Progress(
        auto_refresh=False, console=shown, transient=True, disable=not shown.is_terminal
    ) as progress:
        for turn, name in progress.track(list(in_rounds(list(measures), warm_up + count))):
            value = measures[name]()
            if turn >= warm_up:
                found[name].append(value)
    return found


def paired(
    first: Callable[[], float], second: Callable[[], float], pairs: int, warm_up: int = 0
) -> Paired:
    """Calls two measurements in `pairs` interleaved pairs; ratio = first / second."""
    found = rounds({"first": first, "second": second}, pairs, warm_up)
    return compare(found["first"], found["second"])


def compared(
    name: str,
    result: Paired,
    unit: str,
    *,
    baseline: str,
    value: float | None = None,
    **more: Any,
) -> Row:
    """Returns the row of a comparison; its value is the ratio unless `value` is given."""
    return Row(
        name,
        result.ratio if value is None else value,
        unit,
        baseline,
        ratio=result.ratio,
        interval=result.interval,
        **more,
        pairs=result.pairs,
        first_median=result.first_median,
        second_median=result.second_median,
    )


def cpus() -> list[int]:
    """Returns the CPUs that this process may use, in order."""
    return sorted(os.sched_getaffinity(0))


def cpu_model() -> str:
    """Returns the name of the CPU model, or of its architecture."""
    for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


@contextlib.contextmanager
def pin(*wanted: int) -> Iterator[tuple[int, ...]]:
    """Keeps this thread, and the processes that it starts, on the given CPUs during the block.

    Without a number, that is the last CPU that the process may use: it gets the fewest interrupts.
    Raises UnavailableError for a CPU that the process may not use.
    """
    before = os.sched_getaffinity(0)
    chosen = wanted or (max(before),)
    if not set(chosen) <= before:
        raise UnavailableError(f"CPUs {sorted(set(chosen) - before)} may not be used here")
    os.sched_setaffinity(0, chosen)
    try:
        yield tuple(sorted(set(chosen)))
    finally:
        os.sched_setaffinity(0, before)


@contextlib.contextmanager
def computing(count: int) -> Iterator[None]:
    """Runs `count` busy processes during the block."""
    command = [sys.executable, "-c", "while True: pass"]
    processes = [subprocess.Popen(command) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


# ---- helpers of suites ------------------------------------------------------


def virtual_facts(profile: str, mode: str) -> dict[str, Any]:
    """Returns the keys of every row from the virtual GPU. Raises pump_lab.profiles.ProfileError."""
    from pump_lab import profiles

    found = profiles.load(profile)
    return {
        "gpu": "virtual",
        "mode": mode,
        "time_scale": TIME_SCALE,
        "profile": found.name,
        "profile_hash": found.hash(),
    }


def child(
    command: Sequence[str],
    environ: Mapping[str, str] | None = None,
    seconds_max: float = CHILD_SECONDS_MAX,
) -> str:
    """Returns the stdout of a command that must succeed. `environ` is added to the environment.

    Raises MeasurementError with the end of the command's output.
    """
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **(environ or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds_max,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise MeasurementError(f"{shlex.join(command)}: no end within {seconds_max:g} s") from None
    except OSError as error:
        raise MeasurementError(f"{command[0]}: {error.strerror}") from None
    if done.returncode != 0:
        lines = (done.stdout + done.stderr).splitlines()[-LOG_LINES_SHOWN:]
        raise MeasurementError(
            "\n".join([f"{shlex.join(command)}: exit status {done.returncode}", *lines])
        )
    return done.stdout


def compile_c(tools: Tools, name: str, sources: Iterable[Path], *flags: str) -> Path:
    """Builds `name` from C sources with -O2 and pump's headers; returns its path.

    `flags`: further ones, such as -shared or -ldl. Raises UnavailableError without a compiler,
    MeasurementError if the compiler refuses the source.
    """
    compiler = shlex.split(os.environ.get("CC", "cc"))
    if shutil.which(compiler[0]) is None:
        raise UnavailableError(f"no C compiler '{compiler[0]}' (Debian, Ubuntu: apt install gcc)")
    tools.work.mkdir(parents=True, exist_ok=True)
    made = tools.work / name
    # A concurrent build of the same file sees either the whole file or none.
    fresh = made.with_name(f".{name}.{os.getpid()}")
    headers = ["-I", str(tools.root / "shim" / "include"), "-I", str(tools.root)]
    command = [*compiler, "-std=gnu11", "-O2", "-g", "-Wall", "-Wextra", "-D_GNU_SOURCE"]
    child([*command, *headers, *map(str, sources), "-o", str(fresh), *flags])
    fresh.rename(made)
    return made


def host_kernels() -> Path:
    """Returns the path of the examples' kernels for the CPU, which are built if needed. Raises
    UnavailableError."""
    import host_build  # of examples

    try:
        return host_build.build()
    except host_build.BuildError as error:
        raise UnavailableError(str(error)) from None


def build_null_driver(tools: Tools) -> Path:
    """Builds a libcuda.so.1 of empty functions in its own folder. Raises compile_c's errors."""
    here = tools.root / "lab" / "bench" / "load_generators" / "null_driver"
    return compile_c(
        replace(tools, work=tools.work / "null_driver"),
        "libcuda.so.1",
        [here / name for name in ("null_driver.c", "null_answers.c")],
        *("-shared", "-fPIC", "-fvisibility=hidden", "-Wl,-Bsymbolic"),
        "-Wl,-soname,libcuda.so.1",
    )


__all__ = [
    "MeasurementError",
    "Options",
    "Paired",
    "Row",
    "Tools",
    "UnavailableError",
    "build_null_driver",
    "child",
    "compare",
    "compared",
    "compile_c",
    "computing",
    "cpu_model",
    "cpus",
    "host_kernels",
    "interval",
    "median",
    "paired",
    "percentile",
    "pin",
    "rounds",
    "virtual_facts",
]
