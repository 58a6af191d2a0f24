"""Compares the learner's extents with recorded PyTorch traffic or with a program's touches.

DESIGN
  Each traffic file is replayed to a fresh learner as the shim would report it (extents_traffic.py,
  which also defines the truth). Scores count 2 MiB blocks (extents_replay.py). Precision is the
  share of believed blocks that were true, recall the share of true blocks that were believed. Rows:

    `extents.precision`, `extents.recall`         Transformer-like files together, steady state: the
                                                  blocks of launches from the third iteration on.
    `extents.first.precision`, `.recall`          The same files, first iteration.
    `extents.file.precision`, `.recall`           Each file. `case`: file and iterations.
    `extents.blocks.precision`, `.recall`         Transformer-like files, steady state, with the
                                                  allocator's reports of its blocks. `case`: the
                                                  truth (extents_replay.py). All other rows use the
                                                  truth "handed".
    `extents.scratch.handed`, `.addressed`        Bytes of the buffers that reductions were handed
                                                  for partial sums, of all launches together.
                                                  `.addressed`: only bytes that the kernels can
                                                  address (extents_scratch.py).
    `extents.convolutions.precision`, `.recall`   Each file with convolutions, steady state. `case`:
                                                  learned or with block events, and whether the
                                                  truth is a sample or the operator's tensor.
    `extents.layout.precision`, `.recall`         Transformer-like files laid out by other
                                                  allocators (extents_layout.py), steady state.
                                                  `case`: layout.
    `extents.us_per_launch`                       Mean over the same files' steady launches.
    `extents.us_at_10`, `extents.us_at_100`       Launches with 9..12, and with 80..192 pointers.

  With --program COMMAND, the suite runs that command under pump-run on the virtual GPU instead. It
  compares the touches of the command's kernels with pump's extents (touched.py). There is a row for
  each kernel, those with most differences first, and one for all:

    `extents.touched`   Block uses by kernels: one block that one launch touches. `told`: block uses
                        by pump's extents. `missed`: touched, but in no extent. `idle`: in an
                        extent, but not touched.

  A file is transformer-like unless it contains a convolution, or no allocator's blocks (then
  tensors are separate allocations, and nothing has to be learned). Options after `--`: With
  --traffic FILE..., other files of the same format are scored. With --no-layouts, layouts are left
  out. With --virtual-set KEY=VALUE (may be repeated), the virtual GPU of --program changes. Give
  --program last.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gpu_events
import touched
from c_part import generator, load
from harness import ROOT, MeasurementError, Options, Row, child, virtual_facts
from study.extents_cost import SOURCE, Cost
from study.extents_layout import LAYOUTS, lay_out
from study.extents_replay import ADDRESSED, HANDED, TENSORS, Learner, Result, Score, replay
from study.extents_traffic import Event, Launch, open_lines, read_traffic
from suites.sim import written
from torch_runs import PROFILE

TRAFFIC = ROOT / "lab" / "bench" / "data" / "pytorch_traffic"
REPLAYS = 9
"""Number of replays; a launch's time is their median."""


