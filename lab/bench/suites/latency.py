"""Latency: from a launch to the driver call that prefetches its block, through the daemon.

DESIGN
  A program runs under pump-run, with its own worker like any job. Its driver does nothing
  (null_driver/) except log prefetches with their times (latency_driver.c). The program launches
  kernels whose single block is not on the GPU, a few milliseconds apart, so that worker and
  executors sleep at each launch. A sample is the time from just before the launch to the entry of
  that driver call.

    `latency.idle_us`   On an otherwise idle machine.
    `latency.busy_us`   With two other programs that compute all the time.

  The value is the median. The row also has `p90`, `p99`, `max`, and `missing`: the number of
  samples without a prefetch within 0.2 s, which count as that long. All processes run on the last
  CPUS cores, so that the busy programs compete with all of pump's threads.

  With --record FOLDER, the suite instead measures how late a woken worker and executor run. Both do
  a tick's work each time (wake_ups.c). It writes FOLDER/idle.toml and busy.toml for the simulator.

    `latency.wake.idle_us`, `latency.wake.busy_us`   `case`: worker or executor.

  Other load on the machine changes these delays. So samples are taken only when only threads of the
  busy programs and the polling thread are runnable. `quiet`: the share of polls that found this.

Options after "--": --samples N (default 1,000, with --record 20,000, and with --quick 100),
--record FOLDER.
"""

from __future__ import annotations

import argparse
import os
import platform
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness import (
    ROOT,
    MeasurementError,
    Options,
    Row,
    Tools,
    child,
    compile_c,
    computing,
    cpu_model,
    cpus,
    interval,
    percentile,
    pin,
)

SAMPLES, SAMPLES_RECORDED, SAMPLES_QUICK = 1000, 20_000, 100
PAUSE_US = 3000
BESIDE = 2
CPUS = 2
MISSING_US = 200_000.0
BUDGET = "512MiB"
"""Half of the program's allocations."""

SECONDS_MAX = 280

PERCENTS = (0, 1, 5, 10, 25, 50, 75, 90, 95, 97, 98, 99, 99.5, 99.9, 99.99, 100)
WAKE_PAUSE_US = 100
"""Makes samples follow each other about as fast as ticks in a simulated training."""
WORK_US = 30
"""Work of a tick: `Daemon` in pump_lab.sim.simulation."""
QUIET_SECONDS_MAX = 300
"""Time limit of the search for moments without other load."""


def build(tools: Tools) -> tuple[Path, Path]:
    """Builds driver and program; returns the driver's folder and the program."""
    here = ROOT / "lab" / "bench" / "load_generators"
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


def measure(tools: Tools, samples: int) -> list[float]:
    """Returns latencies in us, in order; MISSING_US for a launch without a prefetch."""
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


def row(name: str, found: Sequence[float], **more: object) -> Row:
    """Returns the row of one run."""
    return Row(
        name,
        percentile(found, 50),
        "us",
        interval=interval(found),
        p90=percentile(found, 90),
        p99=percentile(found, 99),
        max=max(found),
        samples=len(found),
        **more,
    )


# ---- wake-ups --------------------------------------------------------------------


@dataclass(frozen=True)
class Recorded:
    """Delays in ns, in order. `looks`: polls of the machine until it was quiet for each."""

    worker_ns: list[int]
    executor_ns: list[int]
    looks: int


def recorded(program: Path, samples: int, beside: int, seconds_max: int) -> Recorded:
    """Measures at moments without other load, or at any moment if `seconds_max` is 0.

    Raises MeasurementError if there are too few such moments.
    """
    words = (samples, beside, seconds_max, WAKE_PAUSE_US, WORK_US)
    with computing(beside):
        text = child([str(program), *map(str, words)], seconds_max=seconds_max + SECONDS_MAX)
    lines = [[int(word) for word in line.split()] for line in text.splitlines()]
    if len(lines) < samples:
        raise MeasurementError(
            f"{len(lines)} of {samples} moments without other load in {seconds_max} s; record "
            "on an idle machine, or fewer samples (--samples)"
        )
    looks, worker_ns, executor_ns = map(list, zip(*lines, strict=True))
    return Recorded(worker_ns, executor_ns, sum(looks))


def as_toml(found: Recorded, beside: int) -> str:
    """Returns a file for lab/pump_lab/sim/wakeups."""
    lines = [
        "# How much later than its wake-up a thread of pump runs: percents of all, and ns.",
        f"percents = [{', '.join(f'{percent:g}' for percent in PERCENTS)}]",
    ]
    for name, delays in (("worker_ns", found.worker_ns), ("executor_ns", found.executor_ns)):
        quantiles = ", ".join(f"{percentile(delays, percent):.0f}" for percent in PERCENTS)
        lines.append(f"{name} = [{quantiles}]")
    lines += [
        "",
        "[conditions]",
        f'processor = "{cpu_model()}"',
        f"processors = {CPUS}",
        f'kernel = "{platform.release()}"',
        f"computing_beside = {beside}",
        f"samples = {len(found.worker_ns)}",
        f"looks = {found.looks}",
        f"load = {os.getloadavg()[0]:.2f}",
    ]
    return "\n".join(lines) + "\n"


def record(options: Options, samples: int, folder: Path) -> Iterator[Row]:
    """Writes both files, and yields a row for each distribution."""
    source = ROOT / "lab" / "bench" / "load_generators" / "wake_ups.c"
    program = compile_c(options.tools, "wake_ups", [source], "-lpthread")
    for name, beside in (("idle", 0), ("busy", BESIDE)):
        found = recorded(program, samples, beside, 0 if options.quick else QUIET_SECONDS_MAX)
        (folder / f"{name}.toml").write_text(as_toml(found, beside))
        for case, delays in (("worker", found.worker_ns), ("executor", found.executor_ns)):
            yield row(
                f"latency.wake.{name}_us",
                [delay / 1000 for delay in delays],
                case=case,
                beside=beside,
                quiet=len(delays) / found.looks,
                mean=sum(delays) / len(delays) / 1000,
            )


# ---- the suite -------------------------------------------------------------------


def run(options: Options) -> Iterator[Row]:
    """Yields latency.idle_us and latency.busy_us, or with --record latency.wake.*."""
    parser = argparse.ArgumentParser(prog="scripts/bench latency --")
    parser.add_argument("--samples", type=int)
    parser.add_argument(
        "--record", type=Path, metavar="FOLDER", help="such as lab/pump_lab/sim/wakeups"
    )
    chosen = parser.parse_args(options.rest)
    usual = SAMPLES_RECORDED if chosen.record else SAMPLES
    samples = chosen.samples or (SAMPLES_QUICK if options.quick else usual)
    if samples < 1:
        parser.error("--samples must be 1 or more")
    if chosen.record and not chosen.record.is_dir():
        parser.error(f"--record: {chosen.record} is no folder")
    with pin(*cpus()[-CPUS:]):
        if chosen.record:
            yield from record(options, samples, chosen.record)
            return
        for name, beside in (("idle", 0), ("busy", BESIDE)):
            with computing(beside):
                found = measure(options.tools, samples)
            missing = found.count(MISSING_US)
            yield row(f"latency.{name}_us", found, beside=beside, missing=missing)
