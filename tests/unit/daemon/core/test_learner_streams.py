"""The iteration learner when several streams take turns, and when memory moves."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from learner_calls import Access, Learner
from learner_programs import BLOCK, Caller

Operation = tuple[int, list[Access], int]


def interleaved(streams: dict[int, list[int]], dice: random.Random | None) -> Iterator[Operation]:
    """Yields the operations of all streams: round robin, or in random order if `dice` are given."""
    left = {stream: list(reversed(keys)) for stream, keys in streams.items()}
    turn = 0
    while any(left.values()):
        ready = [stream for stream, keys in left.items() if keys]
        stream = dice.choice(ready) if dice else ready[turn % len(ready)]
        for _ in range(dice.randrange(1, 32) if dice else 1):
            if left[stream]:
                key = left[stream].pop()
                yield key, [Access(key % 1000, 1, 0, BLOCK)], stream
        turn += 1


def test_streams_that_take_turns_in_another_order_each_time_are_followed():
    dice = random.Random(1)
    streams = {1: list(range(100, 190)), 2: list(range(300, 380)), 7: list(range(500, 560))}
    caller = Caller()
    for _ in range(4):
        caller.see(interleaved(streams, dice))
    for _ in range(6):
        seen = caller.see(interleaved(streams, dice))
        assert seen.confirmed == seen.operations
        assert seen.right > 0.99


def test_what_is_ahead_leaves_out_what_other_streams_have_done_already():
    caller = Caller()
    step = [(1, "a"), (2, "x"), (1, "b"), (2, "y"), (1, "c"), (1, "d")]
    keys = {name: number for number, name in enumerate("abcdxy", 1)}

    def see(order: list[tuple[int, str]]) -> None:
        caller.see((keys[name], [], stream) for stream, name in order)

    for _ in range(30):
        see(step)
    see([(2, "x"), (2, "y"), (1, "a")])
    coming = [caller.learner.next(i) for i in range(6)]
    names = {number: name for name, number in keys.items()}
    assert [(p.stream, names[p.signature]) for p in coming if p is not None] == [
        (1, "b"), (1, "c"), (1, "d"), (2, "x"), (2, "y"), (1, "a"),
    ]  # fmt: skip


def test_a_stream_that_is_another_one_each_iteration_is_recognised():
    """PyTorch hands out the streams of a pool one after the other."""
    caller = Caller()
    main, side = list(range(1, 60)), list(range(100, 120))
    for iteration in range(12):
        stream = 10 + iteration % 5
        seen = caller.see(
            [
                *((key, [], 1) for key in main),
                *((key, [], stream) for key in side),
                *((key, [], 1) for key in main),
            ]
        )
        if iteration >= 4:
            assert seen.confirmed == seen.operations
            assert seen.right > 0.99


def test_the_stream_is_predicted_as_it_is_named_today():
    caller = Caller()
    for iteration in range(6):
        for key in range(1, 60):
            caller.learner.see(key, stream=1)
        for key in range(100, 130):
            caller.learner.see(key, stream=10 + iteration)
            if key == 110 and iteration > 2:
                coming = caller.learner.next(0)
                assert coming is not None
                assert (coming.signature, coming.stream) == (111, 10 + iteration)


# ---- memory that moves ----------------------------------------------------------------


class Allocating(Caller):
    """Models a program whose activations are new ranges in each iteration."""

    def __init__(self, layers: int = 20) -> None:
        super().__init__()
        self.layers = layers
        self.live: dict[int, tuple[int, int]] = {}
        self.generations: dict[int, int] = {}
        self.free = list(range(500, 700))
        self.dice = random.Random(2)
        for slot in range(layers):
            self.learner.alloc(slot, 1, BLOCK)

    def alloc(self, name: int, length: int) -> None:
        slot = self.free.pop(self.dice.randrange(len(self.free)))
        self.generations[slot] = self.generations.get(slot, 0) + 1
        self.live[name] = slot, self.generations[slot]
        self.learner.alloc(slot, self.generations[slot], length)

    def release(self, name: int) -> None:
        slot, generation = self.live.pop(name)
        self.free.append(slot)
        self.learner.free(slot, generation)

    def access(self, name: int) -> Access:
        return Access(*self.live[name], 0, BLOCK + name)

    def iteration(self) -> Iterator[tuple[int, list[Access]]]:
        """Yields each operation before the learner sees it, so that predictions can be checked."""
        for layer in range(self.layers):
            self.alloc(layer, BLOCK + layer)
            before = [self.access(layer - 1)] if layer else []
            yield 100 + layer, [Access(layer, 1, 0, BLOCK), *before, self.access(layer)]
        for layer in reversed(range(self.layers)):
            yield 200 + layer, [Access(layer, 1, 0, BLOCK), self.access(layer)]
            self.release(layer)

    def train(self, iterations: int) -> None:
        for _ in range(iterations):
            for signature, accesses in self.iteration():
                self.learner.see(signature, accesses)


def test_reaches_into_new_ranges_are_predicted_where_the_ranges_are_now():
    program = Allocating()
    program.train(3)
    for signature, accesses in program.iteration():
        coming = program.learner.next(0)
        assert coming is not None
        assert coming.signature == signature
        assert list(coming.accesses) == accesses
        program.learner.see(signature, accesses)


def test_ranges_that_do_not_exist_yet_are_predicted_as_missing():
    program = Allocating(layers=10)
    program.train(3)
    operations = program.iteration()
    for _ in range(5):
        program.learner.see(*next(operations))
    coming = [program.learner.next(i) for i in range(60)]
    for layer, predicted in zip(range(5, 10), coming, strict=False):
        assert predicted is not None
        weight, before, activation = predicted.accesses
        assert weight == Access(layer, 1, 0, BLOCK)
        assert before.missing == (layer > 5)
        assert activation.missing
        assert activation.length_bytes == BLOCK + layer
    for layer, predicted in zip(reversed(range(10)), coming[5:15], strict=True):
        assert predicted is not None
        activation = predicted.accesses[1]
        assert activation.missing == (layer >= 5)
        if layer < 5:
            assert activation == program.access(layer)
    # Later iterations allocate other ranges, so the live ranges are not predicted.
    for predicted in coming[15:]:
        assert predicted is not None
        assert predicted.accesses[-1].missing


class Experts:
    """Generates tokens: in each of twelve layers a router, then one of eight experts. All experts
    have the same kernel. It writes to any of eight places, where the next kernel reads."""

    def __init__(self) -> None:
        self.learner, self.dice = Learner(1 << 14), random.Random(7)

    def token(self, expert: int | None = None) -> None:
        for layer in range(12):
            chosen = self.dice.randrange(8) if expert is None else expert
            result = Access(99, 1, 4 * BLOCK * self.dice.randrange(8), BLOCK)
            self.learner.see(100 + layer, [Access(layer, 1, 0, BLOCK)])
            self.learner.see(200, [Access(20 + 8 * layer + chosen, 1, 0, 6 * BLOCK), result])
            self.learner.see(300, [result])

    def missing(self) -> list[bool]:
        """Returns for each access of the next layer whether it is missing: of the router, of the
        expert, of its result where it is written and where it is read."""
        coming = [self.learner.next(i) for i in range(3)]
        return [access.missing for one in coming if one is not None for access in one.accesses]


def test_weights_chosen_at_random_are_not_predicted():
    program, missing = Experts(), []
    for _ in range(40):
        program.token()
        missing.append(program.missing())
    router, expert, written, read = (sum(each) for each in zip(*missing[4:], strict=True))
    assert router == written == read == 0, "where a tensor was, other tensors are"
    assert expert > 0.8 * len(missing[4:])
    for _ in range(6):
        program.token(expert=3)
    assert program.missing() == [False] * 4


def test_ranges_allocated_once_in_an_iteration_are_persistent():
    """An optimizer allocates its state in the first step."""
    caller = Caller()
    learner = caller.learner
    learner.alloc(1, 1, BLOCK)
    for iteration in range(4):
        for key in range(1, 40):
            learner.see(key, [Access(1, 1, 0, BLOCK)])
        if iteration == 0:
            learner.alloc(2, 1, BLOCK)
        for key in range(40, 60):
            if iteration > 1:
                coming = learner.next(0)
                assert coming is not None
                assert coming.accesses == (Access(2, 1, 0, BLOCK),)
            learner.see(key, [Access(2, 1, 0, BLOCK)])


def test_a_tensor_that_moved_inside_its_range_is_expected_where_it_went():
    """The forward pass shows where an activation is this time; the backward pass uses it."""
    caller = Caller()
    offsets = {layer: layer * 100 * BLOCK for layer in range(10)}
    dice = random.Random(4)
    for iteration in range(6):
        moved = {layer: offset + dice.randrange(50) * BLOCK for layer, offset in offsets.items()}
        for layer in range(10):
            caller.learner.see(100 + layer, [Access(1, 1, moved[layer], BLOCK)])
        for layer in reversed(range(10)):
            if iteration > 2:
                coming = caller.learner.next(0)
                assert coming is not None
                assert coming.accesses == (Access(1, 1, moved[layer], BLOCK),)
            caller.learner.see(200 + layer, [Access(1, 1, moved[layer], BLOCK)])


def test_places_are_not_used_where_they_are_worse_than_addresses():
    """Another tensor takes each place within the iteration."""
    dice = random.Random(7)
    caller = Caller()

    def step() -> list[Operation]:
        result: list[Operation] = []
        for key in range(60):
            moved = key % 3 == 0
            offset = dice.randrange(8) if moved else key % 8
            result.append((1 + key, [Access(1, 1, offset * BLOCK, BLOCK)], 0))
        return result

    for _ in range(10):
        caller.see(step())
    counts = []
    for _ in range(11):
        report = caller.learner.report()
        counts.append((report.accesses_right, report.accesses_missed))
        caller.see(step())
    right, missed = (b - a for a, b in zip(counts[0], counts[-1], strict=True))
    # 40 of 60 accesses never move; one in eight of the others stays by chance.
    assert right / (right + missed) > 0.6


@pytest.mark.parametrize("every", [2, 3, 5])
def test_addresses_that_come_again_each_few_iterations_are_predicted(every):
    """A caching allocator hands out these addresses in turns."""
    dice = random.Random(every)
    turns = [[dice.randrange(50) for _ in range(100)] for _ in range(every)]
    caller = Caller()

    def step(iteration: int) -> list[Operation]:
        offsets = turns[iteration % every]
        return [
            (key + 1, [Access(1, 1, offset * BLOCK, BLOCK)], 0)
            for key, offset in enumerate(offsets)
        ]

    for iteration in range(30):
        caller.see(step(iteration))
    report = caller.learner.report()
    right, missed = report.accesses_right, report.accesses_missed
    for iteration in range(30, 40):
        caller.see(step(iteration))
    report = caller.learner.report()
    assert report.accesses_missed == missed
    assert report.accesses_right == right + 1000
    assert report.period == 100
    coming = [caller.learner.next(i) for i in range(700)]
    expected = [accesses[0] for i in range(40, 47) for _, accesses, _ in step(i)]
    assert [p.accesses[0] for p in coming if p is not None] == expected


@pytest.mark.parametrize("seed", range(4))
def test_whatever_it_is_fed_it_answers(seed):
    """Random operations, streams, allocations, losses and questions cause no crash or nonsense."""
    dice = random.Random(seed)
    caller = Caller()
    learner = caller.learner
    for _ in range(30_000):
        what = dice.randrange(20)
        if what == 0:
            learner.alloc(dice.randrange(8), dice.randrange(1, 4), BLOCK * dice.randrange(1, 3))
        elif what == 1:
            learner.free(dice.randrange(8), dice.randrange(1, 4))
        elif what == 2 and dice.randrange(50) == 0:
            learner.lost()
        elif what == 3:
            assert learner.ahead(dice.randrange(500)) <= 500
        elif what == 4:
            coming = learner.next(dice.randrange(500))
            assert coming is None or 1 <= coming.signature <= 4
        else:
            accesses = [
                Access(dice.randrange(8), dice.randrange(1, 4), dice.randrange(4) * BLOCK, BLOCK)
                for _ in range(dice.randrange(4))
            ]
            learner.see(dice.randrange(1, 5), accesses, stream=dice.choice((0, 1, 1023, 5000)))
    report = learner.report()
    assert report.confirmed + report.deviated <= report.seen
    assert report.trusted <= report.confirmed
    assert report.misled <= report.deviated


def test_the_period_is_reported():
    caller = Caller()
    for _ in range(6):
        caller.play(list(range(1, 31)))
    assert caller.learner.report().period == 30
