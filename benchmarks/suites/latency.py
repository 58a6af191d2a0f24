"""Latency: from a launch to the driver call that brings its block, through the daemon.

DESIGN
  A program under pump-run, with a worker of its own as any job has. It runs on a driver
  that does nothing (null_driver/) but note when it is asked for a prefetch
  (latency_driver.c). The program launches kernels whose one block is known not to be on
  the GPU, a few milliseconds apart, so that worker and executors sleep when it comes. A
  sample is the time from just before the launch to the entry of that driver call.

    latency.idle_us   on an otherwise idle machine
    latency.busy_us   beside two programs that compute all the time

  The value is the median; `p90`, `p99` and `max` stand beside it, and how many samples
  saw no prefetch within 0.2 s (`missing`): they count as that long. All processes
  run on the last CPUS processors, so that the busy programs compete with all of pump's threads.

Options after "--": --samples N (default 1,000, and 100 with --quick).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from harness import (
    ROOT,
    MeasurementError,
    Options,
    Row,
    Tools,
    child,
    compile_c,
    cpus,
    interval,
    percentile,
    pin,
)

SAMPLES, SAMPLES_QUICK = 1000, 100
PAUSE_US = 3000
HOGS = 2
CPUS = 2
MISSING_US = 200_000.0
BUDGET = "512MiB"
"""Half of what the program allocates."""

SECONDS_MAX = 280


def build(tools: Tools) -> tuple[Path, Path]:
    """Builds driver and program; returns the driver's folder and the program."""
    here = ROOT / "benchmarks" / "feeders"
    folder = tools.work / "latency"
    inside = Tools(python=tools.python, root=tools.root, work=folder)
    headers = (f"-I{here}",)
    sources = [here / "latency_driver.c", *sorted((here / "null_driver").glob("*.c"))]
    shared = ("-shared", "-fPIC", "-fvisibility=hidden", "-Wl,-soname,libcuda.so.1")
    compile_c(inside, "libcuda.so.1", sources, *headers, *shared)
    program = compile_c(
        inside,
        "latency_program",
        [here / "latency_program.c"],
        *headers,
        f"-L{folder}",
        f"-Wl,-rpath,{folder}",
        "-l:libcuda.so.1",
    )
    return folder, program


@contextlib.contextmanager
def hogs(program: Path, count: int) -> Iterator[None]:
    """Keeps `count` processes computing while the block runs.

    Raises MeasurementError when one of them has ended by itself.
    """
    running = [subprocess.Popen([program, "hog"]) for _ in range(count)]
    try:
        yield
        if any(process.poll() is not None for process in running):
            raise MeasurementError("a program that should have kept a CPU busy has ended")
    finally:
        for process in running:
            process.kill()
            process.wait()


def measure(tools: Tools, samples: int) -> list[float]:
    """Latencies in us, in order; MISSING_US where no prefetch came."""
    folder, program = build(tools)
    path = ":".join(p for p in (str(folder), os.environ.get("LD_LIBRARY_PATH", "")) if p)
    text = child(
        [tools.pump_run, "--budget", BUDGET, "--", str(program), str(samples), str(PAUSE_US)],
        {"LD_LIBRARY_PATH": path, "PUMP_LIB_DIR": str(tools.lib_dir)},
        SECONDS_MAX,
    )
    found = [MISSING_US if word == "missing" else float(word) for word in text.split()]
    if len(found) != samples:
        raise MeasurementError(f"{samples} samples wanted, the program printed {len(found)}")
    if found.count(MISSING_US) > samples // 10:
        raise MeasurementError(
            f"{found.count(MISSING_US)} of {samples} launches saw no prefetch: no worker, "
            "or it does not know that their blocks are missing"
        )
    return found


def row(name: str, found: list[float], **more: int) -> Row:
    """The figures of one run."""
    return Row(
        name,
        percentile(found, 50),
        "us",
        interval=interval(found),
        p90=percentile(found, 90),
        p99=percentile(found, 99),
        max=max(found),
        samples=len(found),
        missing=found.count(MISSING_US),
        **more,
    )


def run(options: Options) -> Iterator[Row]:
    """Yields latency.idle_us and latency.busy_us."""
    parser = argparse.ArgumentParser(prog="scripts/bench latency --")
    parser.add_argument("--samples", type=int, default=SAMPLES_QUICK if options.quick else SAMPLES)
    samples = parser.parse_args(options.rest).samples
    if samples < 1:
        parser.error("--samples must be 1 or more")
    with pin(*cpus()[-CPUS:]):
        yield row("latency.idle_us", measure(options.tools, samples))
        _, program = build(options.tools)
        with hogs(program, HOGS):
            yield row("latency.busy_us", measure(options.tools, samples), hogs=HOGS)
