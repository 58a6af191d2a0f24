"""The lost time that pump reports for a run, against the program with memory for everything.

DESIGN
  Each program runs on a virtual GPU that is too small, and on one with enough memory. The truth is
  the program's own time on the first less its time on the second. Other processes can only make a
  run longer, so the shortest run with enough memory counts. Rows, for each program:

    `lost.<program>`   Seconds that pump reports. `baseline`: the truth. `least_s`, `most_s`,
                       `run_s`: the range, and the run. All are medians of the rounds, and `ratio`
                       is their ratio. `met`: of `runs`, the number with a report within 10 % of the
                       truth or 1 % of the run. `held`: the number with the truth in the range.
                       `room_spread_s`: spread of the runs with enough memory, a limit of the
                       truth's precision.

  For two_jobs, an equal training runs on the same GPU at the same time, also with enough memory.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from harness import (
    ROOT,
    MeasurementError,
    Options,
    Row,
    child,
    host_kernels,
    median,
    virtual_facts,
)

PROFILE = "a100-pcie4"
PERTURBED = {
    "link.prefetch_h2d_gbps": "12",
    "uvm.fault_base_us": "45",
    "uvm.fault_block_us": "25",
    "uvm.evict_us": "60",
    "kernels.default_gbps": "600",
}
"""Another GPU, whose costs pump does not know."""
FITS = 0.25
"""Footprint / memory of the runs with enough memory."""
NEAR, NEARLY_NONE = 0.10, 0.01
"""Tolerances: a share of the truth, and a share of the run."""
ROUNDS_MOST = 5
SECONDS_MAX = 240

ENDLESS = ("--iterations=1000000", "--report-every=5")

MLP = ("--width=2048", "--layers=10", "--batch=512", "--warm-up=0", "--report-every=0")
DEEP = ("--width=2048", "--layers=24", "--batch=512", "--warm-up=0", "--report-every=0")
SMALL = ("--width=768", "--layers=24", "--batch=64", "--warm-up=0", "--report-every=0")
SMALL_KERNELS = {f"kernel.dense_{name}.gbps": "1300"
                 for name in ("forward", "backward_weights", "backward_input")}  # fmt: skip
SWEEP = ("--buffers=16", "--buffer-mib=32", "--warm-up=0")
SWEEP_KERNEL = {"kernel.sweep.gbps": "60"}
"""At this rate, a kernel takes as long as the link needs for a third of the kernel's bytes."""


@dataclass(frozen=True)
class Program:
    """`file`: below the root. `ratio`: footprint / memory. `settings`: of the virtual GPU.
    `beside`: a second job, which keeps running, shares the GPU."""

    name: str
    file: str
    words: tuple[str, ...]
    ratio: float
    policy: str = "window"
    settings: dict[str, str] = field(default_factory=dict)
    beside: bool = False


def programs(quick: bool) -> list[Program]:
    train, sweep = "examples/train_mlp.py", "examples/cyclic_sweep.py"
    infer = "lab/bench/load_generators/infer_mlp.py"

    def of(words: Sequence[str], iterations: int, *more: str) -> tuple[str, ...]:
        return (*words, f"--iterations={3 if quick else iterations}", *more)

    return [
        Program("fits", train, of(MLP, 40), FITS),
        Program("slightly", train, of(MLP, 40), 1.2),
        Program("twice", train, of(MLP, 40), 2),
        Program("twice.planned", train, of(MLP, 40), 2, "planned"),
        Program("waits.iteration", train, of(MLP, 40, "--sync-every-step"), 1.5),
        Program("waits.launch", train, of(MLP, 20, "--sync-every-step=launch"), 2),
        Program("host_bound", sweep, of(SWEEP, 30, "--pause-ms=40"), 1.2, settings=SWEEP_KERNEL),
        Program("small_kernels", train, of(SMALL, 42), 1.3, settings=SMALL_KERNELS),
        Program("inference", infer, of(DEEP, 40, "--sync-every-step"), 1.5),
        Program("inference.planned", infer, of(DEEP, 40, "--sync-every-step"), 1.5, "planned"),
        Program("two_jobs", train, of(MLP, 160), 1.7, beside=True),
        Program("slightly.demand", train, of(MLP, 40), 1.2, "demand"),
        Program("twice.demand", train, of(MLP, 40), 2, "demand"),
    ]


@dataclass(frozen=True)
class Told:
    """Seconds of one run: by the program's own clock, and as its worker reports."""

    run: float
    lost: float
    least: float
    most: float

    def meets(self, truth: float) -> bool:
        return abs(self.lost - truth) <= max(NEAR * truth, NEARLY_NONE * self.run)

    def holds(self, truth: float) -> bool:
        spare = NEARLY_NONE * self.run
        return self.least - spare <= truth <= self.most + spare


