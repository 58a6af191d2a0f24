"""The booking of transfers on one direction of the link, against a plain list of spans."""

from __future__ import annotations

import random
import re
from itertools import pairwise
from typing import Any

import cffi
import gpu_model
import pytest

GBPS = 10.0
IN, OUT = 0, 1


@pytest.fixture(scope="module")
def link() -> tuple[cffi.FFI, Any]:
    ffi = cffi.FFI()
    text = (gpu_model.CORE / "uvm_link.h").read_text()
    spans = re.search(r"#define UVM_LINK_SPANS \d+", text)
    declarations = re.search(r"struct uvm_link \{.*uint64_t at\);", text, re.S)
    assert spans and declarations
    ffi.cdef(spans[0] + "\n" + declarations[0])
    return ffi, ffi.dlopen(str(gpu_model.build()))


def links_of(ffi: cffi.FFI, come: float = 0.8, leave: float = 0.8) -> Any:
    links = ffi.new("struct uvm_links *")
    links.ways[IN].duplex, links.ways[OUT].duplex = come, leave
    return links


@pytest.mark.parametrize("seed", range(6))
def test_transfers_never_overlap_nor_start_before_they_are_ready(
    link: tuple[cffi.FFI, Any], seed: int
) -> None:
    ffi, lib = link
    draw = random.Random(seed)
    links = links_of(ffi)
    one = links.ways[IN]
    spans, now, total = [], 0, 0
    for _ in range(2000):
        now += draw.choice([0, 0, 0, 500])  # bookings outpace time: gaps overflow the table
        earliest = now + draw.randint(0, 100_000)
        length = draw.randint(1, 20_000)
        end = lib.uvm_link_book(links, IN, now, earliest, length, GBPS)
        work = end - round(length / GBPS + 1e-9)
        assert end - length / GBPS >= earliest - 1
        spans.append((work, end))
        total += length / GBPS
        assert one.count <= 32
        kept = [(one.begin_at[i], one.end_at[i]) for i in range(one.count)]
        assert all(a[1] < b[0] for a, b in pairwise(kept))
    spans.sort()
    assert all(a_end <= b_start + 1 for (_, a_end), (b_start, _) in pairwise(spans))
    assert one.busy_ns == pytest.approx(total, rel=0.01)


def test_a_transfer_goes_into_the_first_gap_that_holds_it(link: tuple[cffi.FFI, Any]) -> None:
    ffi, lib = link
    links = links_of(ffi)

    def book(earliest: int, length: int) -> int:
        return int(lib.uvm_link_book(links, IN, 0, earliest, length, GBPS))

    assert book(1000, 10_000) == 2000
    assert book(3000, 10_000) == 4000
    assert book(0, 20_000) == 6000  # 2000 ns: no gap is long enough
    assert book(0, 10_000) == 1000
    assert book(0, 10_000) == 3000
    assert links.ways[IN].count == 1


@pytest.mark.parametrize(("begin", "expected"), [(0, 1250), (500, 1125), (1000, 1000)])
def test_only_the_time_in_which_the_other_direction_is_busy_counts_as_duplex(
    link: tuple[cffi.FFI, Any], begin: int, expected: int
) -> None:
    ffi, lib = link
    links = links_of(ffi)
    lib.uvm_link_book(links, OUT, 0, begin, 100_000, GBPS)
    assert lib.uvm_link_book(links, IN, 0, 0, 10_000, GBPS) == expected


def test_a_booked_transfer_ends_later_when_the_other_direction_joins(
    link: tuple[cffi.FFI, Any],
) -> None:
    ffi, lib = link
    links = links_of(ffi, 0.5, 0.8)
    told = lib.uvm_link_book(links, IN, 0, 0, 10_000, GBPS)
    end = lib.uvm_link_at(links, IN, told)
    assert (told, end) == (1000, 1000)
    # From 600 on, the way out takes 320 / 0.8 = 400, in which this way has half its speed: it ends
    # 200 later.
    assert lib.uvm_link_book(links, OUT, 200, 600, 3_200, GBPS) == 1000
    assert lib.uvm_link_time(links, IN, end) == 1200
    assert (links.ways[IN].busy_ns, links.ways[OUT].busy_ns) == (1200, 400)
    # A transfer booked after that begins at the later end.
    assert lib.uvm_link_book(links, IN, 700, 700, 1_000, GBPS) == 1300


@pytest.mark.parametrize("seed", range(4))
def test_told_times_only_move_to_later_ones(link: tuple[cffi.FFI, Any], seed: int) -> None:
    ffi, lib = link
    draw = random.Random(seed)
    links = links_of(ffi, 0.5, 0.9)
    now = 0
    told: dict[tuple[int, int], int] = {}
    for _ in range(500):
        now += draw.choice([0, 300, 2000])
        way = draw.choice([IN, OUT])
        end = lib.uvm_link_book(links, way, now, now + draw.randint(0, 5000), 9_000, GBPS)
        told[way, lib.uvm_link_at(links, way, end)] = end
        for (of, at), before in list(told.items()):
            after = lib.uvm_link_time(links, of, at)
            if after <= now:
                del told[of, at]
                continue
            assert after >= before - 2, "rounding apart"
            told[of, at] = after
