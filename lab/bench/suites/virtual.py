"""Programs of examples/ on the virtual GPU: pump's policies against naive Unified Memory.

DESIGN
  A round runs the same program once in each mode, in a rotating order. Modes are unlimited (without
  pump, memory for everything), naive (without pump, on Unified Memory), and each policy. Each run
  is a separate process; its value is the time of its timed iterations, which the program measures.
  Ratios are taken within a round. Rows, for each oversubscription (footprint / memory):

    `virtual.<program>.<policy>.speedup`       Naive seconds / policy seconds.
    `virtual.<program>.<policy>.over_demand`   Demand seconds / policy seconds, if both were
                                               requested: pump's demand paging, on the same budget.
    `virtual.<program>.<policy>.of_floor`      Floor / policy seconds; the floor is the minimum of
                                               any policy (examples/floor.py).
    `virtual.change.planned.relearned`         The slowest step from the third on after a change of
                                               batch size / the median step of a training with only
                                               that size. A step's time is its least over rounds.
    `virtual.change.planned.worst_step`        A step / the same step under demand: the maximum.
    `virtual.change.planned.steps`             Seconds of each step.
    `virtual.sync.window`                      Demand seconds / window seconds of the training that
                                               waits after each iteration, or each launch.
    `virtual.stops.planned`                    Seconds with a running worker / with a worker that is
                                               stopped for 50 of every 200 ms (worker_stops.py),
                                               both under planned. The row has the stops of a run.

  Programs: train (examples/train_mlp.py as trained by scripts/quickstart), sweep, gather. A gather
  has no floor here: its pages are unknown before they are read.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import cyclic_sweep
import floor
import irregular_gather
from harness import (
    ROOT,
    MeasurementError,
    Options,
    Row,
    child,
    compare,
    compared,
    computing,
    cpus,
    host_kernels,
    pin,
    rounds,
    virtual_facts,
)
from quickstart import workload as quickstart
from study import virtual_change
from study.worker_stops import stopping

UNLIMITED, NAIVE, DEMAND, WINDOW = "unlimited", "naive", "demand", "window"
PLANNED = "planned"
PROFILE = "a100-pcie4"
STOPPED = "planned, worker stopped"
PARTS = ("train", "sync", "sweep", "gather", "stops", "change")
CPUS_MOST = 4
"""Enough for a program, its worker and the virtual GPU's threads: with more, threads migrate."""

SPARE_BYTES = 512 << 20
SECONDS_MAX = 240

SWEEP = ["--buffers=16", "--buffer-mib=64"]
GATHER = ["--table-mib=1024", "--rows=256", "--launches=32"]
# A kernel takes as long as the link needs for a third of the kernel's bytes. A gather works for
# half a millisecond on its rows.
SWEEP_KERNEL = {"kernel.sweep.gbps": "60"}
GATHER_KERNEL = {"kernel.gather.min_us": "500"}

Way = TypeVar("Way", bound=Hashable)
FloorSeconds = Callable[[float, float, float], float]


@dataclass(frozen=True)
class Program:
    """A program of examples/ with its options. `settings`: of the virtual GPU.

    `floor_seconds(oversubscription, compute seconds, link bytes per second)`, if known.
    """

    name: str
    words: list[str]
    footprint_bytes: int
    settings: dict[str, str] = field(default_factory=dict)
    floor_seconds: FloorSeconds | None = None

    def memory_bytes(self, ratio: float) -> int:
        return int(self.footprint_bytes / ratio) // floor.BLOCK_BYTES * floor.BLOCK_BYTES


@dataclass(frozen=True)
class Figures:
    """Results of one run: seconds of the timed iterations; bytes and faults of the whole run. If a
    training waits after each step, `waits_s` has the ends of these waits in seconds from the start.
    """

    seconds: float
    h2d_bytes: int
    d2h_bytes: int
    faults: int
    stops: int = 0
    waits_s: tuple[float, ...] = ()


def trained(quick: bool) -> quickstart.Workload:
    return replace(quickstart.RESULTS, iterations=6) if quick else quickstart.SPEED


def training(quick: bool) -> Program:
    """Returns the training of scripts/quickstart, or with `quick` its small model."""
    work = trained(quick)
    words = ["train_mlp.py", *work.options()]
    return Program("train", words, work.footprint_bytes, floor_seconds=work.floor_seconds)


def sweeping(quick: bool) -> Program:
    words = ["--buffers=12", "--buffer-mib=8"] if quick else SWEEP
    options = cyclic_sweep.parse(words)
    blocks = options.buffer_mib * (1 << 20) // floor.BLOCK_BYTES
    touches = [
        floor.Touch((), tuple(range(first, first + blocks)), ())
        for first in range(0, blocks * options.buffers, blocks)
    ]
    footprint = cyclic_sweep.footprint_bytes(options)

    def floor_seconds(ratio: float, compute_seconds: float, link: float) -> float:
        repeats = options.iterations - options.warm_up
        least = floor.least_traffic(touches, repeats, int(footprint / ratio))
        return floor.floor_seconds(compute_seconds, least, link)

    words = ["cyclic_sweep.py", *words]
    return Program("sweep", words, footprint, SWEEP_KERNEL, floor_seconds)


