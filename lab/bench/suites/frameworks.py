"""PyTorch's transformer on the virtual GPU: speed, dead bytes, and the case that fits.

DESIGN
  transformer_train.py runs once in each mode of a round, in turn, each time in a separate process.
  Ratios are taken within a round. Kernels compute nothing, but PyTorch, its allocator and the calls
  are real, and so are pump's shim and worker. All modes run under allocator_probe.c, which logs the
  blocks that the allocator hands out. Rows, at each oversubscription (most bytes that PyTorch
  reserves / memory):

    `virtual.transformer.<mode>.speedup`     Naive seconds / its seconds.
    `virtual.transformer.<mode>.of_floor`    Floor / its seconds.
    `virtual.transformer.window.expandable.of_native`   Seconds of window.native / its seconds.
    `transformer.dead_bytes.<mode>`    Bytes without an owner when they were copied to the host, in
                                       the whole run. By kind: `free_bytes`, `handed_bytes`,
                                       `part_bytes` (dead_bytes.py). `live_bytes`: the other bytes.
                                       `fewer`: the share of naive's dead bytes that is saved.
                                       `fewer_at_most`: the same if all of `free_bytes` were
                                       discarded too; a discard that runs alongside kernels cannot
                                       save more. `free_share`: `free_bytes` / all bytes that left.
    `transformer.fits.time`, `.cpu`    With pump / without, if everything fits, of the timed
                                       iterations. CPU time is of the program's process,
                                       including the shim's threads.
    `transformer.fits.instructions`    With pump / without, of an iteration (instructions.py). The
                                       row has the way of counting and the shape.

  <mode> is the policy with granularity `tensor`. With `.native` at the end, PyTorch's own allocator
  cuts the memory. With `.expandable`, it cuts segments that it maps. `planned` and `planned.native`
  run only if --mode names them. naive is that allocator on Unified Memory without pump. The floor
  uses the native allocator's addresses (tests/acceptance/models/torch_touches.py). Other
  granularities have the same memory, not the same addresses.

  Rows transformer.ordered_discards.*, if --only names `ordered`: workloads/ordered_discards.py.
  Rows virtual.inference.*, virtual.lora.* and virtual.experts.*: see workloads/measured.py.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import floor
import gpu_events
from harness import (
    ROOT,
    MeasurementError,
    Options,
    Row,
    UnavailableError,
    child,
    compare,
    compared,
    cpus,
    pin,
    rounds,
    virtual_facts,
)
from quickstart import workload as quickstart
from study import (
    dead_bytes,
    instructions,
)
from suites.sim import written
from torch_runs import PROFILE, ROOM_BYTES, Torch, environment, library
from workloads import measured, ordered_discards

PARTS = ("speed", "dead", "fits", "instructions", *measured.PROGRAMS)
ON_REQUEST_PARTS = ("ordered",)
RATIOS = (1.5, 2.0)
CPUS_MOST = 4
COUNTING_SECONDS_MAX = 900
COUNTED_BYTES = 2 << 30
"""Memory that valgrind has addresses for: the virtual GPU reserves four times as much."""


@dataclass(frozen=True)
class Mode:
    """A way to run. Without a policy, pump is off. `managed`: cudaMalloc returns managed memory.
    `expandable`: PyTorch's segments are mapped memory."""

    name: str
    policy: str = ""
    granularity: str = "native"
    managed: bool = False
    expandable: bool = False


UNLIMITED = Mode("unlimited")
NAIVE = Mode("naive", managed=True)
WINDOW_NATIVE = Mode("window.native", "window")
EXPANDABLE = Mode("window.expandable", "window", expandable=True)
PUMPED = (
    Mode("demand.native", "demand"),
    WINDOW_NATIVE,
    EXPANDABLE,
    Mode("demand", "demand", "tensor"),
    Mode("window", "window", "tensor"),
)
ON_REQUEST = (Mode("planned.native", "planned"), Mode("planned", "planned", "tensor"))


@dataclass(frozen=True)
class Shape:
    """Shape of the model and of its run. It has few large operations, so that the CPU that issues
    them is not the bottleneck. `wait_every`: iterations between waits for the GPU; 0: none."""

    layers: int = 4
    width: int = 1024
    heads: int = 16
    vocabulary: int = 4096
    sequence: int = 512
    batch: int = 4
    warm_up: int = 4
    iterations: int = 12
    wait_every: int = 0

    def words(self) -> list[str]:
        return [f"--{name.replace('_', '-')}={value}" for name, value in vars(self).items()]


