"""A full host with flash below it: the places of contents, and the cost of moving them."""

from __future__ import annotations

import pytest
from gpu_model import BLOCK, Gpu, gpu_with

READ_GBPS, WRITE_GBPS = 2.0, 1.0
READ_NS, WRITE_NS = round(BLOCK / READ_GBPS), round(BLOCK / WRITE_GBPS)
IN_HOST, ON_FLASH, BOTH = 1, 2, 3


def gpu(host_blocks: int = 2, **facts: float) -> Gpu:
    """Returns a GPU that holds eight blocks, 0 to 7, all of them written."""
    made = gpu_with(8)
    host = {"memory_bytes": host_blocks * BLOCK, "read_gbps": READ_GBPS, "write_gbps": WRITE_GBPS}
    assert (
        made.lib.gpu_host_limit(made.engine, made.ffi.new("struct gpu_host *", host | facts)) == 0
    )
    made.create(0, 64)
    made.run_kernel([(0, 8)])
    return made


def place(made: Gpu, block: int) -> int:
    return int(made.lib.gpu_host_place(made.engine, block))


def flash(made: Gpu, way: str, block: int) -> int:
    """Begins a copy; returns the earliest time for the next copy, or 0 if it was refused."""
    free_ns = made.ffi.new("uint64_t *")
    call = getattr(made.lib, f"gpu_flash_{way}")
    if call(made.engine, made.now, made.hooks, block, free_ns) != 0:
        return 0
    return int(free_ns[0])


def drop(made: Gpu, block: int) -> bool:
    return bool(made.lib.gpu_host_drop(made.engine, made.now, made.hooks, block) == 0)


def left_ns(made: Gpu, block: int) -> int:
    return made.block(block).left_ns


def test_a_copy_on_flash_leaves_the_host_without_being_written_again() -> None:
    made = gpu()
    made.evict(0, 2)
    assert [place(made, 0), place(made, 1), place(made, 2)] == [IN_HOST, IN_HOST, 0]
    assert flash(made, "write", 0) == made.now + WRITE_NS
    assert place(made, 0) == BOTH
    assert not drop(made, 0), "it is not written yet"
    made.advance(left_ns(made, 0))
    assert drop(made, 0) and place(made, 0) == ON_FLASH
    assert flash(made, "read", 0) == made.now + READ_NS
    made.advance(left_ns(made, 0))
    assert drop(made, 0), "the copy is still valid"
    assert made.counters().flash_write_bytes == BLOCK
    assert made.counters().flash_read_bytes == BLOCK
    made.check()


def test_a_copy_on_flash_is_void_once_the_block_is_on_the_gpu() -> None:
    made = gpu()
    made.evict(0, 1)
    made.advance(flash(made, "write", 0))
    made.prefetch(0, 1)
    assert place(made, 0) == 0
    made.evict(0, 1)
    assert place(made, 0) == IN_HOST
    assert made.counters().flash_read_bytes == 0, "the host had it as well"


def test_where_the_host_is_full_the_named_victim_goes_to_flash() -> None:
    made = gpu()
    made.evict(0, 2)
    made.lib.gpu_host_victims(made.engine, [1, 0], 2)
    began = made.now
    made.evict(2, 1)
    assert [place(made, i) for i in range(3)] == [IN_HOST, ON_FLASH, IN_HOST]
    assert left_ns(made, 2) > began + WRITE_NS, "the victim is written before"
    made.evict(3, 2)
    assert [place(made, i) for i in range(5)] == [ON_FLASH, ON_FLASH, IN_HOST, IN_HOST, ON_FLASH]


def test_a_victim_with_a_copy_on_flash_makes_room_at_once() -> None:
    made = gpu()
    made.evict(0, 2)
    made.advance(flash(made, "write", 0))
    made.lib.gpu_host_victims(made.engine, [0], 1)
    began = made.now
    made.evict(2, 1)
    assert place(made, 0) == ON_FLASH
    assert left_ns(made, 2) < began + WRITE_NS
    assert made.counters().flash_write_bytes == BLOCK


def test_what_cannot_go_is_refused() -> None:
    made = gpu(host_blocks=1)
    made.evict(0, 2)
    assert [place(made, 0), place(made, 1)] == [IN_HOST, ON_FLASH]
    assert not flash(made, "read", 1), "the host is full"
    assert (
        not flash(made, "read", 0) and not flash(made, "write", 1) and not flash(made, "write", 2)
    )
    assert not flash(made, "write", 1 << 20) and not drop(made, 0) and not drop(made, 1 << 20)
    assert made.counters().flash_write_bytes == BLOCK


def test_latencies_come_behind_the_last_byte_and_hold_up_nothing() -> None:
    made = gpu(host_blocks=4, write_us=500.0, read_us=300.0)
    made.evict(0, 2)
    began = made.now
    free = flash(made, "write", 0)
    assert free == began + WRITE_NS and left_ns(made, 0) == free + 500_000
    assert flash(made, "write", 1) == free + WRITE_NS
    made.advance(left_ns(made, 1))
    assert drop(made, 1)
    free = flash(made, "read", 1)
    assert left_ns(made, 1) == free + 300_000


def test_a_budget_of_writes_is_kept_in_the_mean_since_the_beginning() -> None:
    made = gpu(host_blocks=8, write_budget_gbps=0.1)
    made.evict(0, 8)
    ends = []
    for block in range(8):
        flash(made, "write", block)
        ends.append(left_ns(made, block))
        assert made.counters().flash_write_bytes <= 0.1 * ends[-1] + 1
    assert ends[-1] - ends[0] == pytest.approx(7 * BLOCK / 0.1, rel=0.01)


@pytest.mark.parametrize(
    "facts",
    [
        {"memory_bytes": BLOCK - 1},
        {"read_gbps": 0.0},
        {"write_gbps": float("nan")},
        {"read_us": -1.0},
        {"write_us": -1.0},
        {"write_budget_gbps": -1.0},
    ],
)
def test_a_host_that_makes_no_sense_is_refused(facts: dict[str, float]) -> None:
    made = Gpu(8)
    host = {"memory_bytes": BLOCK, "read_gbps": 1.0, "write_gbps": 1.0, **facts}
    status = made.lib.gpu_host_limit(made.engine, made.ffi.new("struct gpu_host *", host))
    assert status == made.lib.GPU_INVALID


def test_what_is_to_go_past_the_host_does_so_once() -> None:
    made = gpu()
    made.lib.gpu_leaves_for_flash(made.engine, 0)
    made.evict(0, 2)
    assert [place(made, 0), place(made, 1)] == [ON_FLASH, IN_HOST]
    made.prefetch(0, 1)
    made.evict(0, 1)
    assert place(made, 0) == IN_HOST, "it was for one departure"
    made.lib.gpu_leaves_for_flash(made.engine, 0)
    assert place(made, 0) == IN_HOST, "it is not on the GPU"
    made.check()


def test_what_migrated_longest_ago_is_evicted_first_whenever_it_was_used() -> None:
    made = gpu_with(4)
    made.create(0, 8)
    made.run_kernel([(0, 4)])
    made.run_kernel([(0, 1)])
    made.run_kernel([(4, 1)])
    assert made.resident(0, 5) == [1, 2, 3, 4]
    made.check()
