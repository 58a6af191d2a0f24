"""Pump's cost for a program: its hooks against a driver of empty functions, training that fits.

DESIGN
  The hooks are timed on the null driver (lab/bench/load_generators/null_driver). A launch there
  takes a few nanoseconds; all other time is pump's. overhead_launch.c launches in batches, through
  pump's hook and past it in turns, on one CPU. An attached worker of pumpd reads the hooks'
  records. A process gives the median over its batches of the difference. A row is the median over
  as many processes as pairs were requested, each with its own addresses and memory. There is no
  ratio to an empty function: the baseline is its time.

    `overhead.dormant_ns`                     Time added to each launch if everything fits.
    `overhead.active_ns`                      The same with ten pointers into 10,000 live ranges,
                                              including markers.
    `overhead.active_100k_ns`                 The same into 100,000 ranges.
    `overhead.struct_ns_per_word`             The worse of the next row's two sizes.
    `overhead.struct_ns_per_word.bytes_N`     A structure of N bytes by value: half of its words are
                                              pointers, the others small numbers and zeros.
    `overhead.struct_ns_per_word.numbers_N`   A structure without a pointer.
    `overhead.new_signature_ns.bytes_N`       Added to a launch with a new signature.

  The training runs on the virtual GPU in timing mode, from the start of the command to its end,
  with pump-run and without. Everything fits, so pump is dormant throughout.

    `overhead.fits_ratio`                Seconds with pump-run / without.
    `overhead.fits_ratio.instructions`   The same for instructions in user mode of all processes,
                                         including pumpd's, if this machine counts them (perf).
    `overhead.fits_ratio.cpu`            The same for CPU seconds of all processes, user and system.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from harness import (
    ROOT,
    MeasurementError,
    Options,
    Row,
    build_null_driver,
    child,
    compare,
    compared,
    compile_c,
    interval,
    median,
    rounds,
    virtual_facts,
)
from orphans import adopt_orphans, processor_s, wait_for_orphans

HERE = ROOT / "lab" / "bench" / "load_generators"
PARTS = ("launch", "fits")
PROFILE = "a100-pcie4"
STRUCTURES = (1048, 4096)
WORD_BYTES = 8
BATCH = 64
"""Launches that are timed together while active: the ring always has space for them."""

TRAINING = ["--width=1024", "--layers=8", "--warm-up=2", "--no-hash"]
TRAINING_ITERATIONS = 2000
"""About 14 s in all: pump-run's own start is a fixed cost, however long a training takes."""

CONTENTS = {
    "pointers": "pointers into random ranges, half of them where a range begins",
    "table": "every other word a pointer, different ones a tenth of the words, "
    "the rest small numbers and zeros",
    "numbers": "small numbers and zeros, the same in each launch",
    "fresh": "small numbers, others in each launch",
}


@dataclass(frozen=True)
class Launches:
    """Arguments of overhead_launch; see there."""

    kernel: str
    ranges: int
    content: str
    launches: int
    batches: int
    active: bool = True

    @property
    def words(self) -> int:
        number = int(self.kernel[1:])
        return number // WORD_BYTES if self.kernel[0] == "s" else number


class LaunchBench:
    """The null driver, the program, and rows of its results."""

    def __init__(self, options: Options) -> None:
        tools = options.tools
        self._options = options
        driver = build_null_driver(tools)
        self._folder = driver.parent
        self._program = compile_c(
            tools, "overhead_launch", [HERE / "overhead_launch.c", driver], "-fno-strict-aliasing"
        )

    def once(self, launches: Launches) -> dict[str, Any]:
        """Runs one process. Raises MeasurementError unless its counts are as expected."""
        command = [self._options.tools.pump_run, "--", str(self._program), launches.kernel]
        command += [str(launches.ranges), launches.content]
        command += [str(launches.launches), str(launches.batches)]
        environ = {"LD_LIBRARY_PATH": str(self._folder)}
        if launches.active:
            environ["PUMP_ACTIVE"] = "always"
        found: dict[str, Any] = json.loads(child(command, environ))
        expected = launches.launches * launches.batches if launches.active else 0
        if not found["worker"]:
            raise MeasurementError("no worker was attached: pump-run found no pumpd")
        if found["operations"] != expected or found["dropped"]:
            raise MeasurementError(
                f"{launches}: {found['operations']} operations reported of {expected}, "
                f"{found['dropped']} records dropped"
            )
        return found

    def row(self, name: str, launches: Launches, per_words: int = 1) -> Row:
        """Returns the median over processes of the time added to a launch, / `per_words`."""
        runs = [self.once(launches) for _ in range(self._options.pairs)]
        added = [run["added_ns"] / per_words for run in runs]
        return Row(
            name,
            median(added),
            "ns",
            baseline=median([run["without_ns"] for run in runs]),
            interval=interval(added),
            pairs=len(runs),
            p90=median([run["added_ns_p90"] / per_words for run in runs]),
            kernel=launches.kernel,
            ranges=launches.ranges,
            content=CONTENTS[launches.content],
            launches_timed_as_one=launches.launches,
            batches=launches.batches,
            markers_per_launch=median([run["markers"] / (run["operations"] or 1) for run in runs]),
            signatures_told=median([run["signatures"] for run in runs]),
            worker="attached, reading",
        )

    def rows(self, quick: bool) -> Iterator[Row]:
        batches = 50 if quick else 1000
        dormant = Launches("p10", 100, "pointers", 4096, batches, active=False)
        yield self.row("overhead.dormant_ns", dormant)
        for name, ranges in (("active_ns", 10_000), ("active_100k_ns", 100_000)):
            active = Launches("p10", ranges, "pointers", BATCH, batches)
            yield self.row(f"overhead.{name}", active)
        name, worst = "overhead.struct_ns_per_word", None
        for size in STRUCTURES:
            table = Launches(f"s{size}", 10_000, "table", BATCH, batches)
            row = self.row(f"{name}.bytes_{size}", table, table.words)
            yield row
            if worst is None or row.value > worst.value:
                worst = row
            numbers = Launches(f"s{size}", 10_000, "numbers", BATCH, batches)
            yield self.row(f"{name}.numbers_{size}", numbers, numbers.words)
            fresh = Launches(f"s{size}", 10_000, "fresh", BATCH, batches)
            yield self.row(f"overhead.new_signature_ns.bytes_{size}", fresh)
        assert worst is not None
        yield Row(name, worst.value, "ns", worst.baseline, interval=worst.interval, **worst.more)


