"""The window's chains in C against a naive model in Python, on random histories."""

from __future__ import annotations

import random

import numpy as np
import pytest

from pump.model.blocks import ABSENT, ARRIVING, HOST, LEAVING, NOT_NEEDED, RESIDENT, BlockTable
from pump.wire.abi import ffi, lib
from pump.wire.mapping import Range


def make_range(slot: int, blocks: int, generation: int = 1, device: int = 0) -> Range:
    return Range(slot, generation, 1, 1 << 40, blocks << 21, device, 0)


class Naive:
    """Lists and loops; slow and plainly right."""

    def __init__(self) -> None:
        self.operations: list[tuple[int, int, list[int]]] = []  # seq, stream, blocks

    def next_use(self, block: int) -> int:
        return min((s for s, _, used in self.operations if block in used), default=NOT_NEEDED)

    def retire(self, stream: int, upto: int) -> list[tuple[int, int, list[int]]]:
        gone = [o for o in self.operations if o[1] == stream and o[0] <= upto]
        self.operations = [o for o in self.operations if o not in gone]
        return gone

    def missing(self, state: np.ndarray) -> list[tuple[int, int]]:
        """(block, need) by distance from the heads of the streams, each block once."""
        by_stream: dict[int, list[tuple[int, int, list[int]]]] = {}
        for operation in self.operations:
            by_stream.setdefault(operation[1], []).append(operation)
        found: list[tuple[int, int]] = []
        seen: set[int] = set()
        depth = max((len(v) for v in by_stream.values()), default=0)
        for distance in range(depth):
            level = [v[distance] for v in by_stream.values() if distance < len(v)]
            for seq, _, used in sorted(level):
                for block in used:
                    if state[block] in (ABSENT, HOST) and block not in seen:
                        seen.add(block)
                        found.append((block, seq))
        return found


def append(table: BlockTable, seq: int, stream: int, runs: list[tuple[int, int]]) -> None:
    first = np.array([f for f, _ in runs], np.int64)
    count = np.array([c for _, c in runs], np.int64)
    lost = lib.pump_window_append(
        table.window,
        1,
        ffi.new("uint64_t[]", [seq]),
        ffi.new("uint32_t[]", [stream]),
        ffi.new("uint32_t[]", [0, len(runs)]),
        ffi.from_buffer("int64_t[]", first) if runs else ffi.NULL,
        ffi.from_buffer("int64_t[]", count) if runs else ffi.NULL,
    )
    assert lost == 0


def look(table: BlockTable, device: int = 0, most: int = 4096) -> list[tuple[int, int]]:
    blocks, need, stream = (
        np.zeros(most, np.int64),
        np.zeros(most, np.int64),
        np.zeros(most, np.uint32),
    )
    found = lib.pump_window_missing(
        table.window,
        device,
        most,
        ffi.from_buffer("int64_t[]", blocks),
        ffi.from_buffer("int64_t[]", need),
        ffi.from_buffer("uint32_t[]", stream),
    )
    return list(zip(blocks[:found].tolist(), need[:found].tolist(), strict=True))


@pytest.mark.parametrize("seed", range(20))
def test_the_chains_agree_with_a_naive_window_on_random_histories(seed: int) -> None:
    random_ = random.Random(seed)
    table, naive = BlockTable(256), Naive()
    out = ffi.new("struct pump_retired *")
    seq = 0
    for slot in range(8):
        assert table.add(make_range(slot, 16), random_.choice((ABSENT, HOST, RESIDENT)))
    for _ in range(600):
        action = random_.random()
        if action < 0.45:
            seq += 1
            runs = [
                (random_.randrange(0, 120), random_.randrange(1, 9))
                for _ in range(random_.randrange(0, 4))
            ]
            stream = random_.randrange(3)
            append(table, seq, stream, runs)
            used = [b for f, c in runs for b in range(f, f + c) if table.state[b] != 0]
            naive.operations.append((seq, stream, used))
        elif action < 0.65:
            stream = random_.randrange(3)
            issued = [s for s, t, _ in naive.operations if t == stream]
            upto = random_.choice(issued) if issued else seq
            before = table.state.copy()
            lib.pump_window_retire(table.window, stream, upto, out)
            for _, _, used in naive.retire(stream, upto):
                for block in used:
                    if before[block] in (ABSENT, HOST):
                        before[block] = RESIDENT
            assert (table.state == before).all()
        elif action < 0.9:
            block = random_.randrange(128)
            if table.state[block]:
                state = random_.choice((HOST, ARRIVING, RESIDENT, LEAVING))
                table.set_state(np.array([block]), state)
        else:
            slot = random_.randrange(8)
            tracked = table.ranges[slot]
            gone = range(tracked.first_block, tracked.first_block + tracked.blocks)
            table.remove(slot)
            naive.operations = [
                (s, t, [b for b in used if b not in gone]) for s, t, used in naive.operations
            ]
            assert table.add(make_range(slot, 16, generation=seq + 2), ABSENT)
        expected = [naive.next_use(b) for b in range(128)]
        assert table.next_use[:128].tolist() == expected
        assert look(table) == naive.missing(table.state)
        for state in range(1, 6):
            assert table.counts[0][state] == (table.state == state).sum()


