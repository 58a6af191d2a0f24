"""Facts about unified memory that the model has to show, the bad ones included.

The facts and their sources: docs/uvm.md. Expected times are computed here from the constants of the
profile.
"""

from __future__ import annotations

import pytest
from gpu_model import BLOCK, EVERYTHING, Gpu, gpu_with

MS = 1_000_000


def wide(gpu: Gpu) -> int:
    """Returns the access of a kernel that reads many blocks at once."""
    return int(gpu.lib.GPU_READ | gpu.lib.GPU_WIDE)


# ---- demand faults


def test_a_batch_of_faults_costs_what_the_table_says() -> None:
    gpu = gpu_with(100)
    gpu.on_host(0, 4)
    p = gpu.profile
    taken = gpu.run_kernel([(0, 4)], us=100)
    # There are four steps of one block each; each part of a block is unmapped when it arrives.
    batch_us = p.fault_base_us + p.fault_block_us + p.cpu_unmap_us + p.fault_replay_us
    copy_us = BLOCK / p.prefetch_h2d_gbps / 1000
    expected = (
        p.fault_wake_us
        + 100
        + 4 * (6 * batch_us + 32 * (p.fault_page_us + p.cpu_unmap_page_us) + copy_us)
    )
    assert taken == pytest.approx(expected * 1000, abs=50)
    assert gpu.counters().fault_batches == 4 * 6


def test_a_sweep_takes_six_batches_a_block_of_which_each_has_a_page_of_every_operand() -> None:
    """Counted on cards: 6.00 groups of faults per block, by the steps of the tree prefetcher."""
    gpu = gpu_with(200)
    gpu.on_host(0, 96)
    gpu.run_kernel([(0, 32), (32, 32), (64, 32)])
    counters = gpu.counters()
    assert counters.fault_batches == 32 * 6
    assert (counters.fault_blocks, counters.fault_pages) == (96, 96 * 6)
    assert counters.h2d_demand_bytes == 96 * BLOCK


@pytest.mark.parametrize(
    ("kernel", "uses"),
    [
        (b"_ZN2at6native24vectorized_gather_kernelILi16ElEEvPcS2_PT0_illllb", [0, 1, 2, 40]),
        (b"indexSelectLargeIndex", [0, 1, 2, 40]),
        (b"ampere_sgemm_128x64_tn", [1]),
        (b"pump_gemm", [1]),
        (b"vectorized_elementwise_kernel", []),
    ],
)
def test_a_kernels_name_says_which_uses_it_does_not_sweep(kernel: bytes, uses: list[int]) -> None:
    lib = Gpu(1).lib
    mask = lib.uvm_wide_uses(kernel)
    assert [use for use in (0, 1, 2, 40) if lib.uvm_wide_use(mask, use)] == uses


def test_a_scattered_use_needs_blocks_again_that_have_left_meanwhile() -> None:
    """A sweep that exceeds the memory by 8 blocks misses all blocks under the driver's eviction
    order. In a scattered order most blocks are reached before they leave."""

    def missed(access: int) -> int:
        gpu = gpu_with(192)
        gpu.on_host(0, 200)
        for _ in range(3):
            before = gpu.counters().fault_blocks
            gpu.run_kernel([(0, 200, EVERYTHING, access)])
        return int(gpu.counters().fault_blocks - before)

    assert missed(Gpu(1).lib.GPU_READ) == 200
    assert 8 <= missed(wide(Gpu(1))) < 60


def test_a_batch_holds_at_most_256_faults() -> None:
    gpu = gpu_with(4000)
    gpu.on_host(0, 1600)
    gpu.run_kernel([(0, 1600, EVERYTHING, wide(gpu))])
    counters = gpu.counters()
    assert counters.fault_pages == 1600 * 32
    # A batch holds 8 whole blocks of 32 faults each, so 1600 blocks take 200 batches.
    assert counters.fault_batches == counters.fault_groups / 8 == 200


def test_demand_paging_reaches_a_seventh_to_a_third_of_the_speed_of_a_copy() -> None:
    """Cards with PCIe 3 and 4 reach 0.20 to 0.23, for memory that the CPU has written."""
    gpu = gpu_with(1000)
    gpu.on_host(0, 800)
    taken = gpu.run_kernel([(0, 800)], us=1)
    speed = 800 * BLOCK / taken
    assert 1 / 7 < speed / gpu.profile.copy_h2d_gbps < 1 / 3


