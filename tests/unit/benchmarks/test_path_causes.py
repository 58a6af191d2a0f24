"""Where the time of a run went and why its blocks moved, on logs of events made by hand."""

from __future__ import annotations

import gpu_events
import pytest
from path_causes import Path, follow

MS = 1_000_000
BLOCK = 2 << 20
ALL = "ffffffff"


def path(*lines: str, **expected: list[frozenset[int]]) -> Path:
    return follow(gpu_events.read(lines), expected or None)


def some(found: dict[str, float]) -> dict[str, float]:
    """What is not zero."""
    return {key: value for key, value in found.items() if value}


def test_the_parts_add_up_from_the_first_start_to_the_last_end() -> None:
    found = path(
        *("launch 1 0 add 5+1", f"launch 2 {8 * MS} add 5+1"),
        *(f"start 9 {MS}", f"start 1 {2 * MS}", f"end 9 {3 * MS}"),
        *(f"fault 5 {ALL} {2 * MS} {3 * MS}", f"stall 1 fault {2 * MS} {3 * MS}"),
        *(f"stall 1 arrival {4 * MS} {6 * MS}", f"end 1 {7 * MS}"),
        *(f"start 2 {10 * MS}", f"end 2 {11 * MS}", f"end 8 {90 * MS}"),
    )
    parts = {"kernels": 0.003, "faults": 0.001, "arrivals": 0.002, "held": 0.002, "idle": 0.001}
    assert found.seconds == pytest.approx(parts)
    assert found.total == pytest.approx(0.009)


def faulted(*lines: str, **expected: list[frozenset[int]]) -> dict[str, float]:
    """The causes of faults of one kernel that begins 5 ms after its issue and reaches block 5."""
    found = path(
        "launch 1 0 add 5+1",
        *lines,
        f"start 1 {5 * MS}",
        *(f"fault 5 {ALL} {5 * MS} {6 * MS}", f"stall 1 fault {5 * MS} {6 * MS}"),
        f"end 1 {7 * MS}",
        **expected,
    )
    assert sum(found.waits.values()) == pytest.approx(0.001)
    assert found.waits.keys() == found.blocks.keys()
    return some(found.blocks)


def test_each_faulted_block_has_one_cause() -> None:
    busy, leaving = f"prefetch 7 {ALL} {MS} {9 * MS}", f"out 8 {ALL} {MS} {9 * MS}"
    assert faulted() == {"not asked": 1}
    assert faulted(f"prefetch 7 {ALL} {MS} {5 * MS}") == {"not asked": 1}
    assert faulted(leaving) == {"waits for room": 1}
    assert faulted(leaving, busy) == {"link is busy": 1}
    assert faulted(f"evict 5 {ALL} {MS} {MS}", busy) == {"evicted": 1}
    asked = (f"evict 5 {ALL} {MS} {MS}", f"out 5 {ALL} {2 * MS} {3 * MS}")
    assert faulted(*asked, busy) == {"link is busy": 1}
    assert faulted(busy, add=[frozenset({4})]) == {"unknown": 1}
    assert faulted(busy, add=[frozenset({4, 5})]) == {"link is busy": 1}


def test_a_block_that_comes_in_several_batches_counts_once() -> None:
    found = path(
        *("launch 1 0 add 5+2", "start 1 10"),
        *("first 5 1 10 20", "fault 6 1 10 20", "stall 1 fault 10 30"),
        *(f"fault 6 {ALL} 30 40", "stall 1 fault 30 40", "end 1 50"),
    )
    assert some(found.blocks) == {"first touch": 1, "issued late": 1}
    assert found.waits["first touch"] == pytest.approx(10e-9)
    assert found.waits["issued late"] == pytest.approx(20e-9)


def test_the_stall_of_a_copy_takes_its_faults_along() -> None:
    found = path(
        *("launch 1 0 add 5+1", "start 1 10", "fault 6 1 11 12", "stall 4 fault 11 12"),
        *("fault 5 1 12 13", "stall 1 fault 12 13", "end 1 20"),
    )
    assert sum(found.blocks.values()) == 1
    assert found.seconds["faults"] == pytest.approx(1e-9)


def test_a_block_is_used_if_a_kernel_reaches_it_before_it_leaves() -> None:
    found = path(
        *("launch 1 0 add 5+2", "launch 2 0 add 9+1", f"prefetch 5 {ALL} 1 2", "start 1 10"),
        *(f"prefetch 6 {ALL} 11 12", f"prefetch 7 {ALL} 11 12", "none 5 0 12 12", "end 1 20"),
        *(f"evict 7 {ALL} 21 21", f"prefetch 7 {ALL} 22 23", f"out 5 {ALL} 24 25"),
        *("start 2 30", f"fault 9 {ALL} 30 31", "stall 2 fault 30 31", "end 2 40"),
    )
    assert found.moved == {
        "prefetched, used": 2 * BLOCK,
        "prefetched, not used": 2 * BLOCK,
        "faulted": BLOCK,
        "there already": BLOCK,
    }
    assert found.evicted_bytes == 2 * BLOCK


def test_what_a_longer_run_has_more() -> None:
    long = path("launch 1 0 add 5+1", "start 1 10", f"prefetch 5 {ALL} 10 11", "end 1 2000000010")
    short = path("launch 1 0 add 5+1", "start 1 10", "end 1 1000000010")
    more = long.less(short)
    assert more.total == pytest.approx(1.0)
    assert more.moved["prefetched, used"] == BLOCK


def test_logs_that_say_nothing_or_are_not_of_the_recording_are_refused() -> None:
    with pytest.raises(ValueError, match="no kernel ran to its end"):
        path("launch 1 0 add 5+1", "start 1 10")
    with pytest.raises(ValueError, match="add: more launches than the 1 recorded ones"):
        path("launch 1 0 add 5+1", "launch 2 1 add 5+1", add=[frozenset({5})])
    with pytest.raises(ValueError, match="not a line of PUMP_VIRTUAL_EVENTS: 'evicts 5'"):
        path("evicts 5")