class Bench:
    """Runs programs, each on a new virtual GPU."""

    def __init__(self, options: Options, kernels: Path, work: Path, more: dict[str, str]) -> None:
        self._tools = options.tools
        self._kernels = kernels
        self._work = work
        self._more = more
        self._count = 0

    def footprint_bytes(self, program: Program) -> int:
        words = [str(ROOT / program.file), *program.words, "--footprint"]
        return int(child([self._tools.python, *words])) * (2 if program.beside else 1)

    def run(self, program: Program, memory_bytes: int, record: bool) -> Told:
        """Runs the program; returns its times. Raises MeasurementError."""
        self._count += 1
        folder = self._work / str(self._count)
        folder.mkdir()
        settings = {"memory": str(memory_bytes), "mode": "timing", **program.settings, **self._more}
        if program.beside:
            settings["shared"] = f"lost-{os.getpid()}-{self._count}"
        command = [self._tools.pump_run, "--virtual", PROFILE, "--policy", program.policy]
        for key, value in settings.items():
            command += ["--virtual-set", f"{key}={value}"]
        words = [self._tools.python, str(ROOT / program.file), *program.words, "--no-hash"]
        environ = {
            "PUMP_VIRTUAL_KERNELS": str(self._kernels),
            "PUMP_VIRTUAL_CARDS": str(folder),
        }
        figures = {
            "PUMP_SUMMARY": str(folder / "counters.json"),
            "PUMP_VIRTUAL_REPORT": str(folder / "driver.json"),
        }
        recorded = ["--record", str(folder / "run.pump")] if record else []
        whole = [*command, *recorded, "--", *words, "--json", str(folder / "result.json")]
        neighbour = [*command, "--", *words, *ENDLESS]
        with beside(neighbour, environ, folder) if program.beside else nullcontext():
            child(whole, {**environ, **figures}, SECONDS_MAX)
        return told(folder)


@contextmanager
def beside(command: list[str], environ: Mapping[str, str], folder: Path) -> Iterator[None]:
    """Runs a neighbour that trains during the block. Raises MeasurementError if it has ended."""
    said = folder / "neighbour"
    with said.open("wb") as file:
        process = subprocess.Popen(
            command,
            env={**os.environ, **environ},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
        )
    try:
        until = time.monotonic() + SECONDS_MAX
        while b"iteration" not in said.read_bytes():
            if process.poll() is not None or time.monotonic() > until:
                raise MeasurementError(f"no neighbour: {said.read_text(errors='replace')}")
            time.sleep(0.02)
        yield
        if process.poll() is not None:
            raise MeasurementError(f"the neighbour ended: {said.read_text(errors='replace')}")
    finally:
        process.kill()
        process.wait()


def told(folder: Path) -> Told:
    """Reads the results in a job's folder. Raises MeasurementError."""
    driver, result, counters = (
        json.loads((folder / f"{name}.json").read_text())
        for name in ("driver", "result", "counters")
    )
    if driver["violations"]:
        raise MeasurementError(f"the virtual driver saw {driver['violations_by_check']}")
    names = ("lost_ns", "lost_least_ns", "lost_most_ns")
    return Told(float(result["seconds"]), *(counters["worker"][name] / 1e9 for name in names))


def row(bench: Bench, program: Program, count: int, record: bool, more: dict[str, str]) -> Row:
    """Measures one program; returns its row."""
    footprint = bench.footprint_bytes(program)
    tight, room = [], []
    for _ in range(count):
        tight.append(bench.run(program, int(footprint / program.ratio), record))
        room.append(bench.run(program, int(footprint / FITS), record=False))
    shortest = min(run.run for run in room)
    truths = [run.run - shortest for run in tight]
    both = list(zip(tight, truths, strict=True))
    lost_s, truth_s = median(run.lost for run in tight), median(truths)
    run_s = median(run.run for run in tight)
    return Row(
        f"lost.{program.name}",
        lost_s,
        "s",
        truth_s,
        ratio=lost_s / truth_s if truth_s > NEARLY_NONE * run_s else None,
        least_s=median(run.least for run in tight),
        most_s=median(run.most for run in tight),
        run_s=run_s,
        met=sum(run.meets(truth) for run, truth in both),
        held=sum(run.holds(truth) for run, truth in both),
        runs=len(both),
        room_spread_s=max(run.run for run in room) - shortest,
        each_s=[[run.lost, truth, run.run] for run, truth in both],
        policy=program.policy,
        oversubscription=program.ratio,
        profile_settings={**program.settings, **more},
        **virtual_facts(PROFILE, "timing"),
    )


def parse(arguments: list[str]) -> argparse.Namespace:
    """Returns the options of the suite; exits with status 2 on a bad one."""
    names = [program.name for program in programs(True)]
    parser = argparse.ArgumentParser(prog="scripts/bench lost --")
    parser.add_argument("--only", action="append", choices=names, help="may be repeated")
    parser.add_argument("--record", action="store_true", help="record what is short of memory")
    parser.add_argument(
        "--perturbed", action="store_true", help="on a card with other costs than the profile's"
    )
    return parser.parse_args(arguments)


def run(options: Options) -> Iterator[Row]:
    chosen = parse(options.rest)
    kernels = host_kernels()
    more = PERTURBED if chosen.perturbed else {}
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(options, kernels, Path(folder), more)
        for program in programs(options.quick):
            if program.name in (chosen.only or [program.name]):
                count = min(options.pairs, ROUNDS_MOST)
                yield row(bench, program, count, chosen.record, more)
