"""The model in C against a naive one in Python, on random histories."""

from __future__ import annotations

import random
from itertools import accumulate

import pytest
from model_batch import BLOCK, Script, lib

from pump.model.client import ABSENT, ARRIVING, HOST, LEAVING, MAYBE_EVICTED, RESIDENT
from pump_lab.sim.deciding import NOT_NEEDED

THERE = (RESIDENT, MAYBE_EVICTED)
TO_GPU = lib.PUMP_TO_GPU


class Naive:
    """A model of lists and loops: slow, and clearly right."""

    def __init__(self) -> None:
        self.operations: list[tuple[int, int, list[int]]] = []  # seq, stream, blocks

    def next_use(self, block: int) -> int:
        return min((s for s, _, used in self.operations if block in used), default=NOT_NEEDED)

    def retire(self, stream: int, upto: int) -> None:
        self.operations = [o for o in self.operations if o[1] != stream or o[0] > upto]

    def forget(self, blocks: range) -> None:
        self.operations = [
            (s, t, [b for b in used if b not in blocks]) for s, t, used in self.operations
        ]

    def missing(self, state: dict[int, int], device: dict[int, int], on: int) -> list:
        """Returns (block, need) by distance from the heads of the streams.

        A block belongs to the first operation, in issue order, that needs it. Blocks of one
        operation are in the order in which it reaches them.
        """
        by_stream: dict[int, list[tuple[int, int, list[int]]]] = {}
        for operation in self.operations:
            by_stream.setdefault(operation[1], []).append(operation)
        ranked = [
            (distance, seq, used)
            for operations in by_stream.values()
            for distance, (seq, _, used) in enumerate(operations)
        ]
        found = []
        for _, seq, used in sorted(ranked, key=lambda r: (r[0], r[1])):
            found += [
                (block, seq)
                for block in dict.fromkeys(used)
                if state[block] in (ABSENT, HOST, MAYBE_EVICTED)
                and device[block] == on
                and self.next_use(block) == seq
            ]
        return found


