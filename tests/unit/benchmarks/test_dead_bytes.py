"""Dead bytes: the allocator's blocks against departures from the GPU, computed by hand."""

from __future__ import annotations

import pytest
from gpu_events import read
from study.dead_bytes import (
    PAGE_BYTES,
    Bytes,
    Departure,
    Handed,
    read_departures,
    read_handed,
    shares,
    split,
)

BASE = 16 << 21
ALL = 0xFFFFFFFF


def left_at(issued_ns: int, address: int, pages: int, left_ns: int | None = None) -> Departure:
    return Departure(issued_ns, address, pages, issued_ns if left_ns is None else left_ns)


def test_memory_that_was_never_handed_out_is_dead() -> None:
    assert split([], [left_at(5, BASE, ALL)]) == Bytes(free=2 << 20)


def test_a_block_is_live_from_when_it_is_handed_out_to_when_it_is_taken_back() -> None:
    handed = [Handed(10, BASE, 3 * PAGE_BYTES), Handed(20, BASE, 0)]
    left = [left_at(time_ns, BASE, 0b11) for time_ns in (9, 10, 19, 20)]
    assert split(handed, left) == Bytes(free=4 * PAGE_BYTES, live=4 * PAGE_BYTES)


def test_only_the_pages_that_left_count_and_of_those_what_is_owned() -> None:
    handed = [Handed(1, BASE + PAGE_BYTES - 512, 1024), Handed(2, BASE + 31 * PAGE_BYTES, 512)]
    both = left_at(3, BASE, 0b11 | 1 << 31)
    assert split(handed, [both]) == Bytes(part=3 * PAGE_BYTES - 1536, live=1536)
    assert split(handed, [left_at(3, BASE, 1)]) == Bytes(part=PAGE_BYTES - 512, live=512)


def test_a_block_across_two_departures_counts_in_each_for_its_part() -> None:
    next_base = BASE + (2 << 20)
    handed = [Handed(1, next_base - 4096, 8192)]
    left = [left_at(2, BASE, ALL), left_at(2, next_base, ALL)]
    assert split(handed, left) == Bytes(part=(4 << 20) - 8192, live=8192)


def test_records_in_any_order_are_joined_by_time() -> None:
    handed = [Handed(20, BASE, 0), Handed(10, BASE, PAGE_BYTES)]
    left = [left_at(30, BASE, 1), left_at(15, BASE, 1)]
    assert split(handed, left) == Bytes(free=PAGE_BYTES, live=PAGE_BYTES)


def test_what_was_handed_out_again_before_it_left_is_told_from_what_was_free() -> None:
    """When the newest begun kernel was issued, no tensor had the memory."""
    handed = [Handed(10, BASE, PAGE_BYTES), Handed(20, BASE, 0)]
    handed += [Handed(30, BASE + PAGE_BYTES, PAGE_BYTES), Handed(40, BASE + PAGE_BYTES, 0)]
    left = [left_at(25, BASE, 1, left_ns) for left_ns in (25, 29, 30, 45)]
    assert split(handed, left) == Bytes(free=2 * PAGE_BYTES, handed=2 * PAGE_BYTES)
    assert split(handed, left).dead == 4 * PAGE_BYTES


def test_lines_are_read_and_others_refused() -> None:
    assert read_handed(["7 4096 512\n"]) == [Handed(7, 4096, 512)]
    with pytest.raises(ValueError, match="not enough"):
        read_handed(["7 4096\n"])


def test_a_departure_counts_from_the_issue_of_the_newest_kernel_that_had_begun() -> None:
    """The first start belongs to no kernel. Prefetches to the GPU and resident blocks do not count
    as departures."""
    lines = ["start 9 3", "evict 1 1 3 3", "start 1 8", "launch 1 7 add 1+1", "launch 2 8 add 2+1"]
    lines += ["out 1 8000000f 9 12", "prefetch 1 1 10 11", "none 1 0 10 11", "start 2 11"]
    lines += ["ahead 2 1 12 13"]
    assert read_departures(read(lines)) == [
        Departure(0, 2097152, 1, 3),
        Departure(7, 2097152, 0x8000000F, 9),
        Departure(8, 2 * 2097152, 1, 12),
    ]


def test_what_was_handed_out_again_bounds_what_a_discard_beside_kernels_saves() -> None:
    found = shares(Bytes(free=10, handed=50, part=10, live=130), 100)
    assert found["fewer"] == pytest.approx(0.3)
    assert found["fewer_at_most"] == pytest.approx(0.4), "the ten that were free"
    assert found["free_share"] == pytest.approx(0.05)