def test_a_kernel_whose_blocks_are_all_resident_takes_exactly_its_time() -> None:
    gpu = gpu_with(100)
    gpu.create(0, 90)
    gpu.run_kernel([(0, 90)])
    gpu.advance(gpu.now + MS)
    submitted = gpu.now
    kernel = gpu.kernel([(0, 90)], us=1234.567)
    gpu.run()
    start, end = gpu.finished[kernel]
    assert start == submitted + round(gpu.profile.launch_us * 1000)
    assert end - start == 1_234_567


def test_the_first_touch_by_the_gpu_populates_and_moves_nothing_over_the_link() -> None:
    gpu = gpu_with(100)
    gpu.create(0, 50)
    gpu.run_kernel([(0, 50)])
    counters = gpu.counters()
    assert counters.populated_bytes == 50 * BLOCK
    assert (counters.h2d_demand_bytes, counters.h2d_busy_ns, counters.d2h_busy_ns) == (0, 0, 0)


def test_the_tree_prefetcher_completes_a_block_of_which_more_than_51_percent_is_wanted() -> None:
    gpu = gpu_with(100)
    gpu.on_host(0, 2)
    gpu.run_kernel([(0, 1, 16)])  # 16 of 32 pages, spread: at most half of each group
    gpu.run_kernel([(1, 1, 17)])
    assert gpu.block(0).gpu_pages.bit_count() == 16
    assert gpu.block(1).gpu_pages.bit_count() == 32


def test_pages_that_the_tree_prefetcher_adds_do_not_count_toward_larger_groups() -> None:
    """uvm_perf_prefetch.c does the same: it counts resident and faulted pages."""
    gpu = gpu_with(100)
    gpu.on_host(0, 1)
    gpu.run_kernel([(0, 1, EVERYTHING, wide(gpu), 0b10111)])
    # 3 of the first 4 pages complete these 4; 4 of the first 8 do not complete the 8.
    assert gpu.block(0).gpu_pages == 0b11111


def test_an_irregular_gather_is_far_worse_per_byte_than_a_sweep() -> None:
    gpu = gpu_with(400)
    gpu.on_host(0, 800)
    gpu.run_kernel([(0, 800)], us=1)
    sweep = gpu.run_kernel([(0, 800)], us=1) / (800 * 32)
    gather = gpu.run_kernel([(0, 800, 1)], us=1) / 800
    assert gather > 5 * sweep


def test_faults_of_a_copy_engine_cost_more_than_faults_of_a_kernel() -> None:
    kernel, copy = gpu_with(200), gpu_with(200)
    for gpu in (kernel, copy):
        gpu.on_host(0, 64)
    faulted = kernel.run_kernel([(0, 64, EVERYTHING, wide(kernel))], us=1000)
    copied = copy.time_of(
        copy.submit(copy.lib.GPU_MEMSET, [(0, 64)], duration_ns=1_000_000),
    )
    assert copied > faulted
    assert copy.counters().nonreplayable_blocks == 64
    assert copy.counters().fault_batches == 64


# ---- eviction


def test_a_cyclic_sweep_ten_percent_larger_than_memory_faults_on_everything() -> None:
    gpu = gpu_with(200)
    gpu.on_host(0, 220)
    gpu.run_kernel([(0, 220)])
    for _ in range(3):
        before = gpu.counters().fault_blocks
        gpu.run_kernel([(0, 220)])
        assert gpu.counters().fault_blocks - before == 220


def test_accesses_do_not_refresh_the_order_of_eviction() -> None:
    gpu = gpu_with(10)
    gpu.on_host(0, 12)
    gpu.run_kernel([(0, 10)])
    for _ in range(5):
        gpu.run_kernel([(0, 1)])  # block 0 is hot, but migrated first
    gpu.run_kernel([(10, 1)])
    assert gpu.resident(0, 12) == list(range(1, 11))


def test_prefetching_a_resident_block_again_refreshes_it_at_host_cost_only() -> None:
    gpu = gpu_with(10)
    gpu.on_host(0, 12)
    gpu.run_kernel([(0, 10)])
    moved = gpu.counters().h2d_busy_ns
    began = gpu.now
    gpu.prefetch(0, 1)
    p = gpu.profile
    assert gpu.now - began == round((p.prefetch_call_us + p.prefetch_block_us) * 1000)
    assert gpu.counters().h2d_busy_ns == moved
    gpu.run_kernel([(10, 1)])
    assert gpu.resident(0, 12) == [0, *range(2, 11)]


