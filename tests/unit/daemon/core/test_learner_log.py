"""The event log that a learner keeps of one run of a program, and its use in the next run."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from learner_calls import Access, Learner
from learner_programs import BLOCK, Caller, Seen, training

from pump.wire.abi import lib

CAPACITY = 1 << 14
SET_UP = list(range(900, 1000))
LAYERS = 30


class Run:
    """Runs a program that allocates some ranges and uses them all in each step."""

    def __init__(self, slots: Sequence[int], recalled: Learner | None = None) -> None:
        """Allocates ranges in these slots, in this order."""
        self.caller = Caller(Learner(CAPACITY))
        self.slots = slots
        if recalled is not None:
            self.caller.learner.recall(recalled.kept())
        self.caller.learner.keep()
        for slot in slots:
            self.caller.learner.alloc(slot, 1, (slot + 1) * BLOCK)

    @property
    def learner(self) -> Learner:
        return self.caller.learner

    def step(self) -> Seen:
        return self.caller.see(
            (2000 + i, [Access(slot, 1, 0, BLOCK)], 0) for i, slot in enumerate(self.slots)
        )

    def unpredicted_accesses(self) -> int:
        return int(self.learner.report().accesses_missed)


def test_the_second_run_is_predicted_from_its_seventeenth_operation_on() -> None:
    first = Caller(Learner(CAPACITY))
    first.learner.keep()
    for keys in (SET_UP, training(), training(), training()):
        first.play(keys)
    second = Caller(Learner(CAPACITY))
    second.learner.recall(first.learner.kept())
    start = second.play(SET_UP)
    assert start.offered == len(SET_UP) - 16
    assert start.misled == 0
    for _ in range(3):
        seen = second.play(training())
        assert seen.right == 1, "from the first iteration on"


def test_a_program_that_ends_in_equal_copies_is_followed_by_the_period_of_its_steps() -> None:
    """A checkpoint is saved with one copy after the other, each equal to its predecessor."""
    first = Caller(Learner(CAPACITY))
    first.learner.keep()
    for keys in (SET_UP, training(), training(), training(), [7] * 400):
        first.play(keys)
    assert first.learner.report().period == 1
    second = Caller(Learner(CAPACITY))
    second.learner.recall(first.learner.kept())
    second.play(SET_UP)
    for _ in range(3):
        second.play(training())
        assert second.learner.report().period == len(training())
    assert second.play([7] * 400).right == 1


def test_a_recalled_story_is_in_no_figure_of_this_run() -> None:
    first = Run(range(LAYERS))
    for _ in range(5):
        first.step()
    second = Run(range(LAYERS), first.learner)
    report = second.learner.report()
    figures = report.confirmed, report.deviated, report.trusted, report.misled, report.lost
    assert figures == (0, 0, 0, 0, 0)
    assert second.learner.kept().operations == 0


def test_what_the_first_run_reached_is_where_it_is_today() -> None:
    first = Run(range(LAYERS))
    for _ in range(3):
        first.step()
    second = Run(range(LAYERS), first.learner)
    second.step()
    assert second.unpredicted_accesses() == 0
    assert second.learner.report().accesses_right >= LAYERS - 16


def test_ranges_may_come_in_another_order_than_in_the_first_run() -> None:
    first = Run(range(LAYERS))
    for _ in range(3):
        first.step()
    slots = list(range(LAYERS))
    random.Random(3).shuffle(slots)
    second = Run(slots, first.learner)
    for expected in (LAYERS, 0, 0):
        before = second.unpredicted_accesses()
        assert second.step().misled == 0
        assert second.unpredicted_accesses() - before <= expected


def test_a_range_that_is_not_there_yet_is_missing_until_it_is() -> None:
    first = Run(range(LAYERS))
    for _ in range(3):
        first.step()
    late = LAYERS - 1
    second = Run(range(late), first.learner)
    second.step()
    coming = second.learner.next(0)
    assert coming is not None
    assert coming.signature == 2000 + late
    assert [access.missing for access in coming.accesses] == [True]
    second.learner.alloc(late, 1, LAYERS * BLOCK)
    coming = second.learner.next(0)
    assert coming is not None
    assert coming.accesses == (Access(late, 1, 0, BLOCK),)


def test_what_was_told_before_the_story_is_known_behind_it() -> None:
    first = Caller(Learner(CAPACITY))
    first.learner.keep()
    for keys in (SET_UP, training(), training()):
        first.play(keys)
    before = Caller(Learner(CAPACITY))
    before.learner.keep()
    before.play(SET_UP[:50])
    learner = Learner(CAPACITY)
    learner.recall(first.learner.kept())
    learner.take_over(before.learner)
    second = Caller(learner)
    assert second.play(SET_UP[50:]).right == 1
    assert second.play(training()).right == 1
    assert learner.kept().operations == len(SET_UP) + len(training())
    assert before.learner.kept().operations == 0


@pytest.mark.parametrize("seed", range(3))
def test_another_programs_story_costs_no_predictions(seed: int) -> None:
    dice = random.Random(seed)
    other = Caller(Learner(CAPACITY))
    other.learner.keep()
    other.play(dice.randrange(1, 3000) for _ in range(8000))
    plain, told = Caller(Learner(CAPACITY)), Caller(Learner(CAPACITY))
    told.learner.recall(other.learner.kept())
    for _ in range(2):
        assert told.play(training()).misled <= 2
        plain.play(training())
    assert told.play(training()).right == plain.play(training()).right == 1


def test_a_story_is_bounded_in_steps_operations_and_accesses() -> None:
    learner = Learner(1 << 8)
    learner.keep()
    for number in range(lib.PUMP_LEARNER_LOG_OPERATIONS + 10):
        learner.see(number + 1)
    assert learner.kept().operations == lib.PUMP_LEARNER_LOG_OPERATIONS
    wide = Learner(1 << 8)
    wide.keep()
    accesses = [Access(slot, 1, 0, BLOCK) for slot in range(lib.PUMP_MAX_EXTENTS)]
    for number in range(2000):
        wide.see(number + 1, accesses)
    most = lib.PUMP_LEARNER_LOG_ACCESSES
    assert most - len(accesses) < wide.kept().access_count <= most
    ranges = Learner(1 << 8)
    ranges.keep()
    for number in range(lib.PUMP_LEARNER_STEPS + 10):
        ranges.alloc(number, 1, BLOCK)
    assert ranges.kept().step_count == lib.PUMP_LEARNER_STEPS
