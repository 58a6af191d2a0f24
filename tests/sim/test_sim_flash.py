"""A host that does not hold all that leaves the GPU, with flash behind it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sim_programs import MS, cyclic, machine

from pump.model.bounds import BLOCK_BYTES
from pump.policy.scheduled import Window
from pump.sim.program import ProgramError
from pump.sim.simulation import Host, Outcome, run

SWEEP = cyclic(3, 4, 2, MS)  # 12 blocks, 4 at a time


def swept(host: Host | None, *, window: bool = False) -> Outcome:
    gpu = replace(machine(4 if not window else 8), host=host)
    return run(SWEEP, gpu, Window() if window else None)


def test_what_comes_to_a_full_host_goes_on_to_flash_and_is_read_again() -> None:
    found = swept(Host(4 * BLOCK_BYTES, (1.0, 2.0))).whole
    # Buffers 0 1 2 0 1 2: the host has 0 when 1 leaves, which is written. Then the first block
    # of 2, since room is made before 0 returns; the last three of 0; the first two of 1.
    assert found.counters["flash_write_bytes"] == (4 + 1 + 3 + 2) * BLOCK_BYTES
    assert found.counters["flash_read_bytes"] == (4 + 1) * BLOCK_BYTES, "1, and that one of 2"
    reading_s = 5 * BLOCK_BYTES / 1e9
    assert found.seconds > reading_s + swept(None).whole.seconds * 0.5


def test_of_a_loop_over_more_than_the_host_holds_only_the_rest_is_on_flash() -> None:
    sweep = cyclic(8, 4, 6, MS)  # 32 blocks: 4 on the GPU, 24 in the host, 4 on flash
    gpu = replace(machine(4), host=Host(24 * BLOCK_BYTES, (1.0, 2.0)))
    read, written = (
        run(sweep, gpu).whole.counters[f"flash_{way}_bytes"] for way in ("read", "write")
    )
    assert 0 < read <= written <= 6 * 32 * BLOCK_BYTES // 4


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
