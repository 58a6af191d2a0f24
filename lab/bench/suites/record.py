"""Cost of recording a training (pump-run --record), when it fits and when it does not.

DESIGN
  A pair is the same training on the virtual GPU under pump-run, recorded and not recorded, in
  separate processes. Rows, for each oversubscription (1.0: it fits):

    `record.slowdown`              Seconds of the timed iterations, recorded / not.
    `record.command_slowdown`      The same for the whole command, including its start, when a
                                   recorded job waits for its pumpd to answer.
    `record.bytes_per_operation`   Size of the recording / operations in it.

  A recording that lost events or is cut short fails the suite, because its cost would not be
  comparable.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import (
    ROOT,
    MeasurementError,
    Options,
    Row,
    child,
    compare,
    compared,
    cpus,
    pin,
    rounds,
    virtual_facts,
)

PROFILE = "a100-pcie4"
SHAPE = ["--width=1024", "--layers=12", "--batch=16", "--report-every=0", "--no-hash"]
ITERATIONS, ITERATIONS_QUICK = 300, 20
MEMORY_MIB = {1.0: 2048, 1.5: 130}
"""Memory by oversubscription; the training needs 195 MiB."""
CPUS_MOST = 4
SECONDS_MAX = 120
SETTLE_S = 10.0
"""Time for the writer, which ends a moment after the command."""


@dataclass(frozen=True)
class Figures:
    """Seconds of one run: the timed iterations, and the whole command."""

    seconds: float
    command_seconds: float


class Bench:
    """Runs the training, recorded and not, on a GPU with `memory_mib`."""

    def __init__(self, options: Options, memory_mib: int, work: Path) -> None:
        iterations = ITERATIONS_QUICK if options.quick else ITERATIONS
        self._tools = options.tools
        self._words = [*SHAPE, f"--iterations={iterations}"]
        self._memory_mib = memory_mib
        self._result, self._trace = work / "result.json", work / "job.trace"
        self.runs: dict[str, list[Figures]] = {"recorded": [], "plain": []}
        self.summaries: list[dict[str, Any]] = []

    def recorded(self) -> float:
        self._run("recorded", "--record", str(self._trace))
        self.summaries.append(self._summary())
        return self.runs["recorded"][-1].seconds

    def plain(self) -> float:
        self._run("plain")
        return self.runs["plain"][-1].seconds

    def _run(self, name: str, *more: str) -> None:
        self._result.unlink(missing_ok=True)
        command = [self._tools.pump_run, "--virtual", PROFILE]
        command += ["--virtual-set", f"memory={self._memory_mib}MiB", *more, "--"]
        script = [self._tools.python, str(ROOT / "examples" / "train_mlp.py"), *self._words]
        begin = time.perf_counter()
        child([*command, *script, "--json", str(self._result)], seconds_max=SECONDS_MAX)
        whole = time.perf_counter() - begin
        seconds = json.loads(self._result.read_text())["seconds"]
        self.runs[name].append(Figures(seconds, whole))

    def _summary(self) -> dict[str, Any]:
        from pump.trace.info import summary

        until = time.monotonic() + SETTLE_S
        while (found := summary(str(self._trace)))["state"] == "being recorded":
            if time.monotonic() > until:
                break
        if found["state"] != "complete" or found["lost"] or not found["operations"]:
            raise MeasurementError(
                f"the recording is {found['state']}, lost {found['lost']}, "
                f"holds {found['operations']} operations"
            )
        return found

    def compare(self, what: str) -> Any:
        """Returns the ratio recorded / plain. `what`: a field of Figures."""
        first, second = ([getattr(run, what) for run in self.runs[n]] for n in self.runs)
        return compare(first, second)


def parse(arguments: list[str]) -> argparse.Namespace:
    """Returns the options of the suite; exits with status 2 on a bad one."""
    parser = argparse.ArgumentParser(prog="scripts/bench record --")
    parser.add_argument(
        "--ratio", action="append", type=float, choices=list(MEMORY_MIB), help="oversubscription"
    )
    return parser.parse_args(arguments)


def run(options: Options) -> Iterator[Row]:
    chosen = parse(options.rest)
    facts = virtual_facts(PROFILE, "timing")
    with tempfile.TemporaryDirectory() as work, pin(*cpus()[:CPUS_MOST]):
        for ratio in chosen.ratio or MEMORY_MIB:
            bench = Bench(options, MEMORY_MIB[ratio], Path(work))
            rounds({"recorded": bench.recorded, "plain": bench.plain}, options.pairs, warm_up=1)
            for runs in bench.runs.values():
                del runs[0]  # of the warm-up
            more = {**facts, "oversubscription": ratio}
            for name, what in (("slowdown", "seconds"), ("command_slowdown", "command_seconds")):
                result = bench.compare(what)
                yield compared(f"record.{name}", result, "x", baseline="not recorded", **more)
            sizes = [found["bytes_per_operation"] for found in bench.summaries]
            operations = bench.summaries[-1]["operations"]
            yield Row(
                *("record.bytes_per_operation", statistics.median(sizes), "bytes"),
                **more,
                operations=operations,
            )
