"""A model's predictions for a repeating program whose tensors move."""

from __future__ import annotations

import random

import pytest
from model_batch import Script, lib

from pump.model.client import HOST

Run = tuple[int, int, int]
"""Slot, first block, blocks."""

LAYERS = 12


class Program:
    """Runs steps of LAYERS operations; each has its own length, which identifies it."""

    def __init__(self, learns: bool = True) -> None:
        self.script = Script(budget=100)
        self.script.model.learn(learns)
        self.blocks = [self.script.alloc(slot, 100) for slot in range(2)]
        self.raw = self.script.model.raw

    def operation(self, number: int, first: int = 0) -> int:
        return self.script.copy([(0, first, number + 1), (1, 0, 1)])

    def step(self) -> None:
        for number in range(LAYERS):
            self.script.execute(self.operation(number))

    def predict(self) -> int:
        lib.pump_model_predict(self.raw, 1000)
        return int(self.script.model.totals().expected)


def test_an_operation_on_other_blocks_than_predicted_voids_only_itself() -> None:
    program = Program()
    for _ in range(4):
        program.step()
    before = program.predict()
    assert before > LAYERS
    seq = program.operation(0, first=50)
    totals = program.script.model.totals()
    assert (totals.expected, totals.window_depth) == (before - 1, 1)
    model = program.script.model
    assert model.block(program.blocks[0][50]).next_use == seq
    assert model.block(program.blocks[0][0]).next_use == seq + 1, "of the next, as predicted"
    assert model.block(program.blocks[1][0]).next_use == seq
    program.script.execute(seq)
    assert model.block(program.blocks[1][0]).next_use == seq + 1


@pytest.mark.parametrize("apart", [(0, 70, 8), (0, 65, 8)])
def test_operands_that_share_blocks_may_part(apart: Run) -> None:
    """The operation is the predicted one, and reaches as much of the ranges as predicted."""
    program = Program()

    def step() -> None:
        program.script.execute(program.script.copy([(0, 20, 8), (0, 22, 8), (1, 0, 1)]))
        for number in range(1, LAYERS):
            program.script.execute(program.operation(number))

    for _ in range(4):
        step()
    before = program.predict()
    assert before > LAYERS
    program.script.copy([(0, 60, 8), apart, (1, 3, 1)])
    assert program.script.model.totals().expected == before - 1


def test_an_operation_that_needs_more_places_than_predicted_voids_all() -> None:
    program = Program()
    for _ in range(4):
        program.step()
    assert program.predict() > LAYERS
    program.script.copy([(0, 0, 90), (1, 0, 1)])
    assert program.script.model.totals().expected == 0


def test_what_was_predicted_and_what_was_in_vain_is_counted() -> None:
    program = Program()
    program.step()
    totals = program.script.model.totals()
    assert (totals.predicted, totals.predictions_lost, totals.confidence) == (0, 0, 0)
    for _ in range(4):
        program.step()
    assert program.predict() > LAYERS
    assert program.script.model.totals().confidence > 0.2
    program.step()
    assert program.script.model.totals().predicted == LAYERS
    program.operation(0, first=50)
    assert program.script.model.totals().predicted == LAYERS, "it came, but elsewhere"
    program.operation(LAYERS)
    totals = program.script.model.totals()
    assert (totals.predicted, totals.predictions_lost, totals.expected) == (LAYERS, 1, 0)
    program.script.model.learn(False)
    assert program.script.model.totals().confidence == 0


def allocating(script: Script) -> None:
    """Runs a step with a range for each layer, which lives until the backward pass."""
    for layer in range(LAYERS):
        slot = 10 + layer
        script.alloc(slot, 2 + layer)
        script.execute(script.copy([(0, 0, layer + 1), (slot, 0, 2 + layer)]))
    for layer in reversed(range(LAYERS)):
        slot = 10 + layer
        script.execute(script.copy([(0, 20, layer + 1), (slot, 0, 2 + layer)]))
        script.free(slot)


def test_ranges_that_do_not_exist_yet_do_not_hide_what_comes_behind_them() -> None:
    script = Script(budget=400)
    script.model.learn(True)
    persistent = script.alloc(0, 100)
    for _ in range(4):
        allocating(script)
    lib.pump_model_predict(script.model.raw, 1000)
    assert script.model.totals().expected >= 2 * LAYERS
    seq = script.seq
    assert script.model.block(persistent[0]).next_use == seq + 1
    assert script.model.block(persistent[20]).next_use == seq + LAYERS + 1
    script.alloc(10, 2)
    script.copy([(0, 0, 1), (10, 0, 2)])
    expected = script.model.totals().expected
    assert expected >= 2 * LAYERS - 1, "its range was not known, it was"
    assert script.model.block(script.model.blocks_of(10)[0]).next_use == seq + 1


@pytest.mark.parametrize("seed", range(12))
def test_once_nothing_is_expected_a_learner_has_left_no_trace(seed: int) -> None:
    """The reference is a model that learns nothing, whatever was expected, replaced and dropped."""
    dice = random.Random(seed)
    programs = [Program(learns) for learns in (True, False)]
    replaced = 0
    for step in range(60 * LAYERS):
        number = step % LAYERS
        first = dice.randrange(40) if dice.random() < 0.2 else 0
        fresh = dice.random() < 0.2
        ends = dice.random() < 0.5
        host = dice.sample(range(200), 8)
        for program in programs:
            expected = program.predict() if step > 4 * LAYERS else 0
            seq = program.operation(number, first)
            if first and expected and program.script.model.totals().expected == expected - 1:
                replaced += 1
            if fresh:
                uses = [(0, 1, first * 2 << 20, (number + 1) * 2 << 20, 0)]
                program.script.send(lib.PUMP_EVENT_DISCARDED, seq=seq, uses=uses)
            program.script.set_state(host, HOST)
            if ends:
                program.script.execute(seq)
    found = []
    for program in programs:
        lib.pump_model_expect_nothing(program.raw)
        program.script.model.learn(False)
        program.script.copy([(0, 0, 60), (1, 0, 60)])
        view = program.script.view(0)
        found.append([column.tolist() if hasattr(column, "tolist") else column for column in view])
    assert found[0] == found[1]
    assert replaced > 5


@pytest.mark.parametrize(("dropped", "predicts"), [(8, False), (4, True)])
def test_nothing_is_expected_where_much_is_used_that_is_not_told(
    dropped: int, predicts: bool
) -> None:
    """An event that omits 16 of the budget's 100 blocks stops predictions; 8 blocks do not.
    Predictions resume after two iterations without omissions."""
    program = Program()

    def step(dropped: int) -> None:
        for number in range(LAYERS):
            runs, more = [(0, 0, number + 1), (1, 0, 1)], dropped if number == 2 else 0
            program.script.execute(program.script.copy(runs, dropped=more))

    for _ in range(4):
        step(dropped)
    assert (program.predict() > LAYERS) == predicts
    step(0)
    assert (program.predict() > 0) == predicts
    step(0)
    assert program.predict() > LAYERS