def test_everything_evicted_is_copied_back_even_if_it_was_only_read() -> None:
    gpu = gpu_with(100)
    gpu.on_host(0, 200)
    gpu.run_kernel([(0, 100, 0, gpu.lib.GPU_READ)])
    gpu.run_kernel([(100, 100, 0, gpu.lib.GPU_READ)])
    assert gpu.counters().d2h_evict_bytes == 100 * BLOCK


def test_unused_chunks_are_taken_before_used_ones() -> None:
    gpu = gpu_with(10)
    gpu.on_host(0, 12)
    gpu.run_kernel([(0, 10)])
    gpu.evict(7, 1)
    assert gpu.block(7).list == gpu.lib.GPU_LIST_UNUSED
    gpu.run_kernel([(10, 1)])
    assert gpu.resident(0, 12) == [0, 1, 2, 3, 4, 5, 6, 8, 9, 10]
    counters = gpu.counters()
    assert (counters.evictions_unused, counters.evictions_used) == (1, 0)
    assert counters.d2h_evict_bytes == 0


def test_discarded_blocks_are_evicted_before_used_ones_and_without_a_copy() -> None:
    gpu = gpu_with(10)
    gpu.on_host(0, 12)
    gpu.run_kernel([(0, 10)])
    gpu.discard(5, 1, gpu.lib.GPU_DISCARD_KEEP)
    gpu.run_kernel([(10, 1)])
    counters = gpu.counters()
    assert gpu.resident(0, 12) == [0, 1, 2, 3, 4, 6, 7, 8, 9, 10]
    assert (counters.evictions_discarded, counters.d2h_evict_bytes) == (1, 0)
    assert gpu.dropped == [5]
    assert gpu.block(5).data_pages == 0


def test_victims_are_unused_then_discarded_then_used_and_of_each_the_first_that_came() -> None:
    gpu = gpu_with(6)
    gpu.on_host(0, 6)
    gpu.prefetch(0, 6)
    gpu.prefetch(1, 1)  # resident: becomes the last in the order
    gpu.run()
    gpu.discard(2, 1, gpu.lib.GPU_DISCARD_KEEP)
    gpu.evict(4, 1)
    gpu.evict(3, 1)
    gpu.create(20, 6)
    gone: list[int] = []
    for newcomer in range(20, 26):
        held = {block for block in range(6) if gpu.block(block).list != gpu.lib.GPU_LIST_NONE}
        gpu.prefetch(newcomer, 1)
        gpu.run()
        gone += [block for block in held if gpu.block(block).list == gpu.lib.GPU_LIST_NONE]
    assert gone == [4, 3, 2, 0, 5, 1]


def test_the_first_eviction_of_a_block_pays_for_host_pages_and_the_next_does_not() -> None:
    gpu = gpu_with(1)
    gpu.create(0, 2)
    gpu.run_kernel([(0, 1)])
    first = gpu.run_kernel([(1, 1)])  # evicts 0
    gpu.run_kernel([(0, 1)])  # evicts 1, which has no host pages either
    assert gpu.counters().host_alloc_blocks == 2
    later = gpu.run_kernel([(1, 1)])
    copy_us = (
        BLOCK / gpu.profile.prefetch_h2d_gbps / 1000 - BLOCK / gpu.profile.populate_gbps / 1000
    )
    assert first - later == pytest.approx((gpu.profile.host_alloc_us - copy_us) * 1000, abs=20)


def test_chunks_that_are_kept_without_a_use_are_not_free() -> None:
    """Like cuMemGetInfo, this counts free frames of the card's allocator (pmaGetFreeMemory)."""
    gpu = gpu_with(100)
    gpu.on_host(0, 80)
    gpu.now = gpu.prefetch(0, 80)
    assert gpu.memory_state().free_bytes == 20 * BLOCK
    gpu.now = gpu.prefetch(0, 80, to_host=True)
    state = gpu.memory_state()
    assert (state.resident_bytes, state.unused_bytes) == (0, 80 * BLOCK)
    assert state.free_bytes == 20 * BLOCK, "all have left, and nothing was given back"
    gpu.check()


