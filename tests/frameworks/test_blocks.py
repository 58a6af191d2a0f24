"""Blocks of PyTorch's allocator: pump learns their sizes from reports or from launches."""

from __future__ import annotations

import pytest
from framework_runs import Bench, Outcome

from pump.trace.reader import Reader
from pump.trace.records import Name, Operation

pytestmark = pytest.mark.frameworks

NOTICE = (
    "the allocator reports blocks that do not match its memory (a new block overlaps a live one)"
)


def heard(outcome: Outcome) -> int:
    (summary,) = outcome.summaries.values()
    return summary["shim"]["block_events"]


def doubled(bench: Bench) -> list[list[int]]:
    """Returns the bytes that each multiplication should reach, from the only recording there."""
    (folder,) = bench.folder.iterdir()
    bench.trace(folder)  # waits until it is complete
    with (folder / "job.trace").open("rb") as file:
        records = list(Reader(file).records())
    kernels = {row.function for row in records if isinstance(row, Name) and "Mul" in row.name}
    return [
        [extent.length_bytes for extent in row.extents]
        for row in records
        if isinstance(row, Operation) and row.function in kernels
    ]


def test_launches_are_told_where_the_allocators_blocks_end(bench: Bench) -> None:
    outcome = bench.program("blocks", "right", pump=True)
    sizes = outcome.found["sizes"]
    assert heard(outcome) >= len(sizes) + 2, outcome.summaries
    assert doubled(bench) == [[size] for size in sizes]
    assert NOTICE not in outcome.stderr and outcome.violations() == 0


def test_a_report_that_does_not_fit_ends_it_with_one_notice(bench: Bench) -> None:
    outcome = bench.program("blocks", "broken", pump=True)
    assert outcome.stderr.count(NOTICE) == 1, outcome.stderr
    assert outcome.found["round_trip"] is True and outcome.violations() == 0
    assert len(doubled(bench)) == len(outcome.found["sizes"])


def test_without_the_reports_everything_else_is_the_same(bench: Bench) -> None:
    told = bench.program("mlp", "foreach", pump=True)
    learned = bench.program("mlp", "foreach", pump=True, env={"PUMP_BLOCK_EVENTS": "0"})
    assert (heard(told) > 100, heard(learned)) == (True, 0)
    assert told.found == learned.found and told.kernels() == learned.kernels()
    assert list(told.seen().values()) == list(learned.seen().values())
