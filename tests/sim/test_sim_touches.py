"""Blocks whose contents an operation needs, and blocks that it only fills."""

from __future__ import annotations

import pytest
from sim_programs import made

from pump.model.bounds import BLOCK_BYTES
from pump_lab.floor import Touch
from pump_lab.sim import program as form
from pump_lab.sim.program import Builder, Use
from pump_lab.sim.touches import touches

HALF = BLOCK_BYTES // 2


def found(uses: list[Use], discarded: tuple[int, int, int] | None = None) -> list[Touch]:
    """Returns the touches of one operation for each use, in a range of three blocks. `discarded` is
    discarded after each operation."""
    builder = Builder()
    for use in uses:
        builder.operation(form.KERNEL, [use])
        if discarded is not None:
            builder.discard([(*discarded, form.OVERWRITE)])
    builder.sync(mark=True)
    return touches(made(builder, [3]))


def test_beside_a_use_a_block_keeps_what_it_holds() -> None:
    use = 0, HALF, BLOCK_BYTES, form.OVERWRITE
    assert found([use]) == [Touch((), (0, 1), ())]
    to_the_end = 0, HALF, 2 * BLOCK_BYTES, form.OVERWRITE
    assert found([to_the_end]) == [Touch((), (0,), (1, 2))], (
        "the last block has only padding after the use"
    )


@pytest.mark.parametrize("access", [form.READ, form.WRITE])
def test_what_is_read_has_to_be_there_even_if_it_was_discarded(access: int) -> None:
    first, second = found([(0, 0, HALF, access)] * 2, (0, 0, BLOCK_BYTES))
    assert first == second
    assert first.overwrites == ()


def test_a_discarded_block_has_nothing_to_keep_until_it_is_used_again() -> None:
    use = 0, HALF, BLOCK_BYTES, form.OVERWRITE
    touched = found([use, use], (0, 0, BLOCK_BYTES))
    assert touched == [Touch((), (0, 1), ()), Touch((), (1,), (0,))]
    again = Builder()
    for discards in (True, False, False):
        again.operation(form.KERNEL, [use])
        if discards:
            again.discard([(0, 0, BLOCK_BYTES, form.OVERWRITE)])
    again.sync(mark=True)
    kept = touches(made(again, [3]))
    assert [t.updates for t in kept] == [(0, 1), (1,), (0, 1)]
