"""The floor of parts, for programs whose answer can be counted by hand."""

from __future__ import annotations

import json

import numpy as np
import pytest
from exact import Machine
from sim_programs import machine
from study.studied_policies import by_name

from pump.model.bounds import BLOCK_BYTES
from pump_lab.floor import Rates, Touch, floor_of, least_traffic, lp_floor
from pump_lab.floor.lp_floor import Flash, least_seconds, stays
from pump_lab.sim import report, tensors

pytest.importorskip("scipy")

RATES = Rates(BLOCK_BYTES / 1e6, BLOCK_BYTES / 2e6, 1, 1, 0, 0, 1)
"""A block arrives in one millisecond and leaves in two."""
MS = 1_000_000


def there_and_back(blocks: int) -> list[Touch]:
    """Writes blocks one after the other, then reads them in the opposite order."""
    forward = [Touch((), (), (i,)) for i in range(blocks)]
    return forward + [Touch((i,), (), ()) for i in reversed(range(blocks))]


def test_what_a_pass_writes_and_memory_cannot_hold_leaves_within_it() -> None:
    operations = there_and_back(12)
    found = least_seconds(operations, [0] * 24, 4 * BLOCK_BYTES, RATES)
    assert found == pytest.approx(8 * 0.002 + 8 * 0.001), "eight leave, then eight come"


def test_compute_hides_what_it_is_longer_than() -> None:
    operations = there_and_back(12)
    compute = [2 * MS] * 12 + [0] * 12
    found = least_seconds(operations, compute, 4 * BLOCK_BYTES, RATES)
    assert found == pytest.approx(12 * 0.002 + 8 * 0.001)


def test_with_room_for_all_only_compute_counts() -> None:
    found = least_seconds(there_and_back(12), [MS] * 24, 12 * BLOCK_BYTES, RATES)
    assert found == pytest.approx(0.024)


def test_what_waits_for_its_next_iteration_makes_way_in_between() -> None:
    """Weights fill the memory, then a pass fills it too. Some weights leave while others arrive,
    and departures take longest."""
    weights = [Touch((i,), (), ()) for i in range(4)]
    others = [Touch((), (), (i,)) for i in range(4, 8)]
    others += [Touch((i,), (), ()) for i in range(4, 8)]
    found = least_seconds(weights + others, [MS] * 4 + [0] * 8, 4 * BLOCK_BYTES, RATES)
    assert found == pytest.approx(4 * 0.002)


def test_both_ways_together_carry_as_much_as_the_link_is_booked_for() -> None:
    """One of three blocks may stay; the other two arrive and leave."""
    sweep = [Touch((), (i,), ()) for i in range(3)]
    # At duplex shares of 0.5 and 0.8 two departures take 2.5 ms, in which 1.25 blocks arrive. The
    # other 0.75 take 0.75 ms at full rate.
    for (come, leave), both_ms in (
        ((1, 1), 1.0),
        ((0.5, 0.5), 2.0),
        ((0.8, 0.8), 1.25),
        ((0.5, 0.8), 1.625),
    ):
        rates = Rates(BLOCK_BYTES / 1e6, BLOCK_BYTES / 1e6, come, leave, 0, 0, 1)
        found = least_seconds(sweep, [0] * 3, BLOCK_BYTES, rates)
        assert found == pytest.approx(2 * both_ms / 1000)


def test_contents_cross_from_one_iteration_into_the_next() -> None:
    sweep = [Touch((i,), (), ()) for i in range(6)]
    assert dict(stays(sweep)) == {(i, 6): 1 for i in range(6)}, "all of it is read again"
    overwritten = [Touch((), (), (i,)) for i in range(6)]
    assert not stays(overwritten), "it is not read again"
    updated = [Touch((), (), (0,)), Touch((), (0,), ()), Touch((0,), (), ())]
    assert dict(stays(updated)) == {(0, 1): 1, (1, 1): 1}


def test_what_is_only_read_leaves_for_free_where_blocks_are_duplicated() -> None:
    """One of three blocks may stay, two arrive; their departure would take twice as long."""
    read = [Touch((i,), (), ()) for i in range(3)]
    updated = [Touch((), (i,), ()) for i in range(3)]
    mixed = [*read[:2], updated[2]]
    assert dict(stays(mixed, written=True)) == {(2, 3): 1}
    assert dict(stays(mixed, written=False)) == {(0, 3): 1, (1, 3): 1}
    for operations, seconds in ((read, 0.002), (updated, 0.004)):
        least = least_seconds(operations, [0] * 3, BLOCK_BYTES, RATES, duplicates=True)
        assert least == pytest.approx(seconds)
    without = least_seconds(mixed, [0] * 3, BLOCK_BYTES, RATES)
    assert least_seconds(mixed, [0] * 3, BLOCK_BYTES, RATES, duplicates=True) < without


# ---- with flash ----------------------------------------------------------------------------

WRITE_MS, READ_MS = 5, 3


def flash(host_blocks: int, written: float = np.inf) -> Flash:
    """Returns a flash tier whose budget allows the write of a block each `written` ms (mean)."""
    return Flash(
        host_blocks * BLOCK_BYTES,
        BLOCK_BYTES / (READ_MS * MS),
        BLOCK_BYTES / (WRITE_MS * MS),
        BLOCK_BYTES / (written * MS) if written < np.inf else np.inf,
    )