@dataclass
class File:
    """A traffic file, parsed."""

    name: str
    lines: list[str]
    events: list[Event]
    result: Result

    @property
    def transformer_like(self) -> bool:
        return any(line.startswith("B ") for line in self.lines) and not self.convolutions

    @property
    def convolutions(self) -> bool:
        launches = (event for event in self.events if isinstance(event, Launch))
        return any("convolution" in launch.operator for launch in launches)


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="extents", description=__doc__.partition("\n")[0])
    parser.add_argument("--traffic", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--no-layouts", action="store_true")
    parser.add_argument("--virtual-set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--program", nargs=argparse.REMAINDER, metavar="COMMAND")
    chosen = parser.parse_args(arguments)
    chosen.traffic = chosen.traffic or sorted(TRAFFIC.glob("*.txt.*"))
    if not chosen.traffic:
        raise MeasurementError(f"there is no traffic in {TRAFFIC}; name files with --traffic")
    return chosen


def read(path: Path) -> list[str]:
    """Returns the lines of a file. Raises MeasurementError if it cannot be read."""
    try:
        with open_lines(path) as lines:
            return list(lines)
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise MeasurementError(f"{path} cannot be read: {error}") from None


def scored(lines: list[str], learner: Learner, where: str) -> tuple[list[Event], Result]:
    try:
        events = read_traffic(iter(lines))
    except ValueError as error:
        raise MeasurementError(f"{where}: {error}") from None
    return events, replay(events, learner)


def pair(name: str, score: Score, **more: Any) -> Iterator[Row]:
    for figure in ("precision", "recall"):
        value = getattr(score, figure)
        yield Row(f"{name}.{figure}", value, "share", launches=score.launches, **more)


def run(options: Options) -> Iterator[Row]:
    chosen = parse(options.rest)
    if chosen.program:
        yield from touched_rows(options, chosen.program, chosen.virtual_set)
        return
    lib_dir = options.tools.lib_dir
    library, header = lib_dir / "libpump_core.so", lib_dir / "include" / "extents.h"
    learner_of = load(library, header)
    files = []
    for path in chosen.traffic:
        lines = read(path)
        events, result = scored(lines, Learner(*learner_of), path.name)
        files.append(File(path.name.partition(".")[0], lines, events, result))
    counted = [file for file in files if file.transformer_like]
    names = [file.name for file in counted]
    if counted:
        steady = sum((file.result.steady for file in counted), Score())
        yield from pair("extents", steady, files=names)
        first = sum((file.result.first for file in counted), Score())
        yield from pair("extents.first", first, files=names)
    for file in files:
        yield from pair("extents.file", file.result.first, case=f"{file.name} first")
        yield from pair("extents.file", file.result.steady, case=f"{file.name} steady")
    if counted:
        yield from told_rows(counted, learner_of)
        yield from scratch_rows(counted)
    for file in files:
        if file.convolutions:
            yield from convolution_rows(file, learner_of)
    if counted and not chosen.no_layouts:
        laid_out = counted[:1] if options.quick else counted
        for layout in LAYOUTS:
            total = Score()
            for file in laid_out:
                moved = list(lay_out(file.lines, layout))
                total += scored(moved, Learner(*learner_of), file.name)[1].steady
            names = [file.name for file in laid_out]
            yield from pair("extents.layout", total, case=layout, files=names)
    yield from cost_rows(options, counted or files, library, header)


def touched_rows(options: Options, program: list[str], settings: list[str]) -> Iterator[Row]:
    """Yields the rows of --program. Raises MeasurementError if it or its recording fails."""
    from pump.base.names import readable_kernel
    from pump.trace.reader import Reader

    with tempfile.TemporaryDirectory() as work:
        events, trace = Path(work, "events"), Path(work, "trace")
        command = [options.tools.pump_run, "--virtual", PROFILE, "--record", str(trace)]
        for setting in settings:
            command += ["--virtual-set", setting]
        report = {"PUMP_VIRTUAL_REPORT": str(Path(work, "report"))}
        child([*command, "--", *program], {"PUMP_VIRTUAL_EVENTS": str(events), **report})
        try:
            with events.open() as lines, written(trace).open("rb") as file:
                kernels = touched.compare(
                    touched.read_touches(gpu_events.read(lines)),
                    touched.read_extents(Reader(file).records()),
                )
        except (OSError, ValueError) as error:
            raise MeasurementError(str(error)) from None
    rows: dict[str, touched.Uses] = {}
    for kernel, uses in kernels.items():
        name = readable_kernel(kernel)
        rows[name] = touched.together([rows.get(name, touched.Uses()), uses])
    facts = {**virtual_facts(PROFILE, "timing"), "program": program, "settings": settings}
    every = [("all kernels", touched.together(rows.values()))]
    every += sorted(rows.items(), key=lambda each: (-each[1].different, -each[1].touched))
    for name, uses in every:
        facts |= {key: value for key, value in uses._asdict().items() if key != "touched"}
        yield Row("extents.touched", uses.touched, "uses", case=name, **facts)


LEAST_TOLD = 0.97
"""Least precision and recall with block events; lower values fail the suite."""


def told_rows(files: list[File], learner_of: tuple[Any, Any]) -> Iterator[Row]:
    """Yields the rows with block events. Raises MeasurementError if exact ends are not used."""
    names = [file.name for file in files]
    for against in (TENSORS, ADDRESSED, HANDED):
        total = Score()
        for file in files:
            learner = Learner(*learner_of, blocks=True)
            total += replay(file.events, learner, against).steady
        if against != HANDED and min(total.precision, total.recall) < LEAST_TOLD:
            raise MeasurementError(
                f"with block events {total} against {against}, less than {LEAST_TOLD}"
            )
        yield from pair("extents.blocks", total, case=against, files=names)


def scratch_rows(files: list[File]) -> Iterator[Row]:
    """Yields the bytes that make the truths "handed" and "addressed" differ."""
    launches = (event for file in files for event in file.events if isinstance(event, Launch))
    buffers = [buffer for launch in launches for buffer in launch.scratch]
    for figure, of in (("handed", 0), ("addressed", 1)):
        total = sum(buffer[of] for buffer in buffers)
        yield Row(f"extents.scratch.{figure}", total, "bytes", buffers=len(buffers))


def convolution_rows(file: File, learner_of: tuple[Any, Any]) -> Iterator[Row]:
    for truth, samples in (("samples", True), ("tensors", False)):
        events = read_traffic(iter(file.lines), samples=samples)
        for how, blocks in (("learned", False), ("block events", True)):
            score = replay(events, Learner(*learner_of, blocks=blocks)).steady
            yield from pair("extents.convolutions", score, case=f"{file.name} {how}, {truth}")


def cost_rows(options: Options, files: list[File], library: Path, header: Path) -> Iterator[Row]:
    lib = generator(options.tools, SOURCE, library, header)
    costs = [Cost(lib, file.events) for file in files]
    for _ in range(3 if options.quick else REPLAYS):
        for cost in costs:
            cost.measure()
    names = [file.name for file in files]
    means = [cost.mean for cost in costs]
    yield Row("extents.us_per_launch", statistics.fmean(means), "us", files=names)
    for name, least, most in (("us_at_10", 9, 12), ("us_at_100", 80, 192)):
        found = [us for cost in costs if (us := cost.of(least, most)) is not None]
        if found:
            yield Row(f"extents.{name}", statistics.fmean(found), "us", pointers=[least, most])