def gathering(quick: bool) -> Program:
    words = ["--table-mib=96", "--rows=64", "--launches=8"] if quick else GATHER
    footprint = irregular_gather.footprint_bytes(irregular_gather.parse(words))
    return Program("gather", ["irregular_gather.py", *words], footprint, GATHER_KERNEL)


def medians(runs: Sequence[Figures]) -> dict[str, int]:
    """Returns the medians of bytes and faults over the runs."""
    keys = ("h2d_bytes", "d2h_bytes", "faults")
    return {key: int(statistics.median(getattr(run, key) for run in runs)) for key in keys}


NOT_SERVED = ("no pumpd served this", "pumpd's worker died", "pump saw no operation finish")
"""Reasons in pump's last line (docs/guides/why.md)."""


def check_presence(log: str) -> None:
    """Raises MeasurementError unless pump's summary shows that a worker served to the end.

    Without a worker a job continues under demand paging, and its time would not be pump's.
    """
    if "the budget" not in log or any(reason in log for reason in NOT_SERVED):
        tail = "\n".join(log.splitlines()[-8:])
        raise MeasurementError(f"pump did not serve the program to its end:\n{tail}")


class Bench:
    """Runs programs on one profile and makes rows of their times."""

    def __init__(self, options: Options, profile: str, kernels: Path, work: Path) -> None:
        self._options = options
        self._profile = profile
        self._facts = virtual_facts(profile, "timing")
        self._link = quickstart.link_bytes_per_second(profile)
        self._kernels = kernels
        self._work = work
        self._python = options.tools.python
        self._pump_run = options.tools.pump_run

    @property
    def facts(self) -> dict[str, Any]:
        """Returns the facts about the modelled machine, which each row has."""
        return self._facts

    def run(self, program: Program, policy: str, ratio: float) -> Figures:
        """Runs once. Raises MeasurementError if the run fails or breaks a rule of the driver."""
        result, report, log = (self._work / n for n in ("result.json", "driver.json", "pump.log"))
        for file in (result, report, log):
            file.unlink(missing_ok=True)
        unlimited = policy == UNLIMITED
        memory = program.footprint_bytes + SPARE_BYTES if unlimited else program.memory_bytes(ratio)
        settings = {"memory": str(memory), "mode": "timing", **program.settings}
        command = [self._pump_run, "--log-file", str(log), "--virtual", self._profile]
        for key, value in settings.items():
            command += ["--virtual-set", f"{key}={value}"]
        environ = {
            "PUMP_VIRTUAL_REPORT": str(report),
            "PUMP_VIRTUAL_KERNELS": str(self._kernels),
        }
        words = [str(ROOT / "examples" / program.words[0]), *program.words[1:], "--no-hash"]
        if policy in (UNLIMITED, NAIVE):
            environ["PUMP_DISABLE"] = "1"
            words += ["--managed"] if policy == NAIVE else []
        else:
            command += ["--policy", policy.partition(" ")[0].rstrip(",")]
        stopped = policy == STOPPED
        with stopping(log) if stopped else nullcontext([]) as stops:
            whole = [*command, "--", self._python, *words, "--json", str(result)]
            child(whole, environ, SECONDS_MAX)
        if policy not in (UNLIMITED, NAIVE):
            check_presence(log.read_text())
        if stopped and not stops:
            raise MeasurementError(
                "the worker was never stopped: no process of that name was found"
            )
        found, driver = json.loads(result.read_text()), json.loads(report.read_text())
        if driver["violations"]:
            raise MeasurementError(f"the virtual driver saw {driver['violations_by_check']}")
        moved = driver["h2d_bytes"], driver["d2h_bytes"], driver["faults"]
        waits_s = tuple(found.get("waits_s", ()))
        return Figures(found["seconds"], *moved, len(stops), waits_s)

    def rounds(
        self, program: Program, policies: Sequence[str], ratio: float, *more: str
    ) -> dict[str, list[Figures]]:
        """Returns the results of each policy, round by round."""
        ways = {policy: (replace(program, words=[*program.words, *more]), policy)
                for policy in policies}  # fmt: skip
        return self.turns(ways, ratio)

    def turns(
        self, ways: Mapping[Way, tuple[Program, str]], ratio: float
    ) -> dict[Way, list[Figures]]:
        """Returns the results of programs under policies, which run in a rotating order."""
        found: dict[Way, list[Figures]] = {way: [] for way in ways}

        def measure(way: Way) -> Callable[[], float]:
            def once() -> float:
                figures = self.run(*ways[way], ratio)
                found[way].append(figures)
                return figures.seconds

            return once

        rounds({str(way): measure(way) for way in ways}, self._options.pairs)
        return found

    def row(
        self,
        name: str,
        place: tuple[Program, float],
        first: tuple[str, Sequence[float]],
        runs: Sequence[Figures],
        **more: Any,
    ) -> Row:
        """Returns the row of seconds of `first` / seconds of `runs`.

        `first`: name and seconds. `place`: program and oversubscription. Bytes and faults are
        medians of `runs`.
        """
        program, ratio = place
        baseline, seconds = first
        facts = {**self._facts, "profile_settings": program.settings, "oversubscription": ratio}
        result = compare(seconds, [run.seconds for run in runs])
        return compared(name, result, "x", baseline=baseline, **facts, **medians(runs), **more)

    def against_naive(
        self, program: Program, ratio: float, policies: Sequence[str]
    ) -> Iterator[Row]:
        """Yields the rows of one program at one oversubscription."""
        found = self.rounds(program, (UNLIMITED, NAIVE, *policies), ratio)
        place = program, ratio
        naive = NAIVE, [run.seconds for run in found[NAIVE]]
        moved = {f"naive_{key}": value for key, value in medians(found[NAIVE]).items()}
        least = [
            program.floor_seconds(ratio, run.seconds, self._link)
            for run in found[UNLIMITED]
            if program.floor_seconds
        ]
        for policy in policies:
            name, runs = f"virtual.{program.name}.{policy}", found[policy]
            yield self.row(f"{name}.speedup", place, naive, runs, **moved)
            if policy != DEMAND and DEMAND in policies:
                demand = DEMAND, [run.seconds for run in found[DEMAND]]
                yield self.row(f"{name}.over_demand", place, demand, runs)
            if least:
                yield self.row(f"{name}.of_floor", place, ("floor", least), runs)

    def synchronous(self, program: Program, ratio: float) -> Iterator[Row]:
        """Yields rows of the program that waits for the GPU all the time: window against demand."""
        for step in ("iteration", "launch"):
            found = self.rounds(program, (DEMAND, WINDOW), ratio, f"--sync-every-step={step}")
            demand = DEMAND, [run.seconds for run in found[DEMAND]]
            place, runs = (program, ratio), found[WINDOW]
            yield self.row("virtual.sync.window", place, demand, runs, sync_every=step)

    def stops(self, program: Program, ratio: float) -> Iterator[Row]:
        """Yields the row of a worker that is stopped repeatedly, against one that runs."""
        found = self.rounds(program, (PLANNED, STOPPED), ratio)
        running = "a worker that runs", [run.seconds for run in found[PLANNED]]
        yield self.row(
            "virtual.stops.planned",
            (program, ratio),
            running,
            found[STOPPED],
            stops=statistics.median(run.stops for run in found[STOPPED]),
        )


