"""The experiments of the papers that pump follows: published, reproduced, pump's, and the bound.

There is a row for each cell of one table (study/papers/experiments.py), and the table at the end.
Without options, the suite runs the traces of lab/bench/data/g10, in about five minutes of one core;
--whole runs everything that the table can hold. A cell without a value has a reason. docs/papers.md
shows the stored results of lab/bench/results/papers.jsonl.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from harness import Options, Row
from suites import sim

if TYPE_CHECKING:
    from study.papers.experiments import Bench, Experiment

PAPERS = "pump", "autoswap", "smartpool", "tensile", "g10", "turnip", "deepum", "msched"


def parse(arguments: list[str]) -> argparse.Namespace:
    """Returns the options of the suite; exits with status 2 on a bad one."""
    parser = argparse.ArgumentParser(prog="scripts/bench papers --")
    parser.add_argument("--only", action="append", choices=PAPERS, help="of the table")
    parser.add_argument(
        "--traces", type=Path, default=sim.DATA, metavar="FOLDER", help="of G10's traces"
    )
    parser.add_argument("--whole", action="store_true", help="the whole table: an hour or more")
    return parser.parse_args(arguments)


def run(options: Options) -> Iterator[Row]:
    from study.papers import table
    from study.papers.experiments import Bench

    from pump_lab import profiles

    chosen = parse(options.rest)
    traces = sim.traces(chosen.traces)
    profile = profiles.load(sim.PROFILE).changed(sim.STUDY)
    few = traces[:1] if options.quick else traces
    bench = Bench(few, profile, whole=chosen.whole)
    rows = []
    for name, experiment in experiments(bench, chosen.only or PAPERS, quick=options.quick):
        for row in experiment.rows(command(name, chosen)):
            rows.append(row.as_json())
            yield row
    print("\n".join(table.lines(rows)), flush=True)


def experiments(
    bench: Bench, only: Sequence[str], *, quick: bool = False
) -> Iterator[tuple[str, Experiment]]:
    """Yields experiments in the order of the table, each with its paper."""
    from study.papers import experiments as those
    from study.papers import flash, remade, several

    swapping = [name for name in ("autoswap", "tensile") if name in only]
    parts: dict[str, Callable[[Bench], Iterator[Experiment]]] = {
        "pump": those.pump_paper,
        "autoswap": lambda bench: those.swapping(bench, swapping),
        "tensile": lambda bench: chain(
            several.several(bench, quick=quick), remade.experiments(bench, quick=quick)
        ),
        "smartpool": those.smartpool,
        "g10": lambda bench: chain(those.g10(bench), flash.experiments(bench)),
        "turnip": those.turnip,
        "deepum": those.deepum,
        "msched": those.msched,
    }
    for name, part in parts.items():
        if name in only or (name == "autoswap" and swapping):
            for found in part(bench):
                yield found.paper.lower(), found


def command(paper: str, chosen: argparse.Namespace) -> str:
    """Returns the command that makes the cells of a paper."""
    words = ["scripts/bench papers -- --only", paper]
    if chosen.traces != sim.DATA:
        words.append("--traces FOLDER")
    if chosen.whole:
        words.append("--whole")
    return " ".join(words)
