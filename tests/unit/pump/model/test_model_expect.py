"""Operations expected after the window: against a naive model, and rule by rule."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from model_batch import BLOCK, Script, ffi, lib
from test_model_random import interleaved

from pump.model.client import ABSENT, DISCARDING, HOST, MAYBE_EVICTED, RESIDENT
from pump_lab.sim.deciding import NOT_NEEDED

Run = tuple[int, int, int]
"""Slot, first block, blocks."""


def add_expected(script: Script, runs: Sequence[Run], fresh: int = 0, stream: int = 0) -> None:
    extents = ffi.new("struct pump_access[]", max(1, len(runs)))
    for extent, (slot, first, count) in zip(extents, runs, strict=False):
        extent.slot, extent.generation = slot, script.generation[slot]
        extent.offset_bytes, extent.length_bytes = first * BLOCK, count * BLOCK
        extent.access = fresh
    assert lib.pump_model_expect(script.model.raw, stream, extents, len(runs)) == 0


def discard(script: Script, run: Run, behind: int, *, ended: bool = False) -> None:
    """Reports that a discard will follow that operation, or that the discard has ended."""
    slot, first, count = run
    uses = [(slot, script.generation[slot], first * BLOCK, count * BLOCK, 0)]
    kind = lib.PUMP_EVENT_DISCARDED if ended else lib.PUMP_EVENT_FREED
    script.send(kind, seq=behind, uses=uses)


ALL_FRESH = lib.PUMP_FRESH_FIRST | lib.PUMP_FRESH | lib.PUMP_FRESH_LAST


class Repeating:
    """A program that mostly repeats, with one stream, and a naive model of lists next to it."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.script = Script(capacity=300, budget=60)
        self.live = {slot: self.script.alloc(slot, 40) for slot in range(3)}
        self.iteration: list[list[Run]] = [self.some_runs() for _ in range(12)]
        self.issued: list[tuple[int, list[int]]] = []
        self.expected: list[tuple[int, list[int]]] = []
        self.position = self.seen = 0

    def some_runs(self) -> list[Run]:
        runs = []
        for slot in self.random.choices(range(3), k=self.random.randrange(1, 3)):
            first = self.random.randrange(40)
            runs.append((slot, first, self.random.randrange(1, 41 - first)))
        return runs

    def blocks(self, runs: list[Run]) -> list[int]:
        used = interleaved([self.live[s][f : f + n] for s, f, n in runs])
        return list(dict.fromkeys(used))

    def step(self) -> None:
        choice = self.random.randrange(10)
        if choice < 4:
            runs = self.iteration[(self.position + len(self.expected)) % 12]
            add_expected(self.script, runs)
            newest = self.seen + len(self.expected) + 1
            self.expected.append((newest, self.blocks(runs)))
        elif choice < 7:
            self.issue(self.iteration[self.position % 12])
            self.position += 1
        elif choice == 7 and self.random.random() < 0.2:
            self.issue(self.some_runs())
        elif self.issued:
            upto = self.random.choice(self.issued)[0]
            self.script.execute(upto)
            self.issued = [one for one in self.issued if one[0] > upto]
        if self.random.random() < 0.2:
            blocks = self.random.sample(range(120), 10)
            self.script.set_state(blocks, self.random.choice((HOST, RESIDENT)))

    def issue(self, runs: list[Run]) -> None:
        self.seen = self.script.copy(runs)
        used = self.blocks(runs)
        if self.expected and self.expected[0][1] == used:
            self.expected.pop(0)
        else:
            self.expected.clear()
        self.issued.append((self.seen, used))

    def check(self) -> None:
        known = self.issued + self.expected
        model = self.script.model
        assert model.totals().expected == len(self.expected)
        assert model.totals().window_depth == len(self.issued)
        uses = {}
        for block in range(120):
            uses[block] = next((s for s, used in known if block in used), NOT_NEEDED)
            assert model.block(block).next_use == uses[block]
        state = {block: model.block(block).state for block in range(120)}
        view = self.script.view()
        missing = [
            (block, seq)
            for seq, used in known
            for block in used
            if uses[block] == seq and state[block] in (HOST, ABSENT, MAYBE_EVICTED)
        ]
        found = list(zip(view.missing.tolist(), view.missing_need.tolist(), strict=True))
        larger = any(len(used) > 60 * 9 // 10 for _, used in known)
        if not larger:
            assert found == missing[:128]
        there = sorted(
            (uses[b] for b in state if state[b] in (RESIDENT, MAYBE_EVICTED)), reverse=True
        )
        assert view.candidates_next_use.tolist() == there[:64]


@pytest.mark.parametrize("seed", range(30))
def test_the_model_agrees_with_a_naive_one_on_what_is_expected(seed: int) -> None:
    program = Repeating(seed)
    for _ in range(300):
        program.step()
        program.check()


def test_an_operation_that_was_expected_takes_its_place_and_executes() -> None:
    script = Script()
    blocks = script.alloc(0, 4)
    add_expected(script, [(0, 0, 2)])
    add_expected(script, [(0, 2, 2)])
    assert [script.model.block(b).next_use for b in blocks] == [1, 1, 2, 2]
    assert script.copy([(0, 0, 2)]) == 1
    totals = script.model.totals()
    assert (totals.window_depth, totals.expected) == (1, 1)
    script.execute(1)
    assert [script.model.block(b).next_use for b in blocks] == [NOT_NEEDED, NOT_NEEDED, 2, 2]
    script.execute(script.copy([(0, 0, 4)]))
    assert script.model.tally(0).hit == 2, "of the other two it is the first use"


@pytest.mark.parametrize("deviation", ["other blocks", "other stream"])
def test_a_deviation_leaves_nothing_but_the_window_within_one_operation(deviation: str) -> None:
    script = Script()
    blocks = script.alloc(0, 8)
    script.copy([(0, 0, 4)])
    for _ in range(50):
        add_expected(script, [(0, 2, 4)])
    if deviation == "other stream":
        script.copy([(0, 2, 4)], stream=3)
    else:
        script.copy([(0, 2, 5)])
    assert script.model.totals().expected == 0
    assert [script.model.block(b).next_use for b in blocks][:4] == [1, 1, 1, 1]
    assert script.view(0).candidates_next_use.max() == NOT_NEEDED, "one or two are idle"


def test_what_executes_never_retires_what_is_only_expected() -> None:
    script = Script()
    script.alloc(0, 4)
    add_expected(script, [(0, 0, 4)])
    script.execute(99)
    assert script.model.totals().expected == 1
    assert script.model.totals().operations == 0


def test_a_range_that_dies_takes_its_expected_uses_with_it() -> None:
    script = Script()
    script.alloc(0, 4)
    kept = script.alloc(1, 4)
    add_expected(script, [(0, 0, 4), (1, 0, 4)])
    script.free(0)
    new = script.alloc(2, 4)
    assert [script.model.block(b).next_use for b in new] == [NOT_NEEDED] * 4
    assert [script.model.block(b).next_use for b in kept] == [1] * 4
    script.copy([(1, 0, 4)])
    assert script.model.totals().expected == 0, "it was not what had been expected"


def test_losing_events_forgets_what_was_expected() -> None:
    script = Script()
    script.alloc(0, 4)
    add_expected(script, [(0, 0, 4)])
    script.resync({0: (1, 4)}, newest_seq=5)
    assert script.model.totals().expected == 0
    add_expected(script, [(0, 0, 4)])
    script.model.forget_window()
    assert script.model.totals().expected == 0


def test_a_block_is_closed_from_its_last_use_to_the_end_of_its_discard() -> None:
    script = Script(budget=10)
    blocks = script.alloc(0, 4)
    seq = script.copy([(0, 0, 4)])
    discard(script, (0, 0, 3), seq)
    assert script.state(blocks) == [RESIDENT] * 4
    again = script.copy([(0, 0, 2)])
    script.execute(seq)
    assert script.state(blocks) == [DISCARDING] * 3 + [RESIDENT]
    view = script.view(0)
    assert view.missing.tolist() == [], "a fetch now would lose it to the discard"
    assert view.eviction_candidates.tolist() == [blocks[3]]
    assert (view.free, view.leaving) == (6, 3), "it has its room until then"
    for way in (lib.PUMP_TO_GPU, lib.PUMP_TO_HOST):
        assert script.start(way, list(blocks[:3])) == []
    discard(script, (0, 0, 3), seq, ended=True)
    assert script.state(blocks) == [ABSENT] * 3 + [RESIDENT]
    view = script.view(0)
    assert view.missing.tolist() == list(blocks[:2])
    assert (view.free, view.leaving) == (9, 0)
    script.execute(again)
    assert ABSENT not in script.state(blocks[:2]), "faults brought them"


def test_a_discard_behind_what_has_executed_closes_the_block_at_once() -> None:
    script = Script()
    blocks = script.alloc(0, 4)
    seq = script.copy([(0, 0, 4)])
    script.execute(seq)
    discard(script, (0, 1, 2), seq)
    assert script.state(blocks) == [RESIDENT, DISCARDING, DISCARDING, RESIDENT]
    discard(script, (0, 1, 2), seq, ended=True)
    assert script.state(blocks) == [RESIDENT, ABSENT, ABSENT, RESIDENT]


def test_what_a_discard_behind_it_has_ended_of_has_executed() -> None:
    """The operation's own marker may come later."""
    script = Script()
    blocks = script.alloc(0, 4)
    seq = script.copy([(0, 0, 4)])
    discard(script, (0, 0, 2), seq)
    again = script.copy([(0, 0, 1)])
    discard(script, (0, 0, 2), seq, ended=True)
    assert script.state(blocks) == [ABSENT, ABSENT, RESIDENT, RESIDENT]
    assert script.view(0).missing.tolist() == [blocks[0]]
    script.execute(seq)
    assert script.state(blocks) == [ABSENT, ABSENT, RESIDENT, RESIDENT]
    script.execute(again)
    assert script.state(blocks)[0] == RESIDENT


def test_the_end_of_a_discard_that_is_told_behind_the_next_use_changes_nothing() -> None:
    script = Script()
    blocks = script.alloc(0, 2)
    seq = script.copy([(0, 0, 2)])
    discard(script, (0, 0, 2), seq)
    script.execute(script.copy([(0, 0, 1)]))
    assert script.state(blocks) == [MAYBE_EVICTED, DISCARDING], (
        "faults brought it, behind the discard"
    )
    discard(script, (0, 0, 2), seq, ended=True)
    assert script.state(blocks) == [MAYBE_EVICTED, ABSENT]


def test_a_discard_is_not_that_of_an_expected_use() -> None:
    script = Script()
    blocks = script.alloc(0, 4)
    add_expected(script, [(0, 0, 4)])
    add_expected(script, [(0, 0, 4)], ALL_FRESH)
    seq = script.copy([(0, 0, 4)])
    discard(script, (0, 0, 4), seq)
    script.execute(seq)
    assert script.model.totals().expected == 1
    assert script.view(0).missing.tolist() == []
    discard(script, (0, 0, 4), seq, ended=True)
    assert script.state(blocks) == [ABSENT] * 4
    assert script.view(0).missing.tolist() == list(blocks)


def test_an_operation_on_a_range_that_came_in_a_dead_ones_place_is_seen() -> None:
    """The new range has the numbers of the old one, so it looks like the expected one."""
    script = Script()
    old = script.alloc(0, 4)
    for _ in range(3):
        add_expected(script, [(0, 0, 4)])
    script.free(0)
    new = script.alloc(0, 4)
    assert new == old
    seq = script.copy([(0, 0, 4)])
    assert [script.model.block(b).next_use for b in new] == [seq] * 4
    assert script.model.totals().expected == 0, "it was not what had been expected"
    script.execute(seq)
    script.execute(script.copy([(0, 0, 4)]))
    assert script.model.tally(0).hit == 4, "the first one used them"


def test_late_for_an_operation_that_never_came_is_not_believed() -> None:
    """The expected number has passed, but another operation had it."""
    script = Script()
    blocks = script.alloc(0, 4)
    script.alloc(1, 4)
    script.set_state(blocks, HOST)
    add_expected(script, [(0, 0, 4)])
    command = script.start(lib.PUMP_TO_GPU, list(blocks))[0]
    script.execute(script.copy([(1, 0, 4)]))
    script.finish(command.ticket, lib.PUMP_RESULT_LATE)
    assert script.state(blocks) == [MAYBE_EVICTED] * 4


def test_late_for_an_operation_that_was_issued_tells_that_it_is_there() -> None:
    script = Script()
    blocks = script.alloc(0, 4)
    script.set_state(blocks, HOST)
    script.copy([(0, 0, 4)])
    command = script.start(lib.PUMP_TO_GPU, list(blocks))[0]
    script.finish(command.ticket, lib.PUMP_RESULT_LATE)
    assert script.state(blocks) == [RESIDENT] * 4
