"""Kernels whose host library reports the memory that they touch (lab/driver/code/touch.c)."""

from __future__ import annotations

from pathlib import Path

import pytest
from virtual_driver import Outcome, compile_c, folder, host_kernels, run

pytest.importorskip("cuda.bindings.nvrtc")

PAGES = 8 << 4
"""The number of 64 KiB pages of the program's only array, of 8 MiB."""


def reached(outcome: Outcome) -> int:
    """Returns the pages that arrived; a sweep brings a block by six faults, so faults are fewer."""
    return int(outcome.report["counters"]["populated_bytes"]) >> 16


def launched(touches: str | None) -> Outcome:
    """Runs one kernel over the array, which is on no side yet: every touched page arrives."""
    return run("oversubscribed", "1", "1", env={} if touches is None else {"TEST_TOUCHES": touches})


@pytest.mark.parametrize(
    ("touches", "pages"),
    [
        ("0:4", 1),
        ("4194304:4,0:4", 2),
        ("2097148:8", 2),  # the last page of a block and the first of the next
        ("65536:65537", 2),
        ("2097152:4,0:65537,65536:4,2097160:4", 3),  # out of order, overlapping
        ("0:6291456", 96),
        ("0:2097152,2097152:4", 33),
        ("0:8388608,4194304:65536", PAGES),
        ("8388604:1000000", 1),  # cut at the end of the allocation
        ("9000000000:4", 0),  # in no allocation
        ("", 0),
    ],
)
def test_a_kernel_faults_on_the_pages_that_it_is_told_to_touch(touches: str, pages: int) -> None:
    assert reached(launched(touches)) == pages


def test_a_part_without_end_is_the_whole_allocation() -> None:
    assert reached(launched(None)) == PAGES


def test_too_many_parts_count_as_everything_and_are_named() -> None:
    outcome = launched("*")
    assert reached(outcome) == PAGES
    assert "pump_touch_scale" in outcome.stderr


MIB = 1 << 20


@pytest.mark.parametrize(
    ("events", "offset", "pages"),
    [
        ([(0, MIB)], 0, 16),
        ([(0, MIB)], MIB // 2, 8),  # to the block's end
        ([(0, MIB)], MIB, 0),  # in no block
        ([(0, MIB), (MIB, 4 * MIB)], MIB, 64),
        ([(0, MIB), (0, 0)], 0, 0),  # the allocator has freed it
        ([(0, MIB), (0, 0), (0, 2 * MIB)], 0, 32),
        ([(0, MIB), (MIB, MIB), (0, 0), (MIB, 0), (0, 65536)], MIB, 0),
    ],
)
def test_a_pointer_reaches_to_the_end_of_its_allocators_block(
    events: list[tuple[int, int]], offset: int, pages: int
) -> None:
    text = ",".join(f"{at}:{length}" for at, length in events)
    assert reached(run("blocks", text, str(offset), "")) == pages


def test_a_graph_reaches_blocks_that_were_freed_after_its_capture() -> None:
    assert reached(run("blocks", f"0:{MIB},0:0", "0", "graph")) == 16


def test_launches_are_logged_with_the_blocks_that_they_touch(tmp_path: Path) -> None:
    file = tmp_path / "events"
    run("blocks", f"0:{3 * MIB}", "0", "", env={"PUMP_VIRTUAL_EVENTS": str(file)})
    (launch,) = (line.split() for line in file.read_text().splitlines() if "launch" in line)
    assert launch[3] == "scale"
    assert sum(int(stretch.partition("+")[2]) for stretch in launch[4:]) == 2


def any_kernel() -> Path:
    source = Path(__file__).with_name("touch_any.c")
    return compile_c(folder() / "any.so", "-O2", "-fPIC", "-shared", source)


@pytest.mark.parametrize("rest", ["", ":/nowhere.so"])
def test_a_library_may_tell_of_kernels_whose_names_it_does_not_know(rest: str) -> None:
    outcome = run("oversubscribed", "1", "1", env={"PUMP_VIRTUAL_KERNELS": f"{any_kernel()}{rest}"})
    assert reached(outcome) == 1


def test_it_is_asked_only_where_no_other_library_tells() -> None:
    libraries = f"{any_kernel()}:{host_kernels()}"
    env = {"PUMP_VIRTUAL_KERNELS": libraries, "TEST_TOUCHES": "0:65537"}
    assert reached(run("oversubscribed", "1", "1", env=env)) == 2


def test_a_kernel_that_it_knows_nothing_of_touches_everything() -> None:
    env = {"PUMP_VIRTUAL_KERNELS": str(any_kernel()), "TEST_KNOWN": "add"}
    assert reached(run("oversubscribed", "1", "1", env=env)) == PAGES
