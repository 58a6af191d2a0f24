"""Compares range table, index and event ring with naive models, under sanitizers."""

import pytest
from c_build import SANITIZERS, build, run


@pytest.mark.parametrize("sanitizer", SANITIZERS)
def test_range_table_and_index_agree_with_a_naive_model(sanitizer: str) -> None:
    program = build(sanitizer, "range_fuzz", "memory/range_table.c")
    for seed in range(4):
        run(program, "model", str(seed), "20000")


def test_a_full_range_table_refuses_counts_and_recovers() -> None:
    program = build("address,undefined", "range_fuzz", "memory/range_table.c")
    run(program, "full", "0", "0")


@pytest.mark.parametrize("sanitizer", SANITIZERS)
def test_look_ups_that_race_with_frees_find_the_range_as_it_was_or_nothing(
    sanitizer: str,
) -> None:
    program = build(sanitizer, "range_fuzz", "memory/range_table.c")
    run(program, "threads", "1", "60000")


@pytest.mark.parametrize("sanitizer", SANITIZERS)
@pytest.mark.parametrize("producers", [1, 4])
def test_every_operation_arrives_once_whole_and_in_order_or_is_counted(
    sanitizer: str, producers: int
) -> None:
    program = build(sanitizer, "ring_fuzz")
    report = run(program, "5", "60000", str(producers))
    dropped, _, total = report.removeprefix("dropped ").partition(" of ")
    assert 0 < int(dropped) < int(total), "the ring was never full, or always"


@pytest.mark.long
@pytest.mark.parametrize("sanitizer", SANITIZERS)
def test_fuzzing_for_long_finds_nothing_more(sanitizer: str) -> None:
    ranges = build(sanitizer, "range_fuzz", "memory/range_table.c")
    ring = build(sanitizer, "ring_fuzz")
    for seed in range(100, 150):
        run(ranges, "model", str(seed), "50000")
    run(ranges, "threads", "9", "3000000", timeout_s=600)
    run(ring, "6", "3000000", "6", timeout_s=600)
