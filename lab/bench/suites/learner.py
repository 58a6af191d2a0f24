"""The iteration learner: the share of programs' operations that it predicts, and its cost.

DESIGN
  C code (learner_generator.c) feeds programs to a fresh learner, step by step. These are recorded
  traffic of PyTorch, recordings of `pump-run --record` (option `--recording FILE...`), and programs
  made up for the cost. Rows; `case` is the program and its part, an iteration or a tenth:

    `learner.right`                Share of operations that were predicted with confidence, and
                                   occurred.
    `learner.misled`               Share of operations for which another one was predicted with
                                   confidence.
    `learner.accesses`             Share of the accesses of predicted operations that were predicted
                                   at the right place: slot, generation and offset.
    `learner.again.right`, `.misled`, `.accesses`   The same for the program's second run, with a
                                                    learner that recalls the kept history of the
                                                    first run.
    `learner.us_per_operation`     CPU time of one operation, once the learner's memory has been
                                   touched; the median of rounds. `steady`: a step of 1,500 launches
                                   of 8 uses each, repeated. `streams`: the same on two streams.
                                   `noise`: nothing repeats. `kinds`: short steps of 20 kinds in
                                   random order. Otherwise the traffic's last iterations.
    `learner.us_per_prediction`    CPU time of one requested prediction, with its accesses; 64 at
                                   once.
"""

from __future__ import annotations

import argparse
import random
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from harness import ROOT, MeasurementError, Options, Row
from load_generators.learner_steps import OPERATION, Steps, generator, made_up, recording, traffic

TRAFFIC = ROOT / "lab" / "bench" / "data" / "pytorch_traffic"
CAPACITY = 1 << 17
ROUNDS, ROUNDS_QUICK = 9, 3
OFFERED, CONFIRMED, DEVIATED = 16, 1, 2
ASKED = 64


def parse(arguments: list[str]) -> argparse.Namespace:
    """Returns the options of the suite; exits with status 2 on a bad one."""
    parser = argparse.ArgumentParser(prog="scripts/bench learner --")
    parser.add_argument("--recording", nargs="+", type=Path, default=[], metavar="FILE")
    parser.add_argument("--traffic", nargs="*", type=Path, metavar="FILE")
    return parser.parse_args(arguments)


class Bench:
    """A learner that is fed from C."""

    def __init__(self, ffi: Any, lib: Any) -> None:
        self.ffi, self.lib = ffi, lib
        self.learner = ffi.gc(lib.pump_learner_new(CAPACITY), lib.pump_learner_delete)
        if not self.learner:
            raise MeasurementError("no memory for a learner")
        self._report = ffi.new("struct pump_learner_report *")

    def recall(self, first: Bench) -> None:
        """Takes over the history that `first` has kept."""
        event_log = self.ffi.new("struct pump_learner_log *")
        self.lib.pump_learner_kept(first.learner, event_log)
        self.lib.pump_learner_recall(self.learner, event_log)

    def feed(
        self, tables: tuple[Any, Any], begin: int, end: int, *, asked: int = 0, said: Any = None
    ) -> int:
        """Feeds steps; returns the time in nanoseconds."""
        steps = self.ffi.cast("struct feed_step *", tables[0].ctypes.data)
        accesses = self.ffi.cast("struct pump_access *", tables[1].ctypes.data)
        to = self.ffi.NULL if said is None else self.ffi.cast("uint8_t *", said.ctypes.data)
        return int(self.lib.feed(self.learner, steps, begin, end, accesses, asked, to))

    def report(self) -> Any:
        self.lib.pump_learner_report(self.learner, self._report)
        return self._report


def quality(bench: Bench, steps: Steps, prefix: str = "learner") -> Iterator[Row]:
    tables = steps.tables()
    ends = [*(place for place, _ in steps.marks[1:]), len(tables[0])]
    bench.feed(tables, 0, steps.marks[0][0])
    for (begin, name), end in zip(steps.marks, ends, strict=True):
        operations = int(np.count_nonzero(tables[0]["what"][begin:end] == OPERATION))
        if not operations:
            continue
        said = np.zeros(operations, np.uint8)
        before = bench.report()
        right, missed = before.accesses_right, before.accesses_missed
        bench.feed(tables, begin, end, said=said)
        after = bench.report()
        right, missed = after.accesses_right - right, after.accesses_missed - missed
        more = {"case": f"{steps.name} {name}", "operations": operations}
        for row, value in (("right", OFFERED + CONFIRMED), ("misled", OFFERED + DEVIATED)):
            yield Row(f"{prefix}.{row}", float(np.mean(said == value)), "share", **more)
        if right + missed:
            yield Row(f"{prefix}.accesses", right / (right + missed), "share", **more)


def programs(quick: bool) -> list[Steps]:
    dice = random.Random(2)
    whole = 5_000 if quick else 30_000
    step = [dice.randrange(1, 100_000) for _ in range(1500)]
    kinds = [
        [dice.randrange(1, 100_000) for _ in range(dice.randrange(40, 400))] for _ in range(20)
    ]
    mixed = [key for _ in range(whole // 200) for key in kinds[dice.randrange(20)]]
    return [
        made_up("steady", step * (whole // 1500)),
        made_up("streams", step * (whole // 1500), streams=2),
        made_up("noise", [dice.randrange(1, 1 << 60) for _ in range(whole)]),
        made_up("kinds", mixed),
    ]


def cost(ffi: Any, lib: Any, steps: Steps, rounds: int) -> Iterator[Row]:
    tables = steps.tables()
    begin = steps.marks[-1][0]
    operations = int(np.count_nonzero(tables[0]["what"][begin:] == OPERATION))
    bench = Bench(ffi, lib)
    # Twice as many operations as the learner remembers, so that all its memory has been touched.
    bench.feed(tables, 0, len(tables[0]))
    while bench.report().seen < 2 * CAPACITY:
        bench.feed(tables, begin, len(tables[0]))
    plain, asked = (
        statistics.median(
            bench.feed(tables, begin, len(tables[0]), asked=ahead) / operations / 1e3
            for _ in range(rounds)
        )
        for ahead in (0, ASKED)
    )
    more = {"case": steps.name, "operations": operations}
    yield Row("learner.us_per_operation", plain, "us", **more)
    if steps.name != "noise":  # nothing in it is predicted
        yield Row("learner.us_per_prediction", max(0.0, asked - plain), "us", **more)


def run(options: Options) -> Iterator[Row]:
    chosen = parse(options.rest)
    lib_dir = options.tools.lib_dir
    headers = (lib_dir / "include" / name for name in ("operation.h", "learner.h"))
    ffi, lib = generator(options.tools, lib_dir / "libpump_core.so", *headers)
    paths = sorted(TRAFFIC.glob("*.txt.*")) if chosen.traffic is None else chosen.traffic
    if options.quick:
        paths = paths[:1]
    try:
        files = [traffic(path) for path in paths]
        files += [recording(path) for path in chosen.recording]
    except (OSError, EOFError, ValueError) as error:
        raise MeasurementError(f"no traffic, no recording: {error}") from None
    for steps in files:
        first, second = Bench(ffi, lib), Bench(ffi, lib)
        if lib.pump_learner_keep(first.learner) != 0:
            raise MeasurementError("no memory for what a learner keeps")
        yield from quality(first, steps)
        second.recall(first)
        yield from quality(second, steps, "learner.again")
    rounds = ROUNDS_QUICK if options.quick else ROUNDS
    for steps in [*programs(options.quick), *files]:
        yield from cost(ffi, lib, steps, rounds)
