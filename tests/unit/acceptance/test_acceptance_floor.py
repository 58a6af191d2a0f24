"""The floor from recordings, for recordings small enough to compute by hand."""

from __future__ import annotations

import floor
import pytest
from acceptance.models import programs
from acceptance.speed import floor_recording as recorded
from floor import BLOCK_BYTES, Touch

from pump.trace import format as form
from pump.trace import records as rec

ACCESS = {"step": "ru", "make": "w"}


def allocation(slot: int, blocks: int, kind: int = form.ALLOC) -> rec.RangeRow:
    """Returns a range whose first block has the number 100 * slot."""
    base = 100 * slot * BLOCK_BYTES
    return rec.RangeRow(kind, 1, slot, 1, base, blocks * BLOCK_BYTES, 0, 0, 0)


def kernel(function: int, *slots: int) -> rec.Operation:
    """Returns a launch with a pointer to the start of each range and a wrong believed length."""
    extents = (rec.Extent(slot, 1, 0, 77, 0, 8 * n) for n, slot in enumerate(slots))
    return rec.Operation(form.KERNEL, 1, 1, 1, 0, function, 9, tuple(extents))


def copy(slot: int, access: int, blocks: int) -> rec.Operation:
    extent = rec.Extent(slot, 1, 0, blocks * BLOCK_BYTES, access, 0)
    return rec.Operation(form.COPY, 1, 1, 1, 0, 0, 0, (extent,))


def start(ranges: int = 3, blocks: int = 2) -> list[rec.Record]:
    names: list[rec.Record] = [rec.Name(1, "step"), rec.Name(2, "make"), rec.Name(3, "strange")]
    return names + [allocation(slot, blocks) for slot in range(1, ranges + 1)]


def blocks_of(slot: int, count: int = 2) -> tuple[int, ...]:
    return tuple(range(100 * slot, 100 * slot + count))


def test_a_known_kernel_reads_and_updates_its_ranges_whole_whatever_was_believed() -> None:
    touches, operations = recorded.touches_of([*start(), *[kernel(1, 1, 2)] * 4], ACCESS)
    assert operations == 1
    assert touches == [Touch(blocks_of(1), blocks_of(2), ())]


def test_of_an_unknown_kernel_it_is_only_certain_that_new_contents_may_be_there() -> None:
    touches, _ = recorded.touches_of([*start(), *[kernel(3, 2)] * 4], ACCESS)
    assert touches == [Touch((), (), (200,)), Touch((), (), (201,))]
    # So the kernel never raises the floor, even if the ranges together exceed the memory.
    large = [*start(3, 50), *[kernel(3, 1, 2, 3)] * 4]
    touches, _ = recorded.touches_of(large, ACCESS)
    assert floor.least_traffic(touches, 5, 10 * BLOCK_BYTES).h2d_bytes == 0


def test_what_an_unknown_kernel_may_have_written_need_not_come_from_the_host() -> None:
    iteration = [kernel(3, 1), kernel(1, 1, 2), kernel(3, 3), kernel(1, 3, 2)]
    touches, _ = recorded.touches_of([*start(), *iteration * 4], ACCESS)
    assert floor.least_traffic(touches, 5, 4 * BLOCK_BYTES).h2d_bytes == 0
    # If the blocks are known to be read each time, two blocks must arrive for each launch.
    touches, _ = recorded.touches_of([*start(), *iteration[1::2] * 4], ACCESS)
    fetched = floor.least_traffic(touches, 5, 4 * BLOCK_BYTES).h2d_bytes // BLOCK_BYTES
    assert fetched == 2 * (2 * 5 - 1)  # the first of ten may find its blocks resident


def test_copies_and_memsets_tell_for_themselves_and_count_whole_blocks_only() -> None:
    part = rec.Extent(1, 1, BLOCK_BYTES // 2, BLOCK_BYTES, 1, 0)  # contains no whole block
    half = rec.Operation(form.COPY, 1, 1, 1, 0, 0, 0, (part,))
    records = [*start(), *[copy(1, 1, 2), copy(2, 3, 2), half, copy(3, 2, 1)] * 3]
    touches, operations = recorded.touches_of(records, ACCESS)
    assert operations == 4
    assert touches == [
        Touch(blocks_of(1), (), ()),
        Touch((), (), blocks_of(2)),
        Touch((), (), (300,)),
    ]


def test_the_iteration_is_what_repeats_at_the_end_with_inner_repetitions_in_it() -> None:
    twice = [kernel(1, 1, 2), kernel(2, 3), kernel(2, 3)]
    records = [*start(), kernel(3, 1), kernel(3, 2), *twice * 4]
    touches, operations = recorded.touches_of(records, ACCESS)
    assert operations == 3
    assert len(touches) == 3
    assert recorded.touches_of([*start(), kernel(1, 1, 2), kernel(2, 3)], ACCESS) == ([], 0)
    assert recorded.touches_of([], ACCESS) == ([], 0)


def test_an_extent_of_a_range_that_is_gone_counts_nothing() -> None:
    records = [*start(), allocation(2, 2, form.FREE), *[kernel(1, 1, 2)] * 4]
    touches, _ = recorded.touches_of(records, ACCESS)
    assert touches == [Touch(blocks_of(1), (), ())]


def test_what_came_before_a_loss_is_left_out() -> None:
    records = [*start(), *[kernel(2, 3)] * 4, rec.Lost(1, 1, 5), *[kernel(1, 1, 2)] * 3]
    touches, operations = recorded.touches_of(records, ACCESS)
    assert operations == 1
    assert touches == [Touch(blocks_of(1), blocks_of(2), ())]


def test_the_table_of_accesses_says_what_the_training_says_of_its_own_operations() -> None:
    model = programs.perceptron_model(quick=True)
    for operation in model.iteration():
        words = programs.ACCESS[operation.kernel]
        pointers = [a for a in operation.arguments if not isinstance(a, int | float)]
        names = [a if isinstance(a, str) else a.name.lower() for a in pointers[: len(words)]]
        told = {word: {n for n, w in zip(names, words, strict=True) if w == word} for word in "ruw"}
        assert told["u"] == set(operation.updates)
        assert told["w"] == set(operation.overwrites)
        assert told["r"] == set(operation.reads)


@pytest.mark.parametrize("name", ["mlp", "sweep"])
def test_the_programs_floor_grows_as_their_memory_shrinks(name: str) -> None:
    touches = programs.known_touches(name, quick=True)
    blocks = {b for t in touches for b in (*t.reads, *t.updates, *t.overwrites)}
    least = [
        floor.least_traffic(touches, 3, int(len(blocks) / ratio) * BLOCK_BYTES).h2d_bytes
        for ratio in (1.0, 1.5, 2.0, 3.0)
    ]
    assert least[0] == 0
    assert least == sorted(set(least))
