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


@pytest.fixture(scope="module")
def link() -> tuple[cffi.FFI, Any]:
    ffi = cffi.FFI()
    text = (gpu_model.CORE / "uvm_link.h").read_text()
    spans = re.search(r"#define UVM_LINK_SPANS \d+", text)
    declarations = re.search(r"struct uvm_link \{.*duplex_factor\);", text, re.S)
    assert spans and declarations
    ffi.cdef(spans[0] + "\n" + declarations[0])
    return ffi, ffi.dlopen(str(gpu_model.build()))


@pytest.mark.parametrize("seed", range(6))
def test_transfers_never_overlap_nor_start_before_they_are_ready(
    link: tuple[cffi.FFI, Any], seed: int
) -> None:
    ffi, lib = link
    draw = random.Random(seed)
    one, other = ffi.new("struct uvm_link *"), ffi.new("struct uvm_link *")
    spans, now, total = [], 0, 0
    for _ in range(2000):
        now += draw.choice([0, 0, 0, 500])  # far fewer than it books: gaps overflow the table
        earliest = now + draw.randint(0, 100_000)
        length = draw.randint(1, 20_000)
        end = lib.uvm_link_book(one, other, now, earliest, length, GBPS, 0.8)
        work = end - round(length / GBPS + 1e-9)
        assert end - length / GBPS >= earliest - 1
        spans.append((work, end))
        total += length / GBPS
        assert one.count <= 32
        kept = [(one.begin_ns[i], one.end_ns[i]) for i in range(one.count)]
        assert all(a[1] < b[0] for a, b in pairwise(kept))
    spans.sort()
    assert all(a_end <= b_start + 1 for (_, a_end), (b_start, _) in pairwise(spans))
    assert one.busy_ns == pytest.approx(total, rel=0.01)


def test_a_transfer_goes_into_the_first_gap_that_holds_it(link: tuple[cffi.FFI, Any]) -> None:
    ffi, lib = link
    one, other = ffi.new("struct uvm_link *"), ffi.new("struct uvm_link *")

    def book(earliest: int, length: int) -> int:
        return int(lib.uvm_link_book(one, other, 0, earliest, length, GBPS, 0.8))

    assert book(1000, 10_000) == 2000
    assert book(3000, 10_000) == 4000
    assert book(0, 20_000) == 6000  # 2000 long: no gap holds it
    assert book(0, 10_000) == 1000
    assert book(0, 10_000) == 3000
    assert one.count == 1


@pytest.mark.parametrize(("begin", "expected"), [(0, 1250), (500, 1125), (1000, 1000)])
def test_only_the_time_in_which_the_other_direction_is_busy_counts_as_duplex(
    link: tuple[cffi.FFI, Any], begin: int, expected: int
) -> None:
    ffi, lib = link
    one, other = ffi.new("struct uvm_link *"), ffi.new("struct uvm_link *")
    lib.uvm_link_book(other, one, 0, begin, 100_000, GBPS, 0.8)
    assert lib.uvm_link_book(one, other, 0, 0, 10_000, GBPS, 0.8) == expected
