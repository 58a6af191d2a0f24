"""The blocks that the worker duplicates, and how it learns from their departures."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from fake_client import lib
from test_worker_schedule import BLOCKS, BUDGET, LAYERS, Training

WRONG_FREE, COPIES_A_TRIAL, FEW_TRIALS, ASKED_BLOCKS = 16, 1024, 256, 16384
"""Constants of model_duplicates.c."""
STAY_BUDGETS = 8
"""A constant of model_blocks.c."""
Place = tuple[int, int]
"""Slot and block."""


def bits(mask: int) -> list[int]:
    return [i for i in range(32) if mask >> i & 1]


class Duplicating(Training):
    """Executors that make all requested duplicates. `writes`: Whether kernels write a block.
    `late`: Blocks are already on the GPU when they are to arrive."""

    def __init__(
        self, writes: Callable[[Place], bool], *, late: bool = False, wanted: bool = True
    ) -> None:
        super().__init__("window")
        self.worker.model.duplicate(wanted)
        self.writes, self.late = writes, late
        self.hinted: set[Place] = set()
        self.asked: list[Place] = []
        self.copied: list[Place] = []
        self.clean: list[Place] = []

    def move(self, command: Any, direction: int) -> None:
        result, kept = self.client.result_of(command), 0
        first = command.offset_bytes // lib.PUMP_BLOCK_BYTES
        if result == lib.PUMP_RESULT_MOVED and direction == lib.PUMP_TO_GPU:
            marks = bits(self.client.duplicates.pop(command.ticket, 0))
            self.asked += [(command.slot, first + i) for i in marks]
            if not self.late:
                self.hinted |= {(command.slot, first + i) for i in marks}
                kept = sum(1 << i for i in marks)
        elif result == lib.PUMP_RESULT_MOVED:
            for i in range(command.length_bytes // lib.PUMP_BLOCK_BYTES):
                place = command.slot, first + i
                if place in self.hinted and not self.writes(place):
                    kept |= 1 << i
                (self.clean if kept >> i & 1 else self.copied).append(place)
                self.hinted.discard(place)
        self.client.finish(command, result, kept)
        self.count(command, direction, result)

    def count(self, command: Any, direction: int, result: int) -> None:
        if result != lib.PUMP_RESULT_MOVED:
            return
        first = command.offset_bytes // lib.PUMP_BLOCK_BYTES
        blocks = {
            (command.slot, first + i) for i in range(command.length_bytes // lib.PUMP_BLOCK_BYTES)
        }
        if direction == lib.PUMP_TO_GPU:
            self.there |= blocks
            assert len(self.there) <= BUDGET
        else:
            self.there -= blocks

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step(2)

    def sweep(self, layers: Iterable[int] = range(LAYERS)) -> None:
        """Goes through the layers, and waits for each."""
        for layer in layers:
            self.issue(layer)
            self.worker.tick()
            self.carry_out()
            self.execute()


def test_what_is_only_read_leaves_without_a_copy_from_its_second_time_on() -> None:
    program = Duplicating(lambda _: False)
    program.run(30 * LAYERS)
    assert program.asked, "blocks that had left came again"
    # Each block is copied once. Blocks that leave during the first WRONG_FREE trials are copied
    # again; each arriving layer has one trial.
    assert len(program.copied) <= 2 * LAYERS * BLOCKS
    assert len(program.clean) > 4 * len(program.copied)
    totals = program.worker.model.totals()
    assert (totals.trials, totals.trials_wrong) == (len(program.clean), 0)


def test_nothing_is_duplicated_where_it_is_not_wanted() -> None:
    program = Duplicating(lambda _: False, wanted=False)
    program.run(10 * LAYERS)
    assert not program.asked
    assert program.copied


def test_a_program_that_writes_everything_pays_for_few_blocks() -> None:
    program = Duplicating(lambda _: True)
    program.run(60 * LAYERS)
    assert 0 < len(program.asked) <= WRONG_FREE + len(program.copied) // COPIES_A_TRIAL
    assert program.worker.model.totals().trials_wrong == len(program.asked)


def test_a_program_whose_first_trials_were_of_written_blocks_gets_others() -> None:
    """Kernels write all blocks until WRONG_FREE trials were wrong."""
    begins = True
    program = Duplicating(lambda _: begins)
    while program.worker.model.totals().trials_wrong < WRONG_FREE:
        program.run(LAYERS)
    begins = False
    program.copied.clear()
    while not program.clean:
        assert len(program.copied) < 4 * COPIES_A_TRIAL
        program.run(LAYERS)


def test_the_first_trials_are_spread() -> None:
    """Whole layers arrive, and one block of each is tried."""
    program = Duplicating(lambda _: True)
    while len(program.asked) < WRONG_FREE // 2:
        program.run(1)
    assert len({slot for slot, _ in program.asked}) == len(program.asked)


def without_its_first_layer() -> Duplicating:
    """Returns a program whose first layer was used with every other layer, so it was not evicted.
    The caller leaves the first layer out of later sweeps. Most evictions needed no copy."""
    program = Duplicating(lambda _: False)
    while len(program.clean) < 2 * FEW_TRIALS:
        for layer in range(1, LAYERS):
            program.sweep([0, layer])
    program.copied.clear()
    program.clean.clear()
    return program


def test_what_has_not_left_yet_stays_where_most_leaves_without_a_copy() -> None:
    program = without_its_first_layer()
    for _ in range(5):
        program.sweep(range(1, LAYERS))
    assert not program.copied


def test_what_the_program_has_done_with_does_not_stay_for_ever() -> None:
    program = without_its_first_layer()
    while not program.copied:
        assert len(program.clean) < 2 * STAY_BUDGETS * BUDGET
        program.sweep(range(1, LAYERS))
    assert len(program.clean) > (STAY_BUDGETS - 1) * BUDGET
    program.sweep(range(1, LAYERS))
    assert set(program.copied) == {(0, block) for block in range(BLOCKS)}


def test_two_wrong_guesses_end_it_for_a_block() -> None:
    program = Duplicating(lambda place: place[1] == 0)
    program.run(60 * LAYERS)
    written = [place for place in program.asked if place[1] == 0]
    assert max(written.count(place) for place in written) == 2
    assert len(program.clean) > 20 * len(written)


def test_of_idle_blocks_what_is_written_stays_and_the_others_leave_without_a_copy() -> None:
    program = Duplicating(lambda place: place[1] == 0)
    for turn in range(40):
        if turn == 20:
            program.copied.clear()
            program.clean.clear()
        program.sweep()
    assert not program.copied
    assert len(program.clean) > 10 * LAYERS


@pytest.mark.parametrize("kind", ["DEAD", "DISCARDED"])
def test_of_contents_that_become_worthless_nothing_is_expected(kind: str) -> None:
    program = Duplicating(lambda _: False)
    program.run(10 * LAYERS)
    slot = next(slot for slot, _ in sorted(program.hinted))
    wrong = program.worker.model.totals().trials_wrong
    there = {place for place in program.hinted if place[0] == slot}
    event = getattr(lib, f"PUMP_EVENT_{kind}")
    program.client.push(event, 0, [(slot, 0, BLOCKS * lib.PUMP_BLOCK_BYTES)])
    program.worker.tick()
    assert program.worker.model.totals().trials_wrong == wrong + len(there)


def test_where_blocks_come_too_late_to_be_duplicates_there_are_none_any_more() -> None:
    program = Duplicating(lambda _: False, late=True)
    for _ in range(400):
        program.run(2 * LAYERS)
        if program.worker.model.totals().trials_ended:
            break
    assert program.worker.model.totals().trials_ended == 1
    assert len(program.asked) == pytest.approx(ASKED_BLOCKS, abs=64)
    asked = len(program.asked)
    program.run(4 * LAYERS)
    assert len(program.asked) == asked
