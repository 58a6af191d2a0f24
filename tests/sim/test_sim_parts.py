"""The floor of parts: on programs whose answer can be counted by hand."""

from __future__ import annotations

import pytest

from pump.model.bounds import BLOCK_BYTES
from pump.sim.floor import Rates, Touch
from pump.sim.parts import crossings, least_seconds

RATES = Rates(BLOCK_BYTES / 1e6, BLOCK_BYTES / 2e6, 1, 0, 0, 1)
"""A block comes in one millisecond and leaves in two."""
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


def test_contents_cross_from_one_iteration_into_the_next() -> None:
    sweep = [Touch((i,), (), ()) for i in range(6)]
    come, leave = crossings(sweep, parts=6)
    assert come[0].tolist() == [1, 2, 3, 4, 5, 6]
    assert leave[0].tolist() == [1, 2, 3, 4, 5, 6], "all of it is read again"
    overwritten = [Touch((), (), (i,)) for i in range(6)]
    come, leave = crossings(overwritten, parts=6)
    assert not come.any() and not leave.any(), "nobody reads it"