def test_a_full_look_is_cut_at_the_soonest_needed_blocks() -> None:
    table = BlockTable(64)
    table.add(make_range(0, 32), HOST)
    append(table, 1, 0, [(4, 2)])
    append(table, 2, 0, [(0, 8)])
    assert look(table, most=3) == [(4, 1), (5, 1), (0, 2)]


def test_a_window_beyond_its_bound_retires_the_oldest_operations_unseen() -> None:
    table = BlockTable(16)
    table.add(make_range(0, 8), RESIDENT)
    lost = 0
    for seq in range(1, (1 << 14) + 11):
        lost += lib.pump_window_append(
            table.window,
            1,
            ffi.new("uint64_t[]", [seq]),
            ffi.new("uint32_t[]", [0]),
            ffi.new("uint32_t[]", [0, 1]),
            ffi.new("int64_t[]", [0]),
            ffi.new("int64_t[]", [1]),
        )
    assert lost == 10
    assert table.next_use[0] == 11


def test_runs_outside_the_table_are_passed_over() -> None:
    table = BlockTable(16)
    table.add(make_range(0, 8), HOST)
    append(table, 1, 0, [(-5, 3), (10, 100), (2**40, 1), (0, -1), (3, 1)])
    assert look(table) == [(3, 1)]


def test_numbers_of_freed_ranges_are_used_again_when_the_table_is_full() -> None:
    table = BlockTable(32)
    for slot in range(4):
        assert table.add(make_range(slot, 8), ABSENT)
    assert not table.add(make_range(9, 16), ABSENT)
    table.remove(1)
    table.remove(2)
    assert table.add(make_range(9, 16), ABSENT)
    assert table.ranges[9].first_block == 8


@pytest.mark.parametrize("seed", range(10))
def test_those_who_would_leave_come_in_the_order_asked_for(seed: int) -> None:
    random_ = random.Random(seed)
    table = BlockTable(600)
    for slot in range(10):
        table.add(make_range(slot, 50, device=slot % 2), random_.choice((HOST, RESIDENT)))
    for seq in range(1, 100):
        append(table, seq, 0, [(random_.randrange(500), random_.randrange(1, 9))])
    lib.pump_window_retire(table.window, 0, 50, ffi.new("struct pump_retired *"))
    for block in random_.sample(range(500), 200):
        table.set_state(np.array([block]), random_.choice((HOST, ARRIVING, RESIDENT)))
    here = [b for b in range(500) if table.state[b] == RESIDENT and table.device[b] == 1]

    def by_need(block: int) -> tuple[int, int]:
        use = int(table.next_use[block])
        return (-use, int(table.last_use[block]) if use == NOT_NEEDED else 0)

    for most in (1, 2, 7, 64, 256):
        found = table.leavers(1, lib.PUMP_BY_NEED, most).tolist()
        assert len(set(found)) == len(found) == min(most, len(here))
        assert [by_need(b) for b in found] == sorted(map(by_need, here))[:most]
        oldest = table.leavers(1, lib.PUMP_BY_MIGRATION, most).tolist()
        expected = sorted(here, key=lambda b: int(table.migrated[b]))
        assert [table.migrated[b] for b in oldest] == [table.migrated[b] for b in expected[:most]]