def interleaved(runs: list[range]) -> list[int]:
    """Interleaves runs: the longest in slices of four blocks."""
    steps = max(-(-len(run) // 4) for run in runs)
    return [
        block
        for step in range(steps)
        for run in runs
        for block in run[len(run) * step // steps : len(run) * (step + 1) // steps]
    ]


class History:
    """Applies random events to a model and to the naive one."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.script = Script(capacity=400, budget=150, devices=2)
        self.naive = Naive()
        self.live: dict[int, range] = {}
        self.device: dict[int, int] = {}
        self.streams = (0, 3, 9)[: self.random.choice((1, 3))]
        self.in_flight: list[tuple[int, int, int]] = []  # ticket, direction, blocks

    def step(self) -> None:
        choices = [self.allocate, self.free, self.issue, self.issue, self.issue, self.execute]
        choices += [self.start, self.start, self.finish, self.finish]
        self.random.choice(choices)()

    def allocate(self) -> None:
        slot = self.random.randrange(12)
        if slot in self.live:
            return
        device = self.random.randrange(2)
        blocks = self.script.alloc(slot, self.random.randrange(1, 30), device=device)
        self.live[slot] = blocks
        self.device.update(dict.fromkeys(blocks, device))

    def free(self) -> None:
        if len(self.live) < 6:
            return
        slot = self.random.choice(sorted(self.live))
        self.naive.forget(self.live.pop(slot))
        self.script.free(slot)

    def issue(self) -> None:
        if not self.live:
            return
        runs = []
        for slot in self.random.choices(sorted(self.live), k=self.random.randrange(1, 4)):
            blocks = self.live[slot]
            first = self.random.randrange(len(blocks))
            count = self.random.randrange(1, len(blocks) - first + 1)
            runs.append((slot, first, count))
        used = interleaved([self.live[s][f : f + n] for s, f, n in runs])
        stream = self.random.choice(self.streams)
        seq = self.script.copy(runs, stream=stream)
        self.naive.operations.append((seq, stream, used))

    def execute(self) -> None:
        if not self.naive.operations:
            return
        stream = self.random.choice(self.streams)
        seqs = [s for s, t, _ in self.naive.operations if t == stream]
        upto = self.random.choice(seqs[: len(seqs) // 2 + 1]) if seqs else 0
        self.script.execute(upto, stream=stream)
        self.naive.retire(stream, upto)

    def start(self) -> None:
        device = self.random.randrange(2)
        view = self.script.view(device)
        direction = self.random.randrange(2)
        chosen = view.missing if direction == TO_GPU else view.eviction_candidates
        count = self.random.randrange(8)
        picked = chosen[:count].tolist()
        before = {block: self.script.model.block(block).state for block in picked}
        commands = self.script.start(direction, picked, device=device)
        moved = sum(c.length_bytes // BLOCK for c in commands)
        assert moved == len(before), "a policy's choice can always be carried out"
        self.in_flight += [(c.ticket, direction, c.length_bytes // BLOCK) for c in commands]

    def finish(self) -> None:
        if not self.in_flight:
            return
        ticket, _, _ = self.in_flight.pop(self.random.randrange(len(self.in_flight)))
        results = (lib.PUMP_RESULT_MOVED,) * 4 + (
            lib.PUMP_RESULT_STALE,
            lib.PUMP_RESULT_LATE,
            lib.PUMP_RESULT_DEAD,
            lib.PUMP_RESULT_FAILED,
        )
        self.script.finish(ticket, self.random.choice(results))

    def check(self) -> None:
        model = self.script.model
        info = {b: model.block(b) for blocks in self.live.values() for b in blocks}
        state = {b: i.state for b, i in info.items()}
        for block, one in info.items():
            assert one.next_use == self.naive.next_use(block), block
        for device in range(2):
            self.check_view(device, state, {b: i.migrated for b, i in info.items()})
        in_flight = sum(blocks for _, _, blocks in self.in_flight)
        assert model.totals().in_flight == len(self.in_flight)
        assert sum(s in (ARRIVING, LEAVING) for s in state.values()) <= in_flight

    def check_view(self, device: int, state: dict[int, int], migrated: dict[int, int]) -> None:
        model = self.script.model
        mine = [b for b in state if self.device[b] == device]
        view = self.script.view(device)
        counts = model.counts(device)
        for value in (ABSENT, HOST, ARRIVING, RESIDENT, LEAVING, MAYBE_EVICTED):
            assert counts[value] == sum(state[b] == value for b in mine)
        expected = self.naive.missing(state, self.device, device)
        got = list(zip(view.missing.tolist(), view.missing_need.tolist(), strict=True))
        if not view.missing_more:
            assert sorted(got) == sorted(expected)
        assert got == expected[: len(got)]
        takes_room = [state[b] != MAYBE_EVICTED for b in view.missing.tolist()]
        assert view.missing_room.tolist() == list(accumulate(takes_room))
        assert view.arrivals_need.tolist() == [
            need for (_, need), takes in zip(got, takes_room, strict=True) if takes
        ]
        assert view.candidates_maybe_evicted == sum(
            state[b] == MAYBE_EVICTED for b in view.eviction_candidates.tolist()
        )
        there = [b for b in mine if state[b] in THERE]
        uses = {b: self.naive.next_use(b) for b in there}
        order = sorted(uses.values(), reverse=True)
        assert view.candidates_next_use.tolist() == order[: len(view.eviction_candidates)]
        assert [
            uses[b] for b in view.eviction_candidates.tolist()
        ] == view.candidates_next_use.tolist()
        assert len(view.eviction_candidates) == min(len(there), 64)
        maybe_evicted = [b for b in view.oldest.tolist() if state[b] == MAYBE_EVICTED]
        sure = [b for b in view.oldest.tolist() if state[b] == RESIDENT]
        assert view.oldest.tolist() == maybe_evicted + sure
        by_age = sorted((b for b in there if state[b] == RESIDENT), key=lambda b: migrated[b])
        assert sure == by_age[: len(sure)]


@pytest.mark.parametrize("seed", range(40))
def test_the_model_agrees_with_a_naive_one_on_random_histories(seed: int) -> None:
    history = History(seed)
    for _ in range(400):
        history.step()
        history.check()