# ---- training that fits ------------------------------------------------------


@dataclass(frozen=True)
class Whole:
    """Cost of a command with everything it started. `instructions`: 0 if they are not counted."""

    seconds: float
    cpu_seconds: float
    instructions: int


def counts_instructions() -> bool:
    """Returns whether perf can count instructions of a process here."""
    if shutil.which("perf") is None:
        return False
    done = subprocess.run(
        ["perf", "stat", "-x,", "-e", "instructions:u", "true"],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode == 0 and re.match(r"\d+,", done.stderr) is not None


def measured(command: Sequence[str], environ: dict[str, str], counting: bool) -> Whole:
    """Runs `command` once, which must succeed. Raises MeasurementError."""
    before = processor_s()
    with tempfile.NamedTemporaryFile("r", suffix=".perf") as counted:
        if counting:
            perf = ["perf", "stat", "-x,", "-e", "instructions:u", "-o", counted.name, "--"]
            command = [*perf, *command]
        began = time.perf_counter()
        child(command, environ)
        seconds = time.perf_counter() - began
        wait_for_orphans()
        found = re.search(r"^(\d+),", counted.read(), re.M) if counting else None
    return Whole(seconds, processor_s() - before, int(found[1]) if found else 0)


def virtual_environment(options: Options, profile: str) -> dict[str, str]:
    """Returns the variables that pump-run sets for the virtual GPU, without the rest of pump."""
    text = child(
        [options.tools.pump_run, "--virtual", profile, "--", "env", "-0"], {"PUMP_DISABLE": "1"}
    )
    found = dict(line.split("=", 1) for line in text.split("\0") if "=" in line)
    return {name: found[name] for name in ("LD_LIBRARY_PATH", "PUMP_VIRTUAL_PROFILE")}


def fits(options: Options, iterations: int, profile: str) -> Iterator[Row]:
    counting = counts_instructions()
    plain = virtual_environment(options, profile)
    words = [str(ROOT / "examples" / "train_mlp.py"), *TRAINING, f"--iterations={iterations}"]
    training = [options.tools.python, *words]
    commands: dict[str, tuple[list[str], dict[str, str]]] = {
        "pump-run": ([options.tools.pump_run, "--virtual", profile, "--", *training], {}),
        "plain": (training, plain),
    }
    runs: dict[str, list[Whole]] = {name: [] for name in commands}

    def measure(name: str) -> Callable[[], float]:
        def once() -> float:
            runs[name].append(measured(*commands[name], counting))
            return runs[name][-1].seconds

        return once

    adopt_orphans()
    rounds({name: measure(name) for name in commands}, options.pairs, warm_up=1)
    facts = {
        **virtual_facts(profile, "timing"),
        "training": " ".join(words[1:]),
        "training_seconds": median([run.seconds for run in runs["plain"][1:]]),
        "instructions_counted": counting,
    }
    name = "overhead.fits_ratio"
    for row, of in (
        (name, lambda run: run.seconds),
        (f"{name}.cpu", lambda run: run.cpu_seconds),
        (f"{name}.instructions", lambda run: float(run.instructions)),
    ):
        if row.endswith("instructions") and not counting:
            continue  # instructions_counted in the other rows shows it
        result = compare(*([of(run) for run in runs[n][1:]] for n in ("pump-run", "plain")))
        yield compared(row, result, "x", baseline="without pump", **facts)


def parse(arguments: list[str]) -> argparse.Namespace:
    """Returns the options of the suite; exits with status 2 on a bad one."""
    parser = argparse.ArgumentParser(prog="scripts/bench overhead --")
    parser.add_argument("--only", action="append", choices=PARTS, help="may be repeated")
    parser.add_argument("--iterations", type=int, help="of the training that fits")
    parser.add_argument("--profile", default=PROFILE)
    options = parser.parse_args(arguments)
    if options.iterations is not None and options.iterations < 3:
        parser.error("--iterations must be at least 3: two are not timed")
    return options


def run(options: Options) -> Iterator[Row]:
    chosen = parse(options.rest)
    parts = chosen.only or PARTS
    if "launch" in parts:
        yield from LaunchBench(options).rows(options.quick)
    if "fits" in parts:
        iterations = chosen.iterations or (50 if options.quick else TRAINING_ITERATIONS)
        yield from fits(options, iterations, chosen.profile)
