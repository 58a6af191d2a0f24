"""The iteration learner when programs change: other batches, kinds, noise, loss, long runs."""

from __future__ import annotations

import random

import pytest
from learner_calls import Learner
from learner_programs import Caller, Seen, evaluation, training


def joined(parts: list[Seen]) -> Seen:
    """Returns the sums of the counts."""
    return Seen(
        sum(part.operations for part in parts),
        sum(part.confirmed for part in parts),
        sum(part.deviated for part in parts),
        sum(part.offered for part in parts),
        sum(part.misled for part in parts),
    )


def test_a_change_of_batch_size_is_learned_within_three_iterations():
    caller = Caller()
    for _ in range(10):
        caller.play(training(batch=1))
    changed = [caller.play(training(batch=2)) for _ in range(8)]
    assert changed[0].misled <= 4  # a deviation ends the prediction
    assert changed[2].right >= 0.95
    assert joined(changed[3:]).right >= 0.99
    assert joined(changed[2:]).misled == 0


def test_a_batch_size_that_comes_back_is_predicted_to_stay():
    """After a change of batch size and back, the history suggests that the other one comes next."""
    caller = Caller(Learner(1 << 16))
    ahead, wrong = [], []
    for batch in (*[1] * 8, *[2] * 4, *[1] * 6):
        step = [10_000 * batch + key for key in training(batch=batch, layers=120)]
        first = caller.play(step[:20])
        ahead.append(caller.learner.ahead(3 * len(step)) / len(step))
        rest = caller.play(step[20:])
        wrong.append(first.misled + rest.misled)
    assert min(ahead[1:8] + ahead[9:12]) > 0.8, "to the end of the layers where they were new"
    assert min(ahead[2:8] + ahead[10:12]) == 3
    assert min(ahead[12:]) > 1.9, "from the first step that was seen before"
    assert (wrong[1:8], sum(wrong[9:12])) == ([0] * 7, 0)
    assert wrong[12:] == [1, 0, 0, 0, 0, 0], "but for the change itself"


def test_sizes_that_change_each_few_steps_are_counted():
    """Five steps of one size, three of the other: the size changes after as many steps as last
    time."""
    caller = Caller(Learner(1 << 16))
    cycle = [*[1] * 5, *[2] * 3]
    for batch in cycle * 2:
        caller.play(10_000 * batch + key for key in training(batch=batch, layers=40))
    for batch in cycle * 3:
        seen = caller.play(10_000 * batch + key for key in training(batch=batch, layers=40))
        assert seen.misled == 0
        assert seen.right == 1


def test_an_operation_between_each_few_steps_does_not_hide_what_lies_behind_it():
    """An example is the copy of a loss for a log. Until the learner knows when it comes, it
    predicts only the operations around it."""
    caller = Caller(Learner(1 << 16))
    step = training(layers=60)
    forth = len(step) - 121  # before the optimizer
    ahead = []
    for number in range(32):
        caller.play(step[:200])
        ahead.append(caller.learner.ahead(2 * len(step)))
        caller.play([*step[200:forth], *[77] * (number % 8 == 7), *step[forth:]])
    assert ahead[2:] == [2 * len(step)] * 30, "also behind the first time that it came"
    assert caller.learner.report().misled <= 6  # three in the first step


def test_a_short_last_batch_is_expected_from_the_third_epoch_on():
    caller = Caller()
    epoch = [*training(batch=1) * 12, *training(batch=2), *evaluation() * 2]
    for _ in range(2):
        caller.play(epoch)
    seen = caller.play(epoch)
    assert seen.right >= 0.99
    assert seen.misled <= 1


def test_kinds_that_come_at_random_are_told_by_their_first_operations():
    """Dynamic shapes: each step has one of four batch sizes, at random."""
    dice = random.Random(5)
    caller = Caller(Learner(1 << 15))
    for _ in range(40):
        caller.play(training(batch=dice.randrange(4)))
    seen = joined([caller.play(training(batch=dice.randrange(4))) for _ in range(40)])
    assert seen.right >= 0.9
    # The next kind is random, so it is not predicted.
    assert seen.misled <= 8


def test_what_is_ahead_ends_where_it_is_open_what_comes():
    dice = random.Random(6)
    caller = Caller(Learner(1 << 15))
    for _ in range(40):
        caller.play(training(batch=dice.randrange(4)))
    step = training(batch=1)
    caller.play(step[:20])
    left = len(step) - 20
    assert left - 4 <= caller.learner.ahead(10_000) <= left


