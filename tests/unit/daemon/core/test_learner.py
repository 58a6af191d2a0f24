"""The iteration learner on repeating programs (`daemon/core/predict/learner.h`)."""

import random
from collections.abc import Iterator

import pytest
from learner_calls import CONFIRMED, DEVIATED, UNKNOWN, Access, Learner
from learner_programs import BLOCK, Caller, evaluation, training


def test_a_repeated_step_is_predicted_from_its_second_time_on():
    caller = Caller()
    step = training()
    caller.play([*range(900, 950), *step])  # the set-up, and one step
    seen = caller.play(step)
    assert seen.confirmed >= len(step) - 1
    assert seen.right > 0.75  # a new match is trusted after 16 operations
    for _ in range(3):
        assert caller.play(step).confirmed == len(step)
    assert caller.learner.report().period == len(step)


def test_what_is_ahead_is_what_comes():
    caller = Caller()
    step = training()
    for _ in range(4):
        caller.play(step)
    assert caller.learner.ahead(3 * len(step)) == 3 * len(step)
    coming = [caller.learner.next(i) for i in range(3 * len(step))]
    assert [p.signature for p in coming if p is not None] == step * 3
    caller.play(step[:10])
    following = caller.learner.next(0)
    assert following is not None
    assert following.signature == step[10]
    assert following.accesses == (Access(step[10] % 1000, 1, 0, BLOCK),)


def test_a_prediction_names_the_earlier_operation():
    learner = Learner(1 << 8)
    for number in range(40):
        learner.see(number % 10 + 1, stream=3)
    predicted = learner.next(0)
    assert predicted is not None
    assert predicted.number == 30
    assert (predicted.signature, predicted.stream) == (1, 3)


def test_a_deviation_ends_the_prediction_at_once():
    caller = Caller()
    for _ in range(4):
        caller.play(training())
    epoch = caller.learner.report().epoch
    assert caller.learner.see(77777) == DEVIATED
    assert caller.learner.ahead(1) == 0
    assert caller.learner.next(0) is None
    assert caller.learner.report().epoch > epoch


def test_it_says_which_operations_were_predicted():
    learner = Learner(1 << 8)
    assert [learner.see(1), learner.see(2)] == [UNKNOWN, UNKNOWN]
    assert [learner.see(1), learner.see(2), learner.see(1)] == [UNKNOWN, CONFIRMED, CONFIRMED]
    assert [learner.see(9), learner.see(8)] == [DEVIATED, UNKNOWN]


def test_accumulation_is_predicted_with_the_optimizer_in_its_place():
    caller = Caller()
    step = training(steps=4)
    for _ in range(3):
        caller.play(step)
    for _ in range(3):
        seen = caller.play(step)
        assert seen.confirmed == len(step)
        assert seen.right > 0.99


def test_an_evaluation_every_ten_steps_is_predicted_after_two_cycles():
    caller = Caller()
    cycle = [*training() * 10, *evaluation() * 3]
    for _ in range(3):
        caller.play(cycle)
    seen = caller.play(cycle)
    assert seen.misled == 0
    assert seen.right > 0.99


def test_a_learner_of_nonsense_is_refused():
    for capacity in (0, 100, 1 << 7, 1 << 21, 3 << 10):
        with pytest.raises(ValueError, match="power of two"):
            Learner(capacity)


def sweep(buffers: int, rounds: int) -> Iterator[tuple[int, list[Access], int]]:
    """Yields a kernel that is launched over one buffer after the other, in each round."""
    for number in range(buffers * rounds):
        yield 7, [Access(number % buffers, 1, 0, BLOCK), Access(500, 1, 0, BLOCK)], 0


@pytest.mark.parametrize("buffers", [3, 10, 16, 40, 300])
def test_one_kernel_that_sweeps_over_many_buffers_is_predicted_with_the_right_one(
    buffers: int,
) -> None:
    caller = Caller()
    caller.see(sweep(buffers, 3))
    caller.see(sweep(buffers, 1 + 128 // buffers))
    first = caller.learner.report()
    before = first.accesses_right, first.accesses_missed
    assert caller.see(sweep(buffers, 4)).right == 1
    report = caller.learner.report()
    assert report.accesses_right - before[0] == 2 * 4 * buffers
    assert report.accesses_missed == before[1]
    assert report.period % buffers == 0
    coming = [caller.learner.next(i).accesses[0].slot for i in range(2 * buffers)]
    assert coming == [i % buffers for i in range(2 * buffers)]


def test_one_kernel_over_buffers_at_random_is_looked_for_less_and_less_often() -> None:
    source, caller = random.Random(1), Caller()
    noise = [(7, [Access(source.randrange(64), 1, 0, BLOCK)], 0) for _ in range(8000)]
    seen = caller.see(noise)
    assert seen.deviated < 10, "nothing better is found, so nothing is replaced"