def test_what_neither_memory_nor_the_host_holds_is_written_and_read() -> None:
    """Four of the twelve blocks stay on the GPU, four are in the host, and four on flash."""
    operations = there_and_back(12)
    found = [
        least_seconds(operations, [0] * 24, 4 * BLOCK_BYTES, RATES, flash=flash(host))
        for host in (8, 4, 0)
    ]
    assert found[0] == pytest.approx(8 * 0.002 + 8 * 0.001), "nothing is on flash"
    assert found[1] == pytest.approx(4 * (WRITE_MS + READ_MS) / 1000)
    assert found[2] == pytest.approx(8 * (WRITE_MS + READ_MS) / 1000)


def test_a_budget_of_writes_bounds_the_iteration() -> None:
    operations = there_and_back(12)
    rates = {"memory_bytes": 4 * BLOCK_BYTES, "rates": RATES}
    for each_ms, seconds in ((7, 0.032), (12, 0.048)):
        budget = flash(4, each_ms)
        found = least_seconds(operations, [0] * 24, **rates, flash=budget)  # type: ignore[arg-type]
        assert found == pytest.approx(seconds), "four blocks are written"


def test_what_stays_on_flash_is_written_once_and_may_be_read_twice() -> None:
    """Weights larger than memory and host together are only read. The set of blocks in the host
    changes. A block that leaves the host for flash need not be written again."""
    sweep = [Touch((i,), (), ()) for i in range(4)]
    found = least_seconds(sweep, [0] * 4, BLOCK_BYTES, RATES, flash=flash(1))
    assert found == pytest.approx(2 * WRITE_MS / 1000), "a block that was on the GPU is void"
    free = least_seconds(sweep, [0] * 4, BLOCK_BYTES, RATES, duplicates=True, flash=flash(1))
    assert free == pytest.approx(2 * READ_MS / 1000), "duplicates are not"


def any_program(random: np.random.Generator) -> tuple[list[Touch], list[int]]:
    """Returns a few operations on a few blocks, and each operation's duration in steps."""
    blocks, operations = int(random.integers(4, 7)), []
    for _ in range(random.integers(6, 11)):
        used = random.permutation(blocks)[: random.integers(1, 3)].tolist()
        kinds: tuple[list[int], ...] = ([], [], [])
        for block in used:
            kinds[random.integers(0, 3)].append(block)
        operations.append(Touch(*map(tuple, kinds)))
    return operations, random.integers(0, 3, len(operations)).tolist()


@pytest.mark.parametrize("both", [True, False])
def test_no_schedule_is_faster_than_the_floors(both: bool) -> None:
    random = np.random.default_rng(11)
    rates = Rates(BLOCK_BYTES / 1e6, BLOCK_BYTES / 1e6, *(2 * [1 if both else 0.5]), 0, 0, 1)
    for _ in range(150):
        operations, steps = any_program(random)
        blocks = int(random.integers(2, 4))
        exact = Machine(operations, steps, blocks, both=both).least_round()
        compute = [step * MS for step in steps]
        found = least_seconds(operations, compute, blocks * BLOCK_BYTES, rates) * 1000
        assert found <= exact + 1e-6, (operations, steps, blocks)
        twice = Machine(operations * 2, steps * 2, blocks, both=both).least_steps()
        traffic = least_traffic(operations, 2, blocks * BLOCK_BYTES)
        assert floor_of(2 * sum(steps) / 1000, traffic, rates).seconds * 1000 <= twice + 1e-9


def test_of_a_pass_forth_and_back_it_is_close_to_the_best_schedule() -> None:
    random = np.random.default_rng(12)
    rates = Rates(BLOCK_BYTES / 1e6, BLOCK_BYTES / 1e6, 1, 1, 0, 0, 1)
    shares = []
    for blocks in (3, 4, 5):
        for _ in range(8):
            steps = random.integers(0, 3, 16).tolist()
            exact = Machine(there_and_back(8), steps, blocks, both=True).least_round()
            compute = [step * MS for step in steps]
            found = least_seconds(there_and_back(8), compute, blocks * BLOCK_BYTES, rates)
            shares.append(found * 1000 / exact)
    assert max(shares) <= 1 + 1e-6
    assert sum(shares) / len(shares) > 0.85, shares


def test_without_a_solver_the_report_says_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = {
        "model": "small",
        "batch": 1,
        "tensors": [{"id": 0, "bytes": 8 << 20, "persistent": True}],
        "kernels": [{"name": "k", "duration_us": 10, "reads": [0], "writes": [0]}],
    }
    plain = tensors.program(tensors.parse(json.dumps(raw).encode(), "small"))
    case = report.Case(plain, machine(16))
    known = report.compared(case, [by_name("naive")])
    assert known["floor_of_parts_seconds"] == pytest.approx(10e-6)
    assert "scipy" not in report.as_text(known)
    monkeypatch.setattr(lp_floor, "available", lambda: False)
    found = report.compared(case, [by_name("naive")])
    assert found["floor_of_parts_seconds"] is None
    assert found["policies"][0]["of_parts"] is None
    assert "pump-cuda[simulate]" in report.as_text(found)