@pytest.mark.parametrize("seed", range(4))
def test_noise_is_not_predicted_with_confidence(seed):
    dice = random.Random(seed)
    caller = Caller()
    for vocabulary in (3, 8, 100, 10_000):
        seen = caller.play(dice.randrange(1, vocabulary + 1) for _ in range(5000))
        assert seen.misled <= 50
        assert caller.learner.report().confidence < 0.1


@pytest.mark.parametrize("seed", range(4))
def test_a_strange_operation_now_and_then_costs_little(seed):
    """One in three hundred operations is new, or is left out."""
    dice = random.Random(seed)
    caller = Caller(Learner(1 << 15))
    strange = 1_000_000

    def disturbed(step: list[int]) -> list[int]:
        nonlocal strange
        result = []
        for key in step:
            what = dice.randrange(600)
            if what == 0:
                strange += 1
                result.append(strange)
            if what != 1:
                result.append(key)
        return result

    for _ in range(20):
        caller.play(disturbed(training()))
    seen = joined([caller.play(disturbed(training())) for _ in range(100)])
    assert seen.confirmed / seen.operations > 0.98
    assert seen.right > 0.85


def test_what_stops_being_true_is_forgotten():
    caller = Caller(Learner(1 << 10))
    old = list(range(1000, 1080))
    for _ in range(5):
        caller.play(old)
    assert caller.play(old).right == 1
    for _ in range(20):
        caller.play(training(batch=2))
    assert caller.play(old).confirmed == 0


def test_the_history_wraps_around():
    caller = Caller(Learner(1 << 8))
    step = training()
    for _ in range(3):
        caller.play(step)
    seen = joined([caller.play(step) for _ in range(200)])
    assert seen.right == 1
    assert seen.operations > 40 << 8


def test_a_period_longer_than_the_history_is_no_period():
    caller = Caller(Learner(1 << 8))
    seen = joined([caller.play(range(1, 2000)) for _ in range(3)])
    assert seen.confirmed == 0
    assert caller.learner.ahead(1) == 0


def test_after_a_loss_the_place_is_found_again():
    caller = Caller()
    step = training()
    for _ in range(5):
        caller.play(step)
    caller.play(step[:30])
    caller.learner.lost()
    assert caller.learner.ahead(1) == 0
    rest = caller.play(step[50:])  # twenty were lost
    assert rest.misled == 0
    assert rest.confirmed >= len(step) - 50 - 16
    assert caller.play(step).confirmed >= len(step) - 2
    # The match may pass the gap once more, an iteration later.
    assert joined([caller.play(step) for _ in range(4)]).misled == 0
    assert caller.play(step).right == 1
    assert caller.learner.report().lost == 1


def test_predictions_end_where_operations_were_lost():
    caller = Caller()
    for _ in range(3):
        caller.play(range(1, 101))
    caller.play(range(1, 51))
    caller.learner.lost()
    caller.play(range(71, 101))
    caller.play(range(1, 11))
    assert caller.learner.next(39).signature == 50
    assert caller.learner.ahead(1000) == 40
    caller.play(range(11, 51))
    assert caller.learner.ahead(1000) == 0
    assert caller.play([51]).misled == 0


def test_warm_up_that_never_comes_again_does_no_harm():
    dice = random.Random(3)
    caller = Caller()
    caller.play(dice.randrange(1, 50) for _ in range(3000))
    step = training()
    for _ in range(3):
        caller.play(step)
    assert joined([caller.play(step) for _ in range(5)]).right >= 0.99


@pytest.mark.parametrize("seed", range(6))
def test_random_programs_are_predicted_once_they_have_been_seen(seed):
    """The programs are nested loops of random bodies: every exact repetition is predicted in the
    end."""
    dice = random.Random(seed)

    def body(depth: int) -> list[int]:
        if depth == 0:
            return [dice.randrange(1, 40) for _ in range(dice.randrange(3, 12))]
        result: list[int] = []
        for _ in range(dice.randrange(2, 4)):
            result += body(depth - 1) * dice.randrange(1, 5)
        return result

    program = body(3)
    caller = Caller(Learner(1 << 15))
    for _ in range(4):
        caller.play(program)
    seen = joined([caller.play(program) for _ in range(3)])
    assert seen.right >= 0.99
    assert seen.misled <= 2
