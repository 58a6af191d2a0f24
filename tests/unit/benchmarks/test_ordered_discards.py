"""Discards inserted into a recorded program: their blocks, and the operations that they follow."""

from __future__ import annotations

import numpy as np
from study.dead_bytes import BLOCK_BYTES, Handed
from workloads.ordered_discards import by_operation, emptied, with_discards

from pump_lab.sim import program as form
from pump_lab.sim.program import Builder, Program

BASE = 16 * BLOCK_BYTES


def test_a_block_is_empty_once_the_last_tensor_in_it_was_taken_back() -> None:
    handed = [
        Handed(1, BASE, BLOCK_BYTES + 512),
        Handed(2, BASE + BLOCK_BYTES + 512, 512),
        Handed(3, BASE, 0),
        Handed(4, BASE + BLOCK_BYTES + 512, 0),
        Handed(5, BASE + 9 * BLOCK_BYTES, 0),  # was never handed out
    ]
    assert emptied(handed) == [(3, BASE), (4, BASE + BLOCK_BYTES)]


def test_a_block_dies_behind_what_was_issued_before_and_outside_of_ranges_none() -> None:
    places = [(BASE, 2 * BLOCK_BYTES, 7)]
    empty = [(15, BASE + BLOCK_BYTES), (20, BASE), (5, BASE), (25, BASE + 2 * BLOCK_BYTES)]
    found = by_operation(empty, [10, 20], places)
    assert found == {0: [(7, BLOCK_BYTES, BLOCK_BYTES)], 1: [(7, 0, BLOCK_BYTES)]}


def test_a_discard_stands_behind_its_operation_where_the_block_stays_free_long_enough() -> None:
    builder = Builder()
    builder.alloc(0)
    for block in (0, 1, 2, 2, 0, 1):
        builder.operation(form.KERNEL, [(0, block * BLOCK_BYTES, BLOCK_BYTES, form.WRITE)])
    builder.sync(mark=True)
    steps, uses = builder.tables()
    ranges, blocks = form.ranges_in_a_row([3 * BLOCK_BYTES])
    program = Program("made", steps, uses, ranges, blocks, 1, 3 * BLOCK_BYTES)
    empty = {0: [(0, 0, BLOCK_BYTES)], 2: [(0, 2 * BLOCK_BYTES, BLOCK_BYTES)]}
    found = with_discards(program, empty, 3)
    assert found.steps["kind"].tolist() == [
        *(form.ALLOC, form.KERNEL, form.DISCARD),
        *[form.KERNEL] * 5,
        form.SYNC,
    ], "the block that is used again at once stays"
    discard = found.steps[2]
    (dead,) = found.uses[discard["first_use"] :][: discard["uses"]]
    assert dead.tolist()[:4] == (0, BLOCK_BYTES, 0, form.OVERWRITE)
    assert np.array_equal(found.uses[:-1], uses)
