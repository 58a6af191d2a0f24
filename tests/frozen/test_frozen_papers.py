"""The simulated cells of docs/papers.md equal those in lab/bench/results/papers.jsonl.

The short test covers one paper and one trace; the long campaigns cover every cell.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from places import BENCHMARKS
from study.papers.experiments import Bench
from suites import papers, sim

from pump_lab import profiles

KEPT = {
    row["name"]: row
    for row in map(
        json.loads, (BENCHMARKS / "results" / "papers.jsonl").read_text("utf-8").splitlines()
    )
    if row.get("simulated")
}
COMMANDS = sorted({row["command"] for row in KEPT.values()})


def made(words: list[str], traces: int | None = None) -> Iterator[dict[str, Any]]:
    """Yields the simulated rows that the suite computes with these options for `traces` traces."""
    pytest.importorskip("scipy")
    chosen = papers.parse(words)
    profile = profiles.load(sim.PROFILE).changed(sim.STUDY)
    bench = Bench(sim.traces(chosen.traces)[:traces], profile, whole=chosen.whole)
    for _, experiment in papers.experiments(bench, chosen.only):
        rows = (row.as_json() for row in experiment.rows(""))
        yield from (row for row in rows if row["simulated"])


def test_cells_of_one_paper_and_trace_come_out_as_they_are_kept() -> None:
    found = {row["name"]: row["by_trace"] for row in made(["--only", "turnip"], traces=1)}
    assert len(found) == 3
    for name, by_trace in found.items():
        kept = {trace: KEPT[name]["by_trace"][trace] for trace in by_trace}
        assert by_trace == pytest.approx(kept, rel=1e-6), name


@pytest.mark.long
@pytest.mark.parametrize("command", COMMANDS)
def test_every_cell_comes_out_as_it_is_kept(command: str) -> None:
    words = command.replace("FOLDER", str(sim.DATA / "ten")).split()
    found = {row["name"]: row["value"] for row in made(words[words.index("--") + 1 :])}
    kept = {name: row["value"] for name, row in KEPT.items() if row["command"] == command}
    assert {name: found[name] for name in kept} == pytest.approx(kept, rel=1e-6)