COUNTED = Shape(2, 256, 4, 1024, 128, warm_up=4, iterations=2)
"""Small, because callgrind takes fifty times as long; instructions depend on calls, not bytes."""
QUICK = Shape(layers=1, width=512, heads=8, vocabulary=1024, warm_up=2, iterations=2)


def training(shape: Shape) -> list[str]:
    """Returns the program that trains a decoder, with its options."""
    return [
        str(ROOT / "lab" / "bench" / "load_generators" / "transformer_train.py"),
        *shape.words(),
    ]


@dataclass(frozen=True)
class Figures:
    """Results of one run, by the program and the driver. `moved`: of the whole run. `counters`:
    pump's, empty without pump."""

    seconds: float
    cpu_seconds: float
    report: Mapping[str, Any]
    found: Mapping[str, Any]
    moved: dead_bytes.Bytes
    counters: Mapping[str, Any]


class Bench:
    """Runs the training in modes and makes rows. `settings`: of the virtual GPU."""

    def __init__(
        self, options: Options, shape: Shape, work: Path, settings: Sequence[str] = ()
    ) -> None:
        self._options = options
        self._shape = shape
        self._work = work
        self._facts = {
            **virtual_facts(PROFILE, "timing"),
            "profile_settings": list(settings),
            "wait_every": shape.wait_every,
        }
        self._link = quickstart.link_bytes_per_second(PROFILE)
        self._training = Torch(options, training(shape), work, settings)
        first = self.run(UNLIMITED, ROOM_BYTES, "--touches").found
        self.reserved_bytes = int(first["reserved_bytes"])
        self._touches = [floor.Touch(*map(tuple, each)) for each in first["touches"]]

    def memory_bytes(self, ratio: float) -> int:
        return int(self.reserved_bytes / ratio) // floor.BLOCK_BYTES * floor.BLOCK_BYTES

    def floor_seconds(self, compute_seconds: float, ratio: float) -> float:
        repeats = self._shape.iterations
        least = floor.least_traffic(self._touches, repeats, self.memory_bytes(ratio))
        return floor.floor_seconds(compute_seconds, least, self._link)

    def run(self, mode: Mode, memory_bytes: int, *more: str) -> Figures:
        """Runs once. Raises MeasurementError if the run fails or breaks a rule of the driver."""
        files = [self._work / name for name in ("events", "blocks", "summary.json")]
        for file in files:
            file.unlink(missing_ok=True)
        events, blocks, summary = files
        pump = ["--policy", mode.policy, "--granularity", mode.granularity] if mode.policy else []
        environ = {
            "PUMP_BENCH_BLOCKS": str(blocks),
            "PUMP_SUMMARY": str(summary),
            "PUMP_VIRTUAL_EVENTS": str(events),
        }
        if mode.expandable:
            environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
        found, driver = self._training.run(
            memory_bytes, pump, *more, managed=mode.managed, environ=environ
        )
        with blocks.open() as handed, events.open() as lines:
            moved = dead_bytes.split(
                dead_bytes.read_handed(handed), dead_bytes.read_departures(gpu_events.read(lines))
            )
        copied = driver["d2h_bytes"] - driver["counters"]["d2h_copy_bytes"]
        if moved.dead + moved.live != copied:
            raise MeasurementError(f"{moved} left by the driver's log, {copied} by the report")
        counters = json.loads(summary.read_text()) if mode.policy else {}
        return Figures(found["seconds"], found["cpu_seconds"], driver, found, moved, counters)

    def rounds(self, modes: Sequence[Mode], memory: Mapping[str, int]) -> dict[str, list[Figures]]:
        """Returns the results of each mode, round by round. `memory`: bytes by mode."""
        found: dict[str, list[Figures]] = {mode.name: [] for mode in modes}

        def measure(mode: Mode) -> Callable[[], float]:
            def once() -> float:
                found[mode.name].append(self.run(mode, memory[mode.name]))
                return found[mode.name][-1].seconds

            return once

        rounds({mode.name: measure(mode) for mode in modes}, self._options.pairs)
        return found

    def facts(self, ratio: float, runs: Sequence[Figures]) -> dict[str, Any]:
        """Returns the facts for the rows of a mode: medians of its runs."""
        keys = ("h2d_bytes", "d2h_bytes", "faults")
        return {
            **self._facts,
            "oversubscription": ratio,
            "reserved_bytes": self.reserved_bytes,
            **{key: int(statistics.median(run.report[key] for run in runs)) for key in keys},
            "issue_seconds": statistics.median(run.found["issue_seconds"] for run in runs),
        }

    def speed(self, ratio: float, parts: Sequence[str], pumped: Sequence[Mode]) -> Iterator[Row]:
        """Yields rows of naive paging and of the modes `pumped` at one oversubscription."""
        modes = (UNLIMITED, NAIVE, *pumped)
        memory = {mode.name: self.memory_bytes(ratio) for mode in modes}
        found = self.rounds(modes, memory | {UNLIMITED.name: ROOM_BYTES})
        least = [self.floor_seconds(run.seconds, ratio) for run in found[UNLIMITED.name]]
        naive = [run.seconds for run in found[NAIVE.name]]
        for mode in (NAIVE, *pumped) if "speed" in parts else ():
            runs = found[mode.name]
            seconds, facts = [run.seconds for run in runs], self.facts(ratio, runs)
            facts["granularity"] = mode.granularity
            name = f"virtual.transformer.{mode.name}"
            if mode is not NAIVE:
                speedup = compare(naive, seconds)
                yield compared(f"{name}.speedup", speedup, "x", baseline="naive", **facts)
            of_floor = compare(least, seconds)
            yield compared(f"{name}.of_floor", of_floor, "x", baseline="floor", **facts)
            if mode is EXPANDABLE and WINDOW_NATIVE.name in found:
                native = [run.seconds for run in found[WINDOW_NATIVE.name]]
                of_native = compare(native, seconds)
                yield compared(f"{name}.of_native", of_native, "x", baseline="native", **facts)
        if "dead" in parts:
            yield from self._dead(ratio, (NAIVE, *pumped), found)

    def _dead(
        self, ratio: float, modes: Sequence[Mode], found: Mapping[str, Sequence[Figures]]
    ) -> Iterator[Row]:
        naive = int(statistics.median(run.moved.dead for run in found[NAIVE.name]))
        for mode in modes:
            runs = found[mode.name]
            moved = dead_bytes.Bytes(
                *map(int, map(statistics.median, zip(*(run.moved for run in runs), strict=True)))
            )
            yield Row(
                f"transformer.dead_bytes.{mode.name}",
                moved.dead,
                "bytes",
                **self.facts(ratio, runs),
                **{f"{kind}_bytes": left for kind, left in moved._asdict().items()},
                dropped_bytes=int(
                    statistics.median(run.report["counters"]["dropped_bytes"] for run in runs)
                ),
                **dead_bytes.shares(moved, naive),
            )

    def ordered(self, ratios: Sequence[float]) -> Iterator[Row]:
        """Yields rows of discards in the order of the GPU, from a recording of a run that fits."""
        from pump_lab import profiles

        file, blocks = self._work / "ordered.trace", self._work / "ordered.blocks"
        pump = ["--policy", "window", "--record", str(file)]
        environ = {"PUMP_BENCH_BLOCKS": str(blocks)}
        _, driver = self._training.run(ROOM_BYTES, pump, environ=environ)
        with blocks.open() as lines:
            handed = dead_bytes.read_handed(lines)
        every = self._shape.wait_every
        yield from ordered_discards.rows(
            written(file).read_bytes(),
            handed,
            profiles.load(PROFILE),
            compute_ns=driver["counters"]["compute_busy_ns"],
            iterations=self._shape.warm_up + self._shape.iterations,
            waits=1 + (self._shape.iterations // every if every else 0),
            memory_bytes={ratio: self.memory_bytes(ratio) for ratio in ratios},
        )

    def fits(self) -> Iterator[Row]:
        """Yields rows of the case that fits: pump with its defaults, nothing to page."""
        pumped = Mode("pumped", "window")
        modes = (pumped, UNLIMITED)
        found = self.rounds(modes, {mode.name: ROOM_BYTES for mode in modes})
        for what, values in (
            ("time", lambda run: run.seconds),
            ("cpu", lambda run: run.cpu_seconds),
        ):
            first, second = ([values(run) for run in found[mode.name]] for mode in modes)
            result = compare(first, second)
            name = f"transformer.fits.{what}"
            yield compared(name, result, "x", baseline="without pump", **self._facts)


class Counting:
    """Counts instructions of iterations, with pump and without."""

    def __init__(self, options: Options, work: Path) -> None:
        self._how = instructions.probe()
        if self._how is None:
            raise UnavailableError("nothing counts instructions here; install valgrind")
        self._options = options
        self._work = work
        self._python = environment(options)
        self._library = library(options, "counting") if self._how == "callgrind" else None

    def rows(self) -> Iterator[Row]:
        """Yields one row: callgrind's counts differ by a tenth of a percent from run to run."""
        counted = [self._iteration(pump) for pump in (True, False)]
        yield Row(
            "transformer.fits.instructions",
            counted[0] / counted[1],
            "x",
            baseline="without pump",
            how=self._how,
            with_pump=round(counted[0]),
            without=round(counted[1]),
            shape=" ".join(COUNTED.words()),
            **virtual_facts(PROFILE, "timing"),
        )

    def _iteration(self, pump: bool) -> float:
        """Returns the instructions of an iteration."""
        if self._library is not None:
            out = self._work / f"callgrind.{'pump' if pump else 'plain'}"
            around = [*instructions.CALLGRIND, f"--callgrind-out-file={out}"]
            self._run(around, COUNTED, pump, "--counting", str(self._library))
            short, long = (self._dump(Path(f"{out}.{part}")) for part in (1, 2))
        else:
            out = self._work / "perf"
            found = []
            for times in (1, 3):
                shape = replace(COUNTED, iterations=times * COUNTED.iterations)
                self._run([*instructions.PERF, "-o", str(out), "--"], shape, pump)
                found.append(instructions.of_perf(out.read_text()))
            short, long = found
        return (long - short) / (2 * COUNTED.iterations)

    def _dump(self, path: Path) -> int:
        with path.open() as lines:
            return instructions.of_callgrind(lines).without("libcuda.so.1")

    def _run(self, around: list[str], shape: Shape, pump: bool, *more: str) -> None:
        command = [self._options.tools.pump_run, "--virtual", PROFILE]
        command += ["--virtual-set", f"memory={COUNTED_BYTES}", "--", *around]
        command += [str(self._python), *training(shape)]
        words = ["--json", str(self._work / "counted.json"), *more]
        environ = {"PUMP_DISABLE": "" if pump else "1", "PYTHONWARNINGS": "ignore"}
        child([*command, *words], environ, COUNTING_SECONDS_MAX)


def parse(arguments: list[str]) -> argparse.Namespace:
    """Returns the options of the suite; exits with status 2 on a bad one."""
    parser = argparse.ArgumentParser(prog="scripts/bench frameworks --")
    parts = (*PARTS, *ON_REQUEST_PARTS)
    parser.add_argument("--only", action="append", choices=parts, help="may be repeated")
    parser.add_argument(
        "--mode",
        action="append",
        choices=[mode.name for mode in (*PUMPED, *ON_REQUEST)],
        help="of speed and dead, beside naive; may be repeated",
    )
    parser.add_argument(
        "--ratio", action="append", type=float, help="oversubscription of the transformer"
    )
    parser.add_argument(
        "--wait-every",
        type=int,
        default=0,
        metavar="N",
        help="the transformer waits for the GPU after every N iterations (default: at the end)",
    )
    parser.add_argument(
        "--virtual-set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="of the virtual GPU, for speed, dead and fits",
    )
    parser.add_argument(
        "--record", metavar="FOLDER", type=Path, help="inference, LoRA and experts, for `sim`"
    )
    options = parser.parse_args(arguments)
    if any(not 1 <= ratio <= 8 for ratio in options.ratio or ()):
        parser.error("--ratio must lie in 1 to 8")
    if options.wait_every < 0:
        parser.error("--wait-every must not be negative")
    return options


def run(options: Options) -> Iterator[Row]:
    chosen = parse(options.rest)
    parts = chosen.only or PARTS
    environment(options)
    pumped = [m for m in (*PUMPED, *ON_REQUEST) if m.name in chosen.mode] if chosen.mode else PUMPED
    shape = replace(QUICK if options.quick else Shape(), wait_every=chosen.wait_every)
    with tempfile.TemporaryDirectory() as work, pin(*cpus()[:CPUS_MOST]):
        for name in measured.PROGRAMS:
            if name in parts:
                yield from measured.rows(name, options, Path(work), chosen.record)
        if {"speed", "dead", "fits", "ordered"} & set(parts):
            bench = Bench(options, shape, Path(work), chosen.virtual_set)
            ratios = chosen.ratio or RATIOS
            for ratio in ratios if {"speed", "dead"} & set(parts) else ():
                yield from bench.speed(ratio, parts, pumped)
            if "ordered" in parts:
                yield from bench.ordered(ratios)
            if "fits" in parts:
                yield from bench.fits()
        if "instructions" in parts:
            yield from Counting(options, Path(work)).rows()
