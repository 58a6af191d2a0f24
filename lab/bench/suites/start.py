"""Start: the time that pump adds to the start of a job, in pump-run and in cuInit.

DESIGN
  A program in C runs on a driver of empty functions (null_driver/), so all time of cuInit is
  pump's. The program prints the machine's time at main(), and its CPU time until then. That
  includes pump-run, which became the program. It also prints both times for its cuInit. A second
  process of the same job finds a running pumpd. Rounds rotate the order.

    `start.pump_run_ms`          From the start of the command to main(): the time that pump-run
                                 adds. The row has both medians and their ratio.
    `start.pump_run_cpu_ms`      CPU time until main().
    `start.cuinit_ms`            cuInit of the job's first process, added by pump; its pumpd starts
                                 at the same time.
    `start.cuinit_cpu_ms`        CPU time of that cuInit.
    `start.cuinit_later_ms`      cuInit of a later process of the job.
    `start.cuinit_recorded_ms`   cuInit of the first process of a job with --record: it waits until
                                 its worker records.
    `start.pumpd_cpu_ms`         CPU time of a job's pumpd, from its start to its end, for the two
                                 processes above.
    `start.enabled_true_ms`      From the start of `true` to its end, in TRUES runs by posix_spawn:
                                 the median that the shim and rules of `pump enable` add.

  Wall-clock times grow with the machine's load, CPU times barely do.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness import (
    ROOT,
    MeasurementError,
    Options,
    Row,
    build_null_driver,
    compare,
    compared,
    compile_c,
    interval,
    median,
    rounds,
)
from orphans import adopt_orphans, processor_s, wait_for_orphans

TIMEOUT_S = 120.0
TRUES = 1000
"""Runs of `true` each way, alternating."""
MS = 1e-6
"""Milliseconds in a nanosecond, the unit of the program's output."""


@dataclass(frozen=True)
class Process:
    """Times of one process in ms: from the command's start to main(), and of cuInit."""

    main: float
    main_cpu: float
    init: float
    init_cpu: float


@dataclass(frozen=True)
class Started:
    """One job. `pumpd_cpu`: CPU time, in ms, outside of the job's own processes."""

    first: Process
    later: Process
    pumpd_cpu: float


class Bench:
    """Driver and program, and jobs that run them."""

    def __init__(self, options: Options, folder: Path) -> None:
        driver = build_null_driver(options.tools)
        here = ROOT / "lab" / "bench" / "load_generators"
        self._program = compile_c(
            options.tools, "start_program", [here / "start_program.c", driver]
        )
        self._pump_run = [options.tools.pump_run]
        self._environ = {
            **os.environ,
            "LD_LIBRARY_PATH": str(driver.parent),
            "PUMP_LIB_DIR": str(options.tools.lib_dir),
            "PUMP_SERVICE": "none",
            "XDG_RUNTIME_DIR": str(folder),
        }
        self._recording = folder / "recording"
        self.jobs: dict[str, list[Started]] = {"plain": [], "pump": [], "recorded": []}

    def start(self, kind: str) -> float:
        """Runs one job and stores its times; returns ms until main(). Raises MeasurementError."""
        words: list[str] = []
        if kind != "plain":
            words = [*self._pump_run]
            words += ["--record", str(self._recording)] if kind == "recorded" else []
            words.append("--")
        before = processor_s()
        begin_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        job = subprocess.Popen(
            [*words, self._program],
            env=self._environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        with contextlib.ExitStack() as stack:
            stack.callback(job.kill)
            told, errors = job.communicate(timeout=TIMEOUT_S)
        lines = [[int(word) for word in line.split()] for line in told.splitlines()]
        if job.returncode != 0 or len(lines) != 2:
            raise MeasurementError(f"the program ended with {job.returncode}: {errors[-500:]}")
        wait_for_orphans()
        first, later = (
            Process((line[0] - begin_ns) * MS, *(value * MS for value in line[1:]))
            for line in lines
        )
        of_job = first.main_cpu + first.init_cpu + later.main_cpu + later.init_cpu
        whole = (processor_s() - before) * 1e3
        self.jobs[kind].append(Started(first, later, max(0.0, whole - of_job)))
        return first.main


def trues(options: Options, folder: Path) -> tuple[list[float], list[float]]:
    """Returns the milliseconds of `true` under the shim of an enabled user, and without it, run by
    run. Raises MeasurementError."""
    program = shutil.which("true")
    if program is None:
        raise MeasurementError("there is no program `true`")
    plain = {"PATH": os.defpath}
    shim = str(options.tools.lib_dir / "libpump.so")
    enabled = {**plain, "LD_PRELOAD": shim, "PUMP_JOBS": str(folder / "rules")}
    times: tuple[list[float], list[float]] = [], []
    for _ in range(TRUES):
        for environ, kept in zip((enabled, plain), times, strict=True):
            begin_ns = time.perf_counter_ns()
            pid = os.posix_spawn(program, [program], environ)
            _, status = os.waitpid(pid, 0)
            kept.append((time.perf_counter_ns() - begin_ns) * MS)
            if status != 0:
                raise MeasurementError(f"`true` ended with status {status}")
    return times


def added(with_pump: Sequence[float], without: Sequence[float]) -> list[float]:
    """Returns the differences, round by round."""
    return [one - other for one, other in zip(with_pump, without, strict=True)]


def run(options: Options) -> Iterator[Row]:
    """Yields the results in the order of the list above."""
    adopt_orphans()
    with tempfile.TemporaryDirectory(prefix="pump-b-") as folder:
        enabled, bare = trues(options, Path(folder))
        bench = Bench(options, Path(folder))
        rounds(
            {kind: (lambda kind=kind: bench.start(kind)) for kind in bench.jobs}, options.pairs, 1
        )
    plain, pump, recorded = (jobs[1:] for jobs in bench.jobs.values())
    for name, field in (("pump_run_ms", "main"), ("pump_run_cpu_ms", "main_cpu")):
        with_, without = ([getattr(job.first, field) for job in jobs] for jobs in (pump, plain))
        result = compare(with_, without)
        value = median(added(with_, without))
        yield compared(f"start.{name}", result, "ms", baseline="without pump-run", value=value)
    figures = {
        "cuinit_ms": added([job.first.init for job in pump], [job.first.init for job in plain]),
        "cuinit_cpu_ms": [job.first.init_cpu for job in pump],
        "cuinit_later_ms": [job.later.init for job in pump],
        "cuinit_recorded_ms": [job.first.init for job in recorded],
        "pumpd_cpu_ms": [job.pumpd_cpu for job in pump],
    }
    for name, values in figures.items():
        yield Row(f"start.{name}", median(values), "ms", interval=interval(values), max=max(values))
    yield compared(
        "start.enabled_true_ms",
        compare(enabled, bare),
        "ms",
        baseline="without the shim",
        value=median(added(enabled, bare)),
    )