def parse(arguments: list[str]) -> argparse.Namespace:
    """Returns the options of the suite; exits with status 2 on a bad one."""
    parser = argparse.ArgumentParser(prog="scripts/bench virtual --")
    parser.add_argument("--only", action="append", choices=PARTS, help="may be repeated")
    parser.add_argument("--ratio", action="append", type=float, help="oversubscription")
    parser.add_argument(
        "--policy",
        action="append",
        choices=(WINDOW, PLANNED, DEMAND),
        help="may be repeated (default: all)",
    )
    parser.add_argument("--profile", default=PROFILE)
    parser.add_argument(
        "--beside", type=int, default=0, metavar="N", help="processes that compute beside it"
    )
    options = parser.parse_args(arguments)
    if any(not 1 < ratio <= 8 for ratio in options.ratio or ()):
        parser.error("--ratio must lie above 1, up to 8")
    return options


def run(options: Options) -> Iterator[Row]:
    chosen = parse(options.rest)
    kernels = host_kernels()
    ratios = chosen.ratio or ([1.5] if options.quick else list(quickstart.RATIOS))
    parts = chosen.only or PARTS
    quick = options.quick
    pinned = pin(*cpus()[:CPUS_MOST])
    with tempfile.TemporaryDirectory() as work, pinned, computing(chosen.beside):
        bench = Bench(options, chosen.profile, kernels, Path(work))
        for part, make in (("train", training), ("sweep", sweeping), ("gather", gathering)):
            if part in parts:
                for ratio in ratios:
                    policies = chosen.policy or (WINDOW, PLANNED, DEMAND)
                    yield from bench.against_naive(make(quick), ratio, policies)
        if "sync" in parts:
            yield from bench.synchronous(training(quick), ratios[0])
        if "stops" in parts:
            for ratio in ratios:
                yield from bench.stops(training(quick), ratio)
        if "change" in parts:
            for ratio in ratios:
                batch = trained(quick).model.batch
                yield from virtual_change.rows(bench, training(quick), batch, ratio)
