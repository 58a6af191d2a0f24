"""A host that does not hold all that leaves the GPU, with flash behind it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sim_programs import MS, cyclic, machine

from pump.model.bounds import BLOCK_BYTES
from pump.policy.window import Window
from pump.sim.program import ProgramError
from pump.sim.simulation import Host, Outcome, run

SWEEP = cyclic(3, 4, 2, MS)  # 12 blocks, 4 at a time


def swept(host: Host | None, *, window: bool = False) -> Outcome:
    gpu = replace(machine(4 if not window else 8), host=host)
    return run(SWEEP, gpu, Window() if window else None)


def test_what_comes_to_a_full_host_pushes_the_oldest_out_and_is_read_again() -> None:
    found = swept(Host(4 * BLOCK_BYTES, (1.0, 2.0))).whole
    # Buffers 0 1 2 0 1 2: the host has 0, then 1 with 0 written; from the fourth on, each
    # reads its own and writes the one before the last.
    assert found.counters["flash_write_bytes"] == 4 * 4 * BLOCK_BYTES
    assert found.counters["flash_read_bytes"] == 3 * 4 * BLOCK_BYTES
    reading_s = 3 * 4 * BLOCK_BYTES / 1e9
    assert found.seconds > reading_s + swept(None).whole.seconds * 0.5


def test_flash_is_left_alone_where_the_host_holds_everything() -> None:
    large = swept(Host(12 * BLOCK_BYTES, (0.01, 0.01))).whole
    assert large.counters["flash_write_bytes"] == large.counters["flash_read_bytes"] == 0
    assert large.seconds == swept(None).whole.seconds


def test_slower_flash_takes_longer_under_pump_too() -> None:
    fast = swept(Host(2 * BLOCK_BYTES, (10.0, 10.0)), window=True).whole
    slow = swept(Host(2 * BLOCK_BYTES, (0.5, 0.5)), window=True).whole
    assert fast.counters["flash_read_bytes"] > 0
    assert slow.seconds > 1.2 * fast.seconds


def test_without_flash_a_host_that_is_too_small_is_an_error_that_names_the_remedy() -> None:
    with pytest.raises(ProgramError, match=r"0\.02 GiB of host memory.*or flash behind it"):
        swept(Host(11 * BLOCK_BYTES))
    assert swept(Host(12 * BLOCK_BYTES)).whole.seconds == swept(None).whole.seconds
    with pytest.raises(ProgramError, match="must be positive"):
        swept(Host(4 * BLOCK_BYTES, (0.0, 1.0)))