def test_plain_allocations_shrink_the_memory_for_managed_blocks() -> None:
    gpu = gpu_with(100)
    gpu.create(0, 100)
    gpu.run_kernel([(0, 100)])
    cost = gpu.ffi.new("struct gpu_cost *")
    lib = gpu.lib
    assert lib.gpu_plain_reserve(gpu.engine, gpu.now, gpu.hooks, 40 * BLOCK + 1, cost) == 0
    assert gpu.counters().evictions_used == 41
    assert cost.complete_ns > gpu.now
    state = gpu.memory_state()
    assert (state.resident_bytes, state.free_bytes) == (59 * BLOCK, 0)
    assert (
        lib.gpu_plain_reserve(gpu.engine, gpu.now, gpu.hooks, 60 * BLOCK, cost) == lib.GPU_NO_MEMORY
    )
    assert lib.gpu_plain_release(gpu.engine, gpu.now, gpu.hooks, 40 * BLOCK + 1) == 0
    assert gpu.memory_state().free_bytes == 41 * BLOCK
    gpu.check()


def test_an_operation_larger_than_the_memory_gets_through() -> None:
    gpu = gpu_with(3)
    gpu.on_host(0, 500)
    gpu.run_kernel([(0, 500)])
    assert gpu.counters().fault_blocks == 500
    gpu.check()


def test_with_no_memory_left_for_managed_blocks_they_are_read_over_the_link() -> None:
    gpu = gpu_with(10)
    gpu.on_host(0, 20)
    cost = gpu.ffi.new("struct gpu_cost *")
    gpu.lib.gpu_plain_reserve(gpu.engine, gpu.now, gpu.hooks, 10 * BLOCK, cost)
    gpu.run_kernel([(0, 20)])
    counters = gpu.counters()
    assert (counters.remote_blocks, counters.h2d_remote_bytes) == (20, 20 * BLOCK)
    assert gpu.resident(0, 20) == []


# ---- misuse


def test_touching_or_commanding_freed_blocks_is_counted() -> None:
    gpu = gpu_with(10)
    gpu.create(0, 4)
    kernel = gpu.kernel([(0, 4)], us=10)
    cost = gpu.ffi.new("struct gpu_cost *")
    lib = gpu.lib
    assert lib.gpu_range_destroy(gpu.engine, gpu.now, gpu.hooks, 0, 4, cost) == 0
    gpu.run()
    assert kernel in gpu.finished
    assert gpu.counters().errors == 4
    assert gpu.counters().last_error == lib.GPU_ERROR_USE_OF_FREED
    call = gpu.ffi.new("struct gpu_prefetch_call *", {"stream": 1, "block_count": 4})
    assert lib.gpu_prefetch_step(gpu.engine, gpu.now, gpu.hooks, call) == lib.GPU_INVALID
    assert gpu.counters().last_error == lib.GPU_ERROR_COMMAND_ON_FREED
    assert lib.gpu_range_destroy(gpu.engine, gpu.now, gpu.hooks, 0, 4, cost) == lib.GPU_INVALID
    assert gpu.counters().last_error == lib.GPU_ERROR_DOUBLE_FREE


def test_a_range_whose_copies_are_under_way_is_free_when_they_have_ended() -> None:
    gpu = gpu_with(64)
    gpu.on_host(0, 64)
    complete = gpu.prefetch(0, 64)
    cost = gpu.ffi.new("struct gpu_cost *")
    assert gpu.now < complete
    assert gpu.lib.gpu_range_destroy(gpu.engine, gpu.now, gpu.hooks, 0, 64, cost) == 0
    assert cost.complete_ns == complete
    assert gpu.memory_state().free_bytes == 64 * BLOCK


def test_an_idle_fault_handler_is_woken_by_an_interrupt() -> None:
    """On a card a lone fault takes 152 us, and one of many takes a third of that."""
    gpu = gpu_with(100)
    gpu.create(0, 4)
    p = gpu.profile
    gpu.run_kernel([(0, 1, 1)], us=10)
    soon = gpu.run_kernel([(1, 1, 1)], us=10)
    gpu.advance(gpu.now + round(1000 * p.fault_wake_us))
    later = gpu.run_kernel([(2, 1, 1)])
    assert later - soon == pytest.approx((90 + p.fault_wake_us) * 1000, abs=1)
