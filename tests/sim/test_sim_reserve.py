"""The reserve that pump leaves free on a simulated GPU, and programs that take more than that."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sim_programs import MS, cyclic, machine

from pump.model.bounds import BLOCK_BYTES
from pump.policy import by_name
from pump_lab.sim.program import ProgramError
from pump_lab.sim.simulation import run

BLOCKS = 400


def evicted_blocks(reserve_percent: float, taken_blocks: int) -> int:
    """Counts the driver's own evictions in a sweep over one and a half times the memory."""
    gpu = replace(
        machine(BLOCKS),
        reserve_percent=reserve_percent,
        taken_bytes=taken_blocks * BLOCK_BYTES,
    )
    found = run(cyclic(30, 20, 8, 10 * MS), gpu, by_name("window"))
    return found.whole.counters["d2h_evict_bytes"] // BLOCK_BYTES


def test_others_may_take_what_is_left_to_them_and_no_more() -> None:
    assert evicted_blocks(3, 0) == evicted_blocks(3, BLOCKS * 3 // 100) == 0
    assert evicted_blocks(3, BLOCKS * 8 // 100) > 100
    assert evicted_blocks(1, BLOCKS * 8 // 100) >= evicted_blocks(3, BLOCKS * 8 // 100)


def test_others_cannot_have_all_of_it() -> None:
    gpu = replace(machine(BLOCKS), taken_bytes=BLOCKS * BLOCK_BYTES)
    with pytest.raises(ProgramError, match="less than one block"):
        run(cyclic(2, 2, 2, MS), gpu)
