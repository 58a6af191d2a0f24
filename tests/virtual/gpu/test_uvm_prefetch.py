"""Facts about prefetch, explicit eviction, discard and whole iterations of training.

The facts and their sources: docs/uvm.md. See test_uvm_model.py for demand paging.
"""

from __future__ import annotations

from itertools import pairwise

import pytest
from gpu_model import BLOCK, Gpu, gpu_with

# ---- prefetch


def test_a_prefetch_runs_at_the_speed_of_the_link_and_its_caller_pays_for_each_block() -> None:
    gpu = gpu_with(1000)
    gpu.create(0, 400)
    gpu.prefetch(0, 400, to_host=True)
    gpu.prefetch(0, 400)
    gpu.run()
    gpu.evict(0, 400)
    began = gpu.now
    complete = gpu.prefetch(0, 400)
    p = gpu.profile
    # The prefetch back to the GPU unmaps each block from the CPU.
    host_us = p.prefetch_call_us + 400 * (
        p.prefetch_block_us * 1.3 + p.cpu_unmap_us + 32 * p.cpu_unmap_page_us
    )
    assert gpu.now - began == pytest.approx(host_us * 1000, rel=0.001)
    copy_ns = 400 * BLOCK / p.prefetch_h2d_gbps
    assert complete - began == pytest.approx(copy_ns, rel=0.01)


@pytest.mark.parametrize(("kib", "pages"), [(2048, 1), (64, 32), (4, 512)])
def test_host_pages_are_allocated_and_copied_one_by_one(kib: int, pages: int) -> None:
    gpu = Gpu(4, settings={"uvm.host_page_kib": str(kib)})
    assert [gpu.stream(), gpu.stream()] == [1, 2]
    gpu.create(0, 1)
    gpu.prefetch(0, 1)
    gpu.run()
    times_us = []
    for _ in range(2):  # the first way out has no host pages yet
        for to_host in (True, False):
            began = gpu.now
            times_us.append((gpu.prefetch(0, 1, to_host=to_host) - began) / 1000)
            gpu.run()
    p = gpu.profile
    pieces_us = (pages - 1) * p.piece_us
    out_us = p.prefetch_call_us + p.prefetch_block_us + 512 * p.cpu_pte_us
    copy_us = BLOCK / p.copy_d2h_gbps / 1000 + pieces_us
    assert times_us[2] == pytest.approx(out_us + copy_us, abs=0.1)
    alloc_us = p.host_alloc_us + (pages - 1) * p.host_page_us
    assert times_us[0] - times_us[2] == pytest.approx(alloc_us, abs=0.1)
    in_us = BLOCK / p.prefetch_h2d_gbps / 1000 + pieces_us
    unmap_us = p.cpu_unmap_us + 32 * p.cpu_unmap_page_us
    call_us = p.prefetch_call_us + p.prefetch_block_us
    assert times_us[1] == times_us[3] == pytest.approx(in_us + unmap_us + call_us, abs=0.1)


def test_populating_by_prefetch_moves_nothing_over_the_link() -> None:
    gpu = gpu_with(100)
    gpu.create(0, 100)
    began = gpu.now
    complete = gpu.prefetch(0, 100)
    counters = gpu.counters()
    assert counters.populated_bytes == 100 * BLOCK
    assert (counters.h2d_prefetch_bytes, counters.h2d_busy_ns) == (0, 0)
    assert complete - began < 100 * BLOCK / gpu.profile.prefetch_h2d_gbps / 4


def test_a_prefetch_to_the_cpu_blocks_its_caller_until_it_is_done() -> None:
    gpu = gpu_with(100)
    gpu.create(0, 16)
    gpu.prefetch(0, 16)
    gpu.run()
    began = gpu.now
    complete = gpu.evict(0, 16)
    p = gpu.profile
    # Blocks leave one after another; allocating host pages is slower than the link.
    host_us = p.prefetch_call_us + 16 * (p.prefetch_block_us + p.host_alloc_us)
    pass_us = p.prefetch_block_us * p.prefetch_second_pass + 512 * p.cpu_pte_us
    expected_us = host_us + 16 * pass_us
    assert gpu.now == complete
    assert gpu.now - began == pytest.approx(expected_us * 1000, rel=0.001)


def test_blocks_are_mapped_for_the_cpu_while_those_behind_them_are_copied() -> None:
    gpu = gpu_with(100)
    gpu.on_host(0, 16)
    gpu.prefetch(0, 16)
    gpu.run()
    began = gpu.now
    gpu.evict(0, 16)
    p = gpu.profile
    # Mapping a block takes longer than copying it, so the call waits for no copy.
    passes_us = p.prefetch_block_us * (1 + p.prefetch_second_pass) + 512 * p.cpu_pte_us
    assert gpu.now - began == pytest.approx((p.prefetch_call_us + 16 * passes_us) * 1000, rel=0.001)


def test_one_thread_moves_5_to_9_gigabytes_a_second_to_the_cpu() -> None:
    gpu = gpu_with(1000)
    gpu.on_host(0, 512)
    gpu.prefetch(0, 512)
    gpu.run()
    began = gpu.now
    gpu.evict(0, 512)
    assert 5 < 512 * BLOCK / (gpu.now - began) < 9


@pytest.mark.parametrize(("how", "share"), [("demand", 0.95), ("prefetch", 0.9)])
def test_explicit_early_eviction_takes_the_write_back_out_of_the_critical_path(
    how: str, share: float
) -> None:
    waited = []
    for early in (False, True):
        gpu = gpu_with(64)
        gpu.create(0, 128)
        gpu.evict(64, 64)
        gpu.prefetch(0, 64)
        gpu.run()
        if early:
            gpu.evict(0, 64)
        began = gpu.run()
        if how == "prefetch":
            gpu.prefetch(64, 64)
        else:
            gpu.run_kernel([(64, 64)], us=10)
        waited.append(gpu.run() - began)
        assert gpu.counters().d2h_evict_bytes == (0 if early else 64 * BLOCK)
    assert waited[1] < share * waited[0]


def test_a_block_that_is_wanted_while_it_leaves_waits_until_it_has_left() -> None:
    gpu = gpu_with(1)
    gpu.on_host(0, 2)
    gpu.run_kernel([(0, 1)])
    gpu.prefetch(1, 1)  # evicts 0
    left = gpu.block(0).left_ns
    assert left > gpu.now
    assert gpu.block(0).left_ns > gpu.now
    assert gpu.block(1).ready_ns >= left + BLOCK / gpu.profile.prefetch_h2d_gbps


def test_a_block_evicted_while_it_arrives_leaves_only_when_it_has_arrived() -> None:
    gpu = gpu_with(100)
    gpu.on_host(0, 101)
    gpu.prefetch(0, 100)
    gpu.prefetch(0, 99, stream=2)  # refreshed: now 99 is the first in the order
    arrived = int(gpu.block(99).ready_ns)
    gpu.prefetch(100, 1, stream=gpu.stream())
    assert gpu.now < arrived
    left_ns = int(gpu.block(99).left_ns)
    assert left_ns >= arrived + BLOCK / gpu.profile.copy_d2h_gbps - 1
    assert gpu.block(100).ready_ns > left_ns


def test_a_newcomer_in_an_unused_chunk_waits_for_what_still_leaves_it() -> None:
    gpu = gpu_with(16)
    gpu.on_host(0, 32)
    gpu.prefetch(0, 16)
    gpu.run()
    out = gpu.submit(gpu.lib.GPU_PREFETCH_OUT, [(0, 16)], stream=2)  # by the driver's worker
    gpu.advance(gpu.now + 1)
    gpu.prefetch(16, 1)
    leaving = gpu.block(0)  # chunks are taken in the order in which blocks left them
    assert leaving.left_ns > gpu.now
    assert gpu.block(16).ready_ns > leaving.left_ns
    gpu.run()
    assert out in gpu.finished


def test_a_kernel_waits_for_a_prefetch_that_comes_late_and_does_not_fault() -> None:
    gpu = gpu_with(100)
    gpu.on_host(0, 64)
    gpu.prefetch(0, 64)
    gpu.run_kernel([(0, 64)], us=10)
    counters = gpu.counters()
    assert counters.fault_blocks == 0
    assert counters.stall_arrival_ns > 0


def test_prefetching_everything_without_control_loses_to_naive_paging() -> None:
    """Each of two phases fits. Prefetches for the next phase evict blocks of the running phase."""

    def iteration(prefetch: bool) -> int:
        gpu = gpu_with(120)
        gpu.on_host(0, 200)
        for _ in range(3):
            began = gpu.run()
            uses = [(0, 100)] * 20 + [(100, 100)] * 20
            for use in uses:
                gpu.kernel([use], us=5000)
            for use in uses if prefetch else ():  # all issued operations, in order, at once
                gpu.prefetch(*use)
            gpu.run()
        return gpu.now - began

    assert iteration(prefetch=True) > 1.02 * iteration(prefetch=False)


def test_both_directions_at_once_slow_each_other_by_the_duplex_shares() -> None:
    def end_of_first(gpu: Gpu, *kinds: int) -> int:
        length = 1 << 30
        cookies = [
            gpu.submit(kind, stream=i + 1, length_bytes=length << i) for i, kind in enumerate(kinds)
        ]
        gpu.run()
        return gpu.finished[cookies[0]][1]

    lib, profile = Gpu(1).lib, Gpu(1).profile
    ways = (lib.GPU_COPY_H2D, lib.GPU_COPY_D2H)
    for kinds, share in ((ways, profile.duplex_in), (ways[::-1], profile.duplex_out)):
        alone = end_of_first(gpu_with(100), kinds[0])
        assert alone / end_of_first(gpu_with(100), *kinds) == pytest.approx(share, abs=0.001)


def test_a_prefetch_on_its_way_ends_later_when_the_other_direction_joins() -> None:
    gpu = gpu_with(200)
    gpu.on_host(0, 64)
    copy = gpu.prefetch(0, 64)
    told, began = copy, gpu.now
    gpu.submit(gpu.lib.GPU_COPY_D2H, stream=2, length_bytes=1 << 30)
    gpu.run()
    _, end = gpu.finished[1 << 40]
    assert end - began == pytest.approx((told - began) / gpu.profile.duplex_in, rel=0.001)


def test_links_serve_one_transfer_at_a_time() -> None:
    gpu = gpu_with(1000)
    gpu.on_host(0, 64)
    gpu.prefetch(0, 64)
    arrivals = sorted(int(gpu.block(i).ready_ns) for i in range(64))
    least = BLOCK / gpu.profile.prefetch_h2d_gbps
    assert all(b - a >= least - 1 for a, b in pairwise(arrivals))


# ---- discard


def test_a_write_does_not_clear_a_discard_that_kept_the_mapping() -> None:
    gpu = gpu_with(10)
    gpu.on_host(0, 10)
    gpu.run_kernel([(0, 10)])
    faults = gpu.counters().fault_blocks
    gpu.discard(3, 1, gpu.lib.GPU_DISCARD_KEEP)
    gpu.run_kernel([(3, 1, 0, gpu.lib.GPU_WRITE)])
    assert gpu.block(3).discarded == gpu.lib.GPU_DISCARD_KEEP
    assert gpu.counters().fault_blocks == faults
    gpu.create(20, 1)
    gpu.run_kernel([(20, 1)])
    assert gpu.dropped == [3]  # the written contents are lost


def test_a_write_after_a_discard_that_unmaps_faults_and_clears_the_state() -> None:
    gpu = gpu_with(10)
    gpu.on_host(0, 10)
    gpu.run_kernel([(0, 10)])
    faults, moved = gpu.counters().fault_blocks, gpu.counters().h2d_demand_bytes
    gpu.discard(3, 1, gpu.lib.GPU_DISCARD_UNMAP)
    gpu.run_kernel([(3, 1, 0, gpu.lib.GPU_WRITE)])
    assert gpu.block(3).discarded == 0
    assert gpu.block(3).list == gpu.lib.GPU_LIST_USED
    assert gpu.counters().fault_blocks == faults + 1
    assert gpu.counters().h2d_demand_bytes == moved
    assert gpu.dropped == [3]  # the old contents, not the written ones
    gpu.create(20, 10)
    gpu.run_kernel([(20, 10)])
    assert gpu.dropped == [3]
    assert gpu.counters().d2h_evict_bytes == 10 * BLOCK


def test_a_discard_that_unmaps_clears_residency_at_once_and_its_chunk_is_taken_first() -> None:
    gpu = gpu_with(10)
    gpu.on_host(0, 10)
    gpu.run_kernel([(0, 10)])
    gpu.discard(3, 1, gpu.lib.GPU_DISCARD_UNMAP)
    block = gpu.block(3)
    assert (block.gpu_pages, block.data_pages) == (0, 0)
    assert block.list == gpu.lib.GPU_LIST_UNUSED
    assert gpu.memory_state().unused_bytes == BLOCK
    gpu.create(20, 1)
    gpu.run_kernel([(20, 1)])
    counters = gpu.counters()
    assert (counters.evictions_unused, counters.d2h_evict_bytes) == (1, 0)
    assert gpu.block(3).list == gpu.lib.GPU_LIST_NONE


def test_a_block_that_takes_the_chunk_of_a_discarded_one_pays_for_its_host_pages() -> None:
    gpu = gpu_with(4)
    gpu.create(0, 4)
    gpu.prefetch(0, 4)
    gpu.run()
    gpu.discard(0, 1, gpu.lib.GPU_DISCARD_UNMAP)
    assert gpu.counters().host_alloc_blocks == 0
    gpu.create(20, 1)
    gpu.prefetch(20, 1)
    assert gpu.counters().host_alloc_blocks == 1
    assert gpu.counters().d2h_evict_bytes == 0


def test_a_read_after_a_discard_that_unmaps_does_not_clear_it_and_a_write_faults_again() -> None:
    gpu = gpu_with(10)
    gpu.on_host(0, 10)
    gpu.run_kernel([(0, 10)])
    gpu.discard(3, 1, gpu.lib.GPU_DISCARD_UNMAP)
    gpu.run_kernel([(3, 1, 0, gpu.lib.GPU_READ)])
    assert gpu.block(3).discarded == gpu.lib.GPU_DISCARD_UNMAP
    assert gpu.block(3).list == gpu.lib.GPU_LIST_DISCARDED
    faults = gpu.counters().fault_blocks
    gpu.run_kernel([(3, 1, 0, gpu.lib.GPU_WRITE)])
    assert gpu.counters().fault_blocks == faults + 1
    assert gpu.block(3).discarded == 0


def test_the_caller_of_a_discard_pays_for_the_call_and_for_each_block_that_was_mapped() -> None:
    gpu = gpu_with(100)
    gpu.create(0, 80)
    gpu.prefetch(0, 40)  # the others were never resident
    gpu.run()
    began = gpu.now
    complete = gpu.prefetch(0, 80, discard_kind=gpu.lib.GPU_DISCARD_UNMAP)
    p = gpu.profile
    cost_ns = (p.discard_call_us + 40 * p.discard_block_us) * 1000
    assert gpu.now - began == complete - began == pytest.approx(cost_ns, rel=1e-6)
    assert gpu.counters().discarded_blocks == 40


def test_a_discard_of_what_is_mapped_nowhere_costs_the_call_alone() -> None:
    """The driver's own eviction maps nothing for the CPU."""
    gpu = gpu_with(10)
    gpu.create(0, 20)
    gpu.run_kernel([(0, 10)])
    gpu.run_kernel([(10, 10)])
    assert not any(gpu.block(block).gpu_pages for block in range(10))
    began = gpu.now
    gpu.prefetch(0, 10, discard_kind=gpu.lib.GPU_DISCARD_UNMAP)
    assert gpu.now - began == pytest.approx(gpu.profile.discard_call_us * 1000, rel=1e-6)
    assert gpu.counters().discarded_blocks == 10


def test_memory_that_was_discarded_on_the_host_comes_as_if_it_had_never_been_there() -> None:
    gpu = gpu_with(10)
    gpu.create(0, 2)
    gpu.on_host(2, 2)
    gpu.discard(2, 2, gpu.lib.GPU_DISCARD_UNMAP)
    took: list[int] = []
    for first in (0, 2):
        began = gpu.now
        took.append(gpu.prefetch(first, 2) - began)
        gpu.run()
    assert took[0] == took[1]
    assert gpu.counters().h2d_prefetch_bytes == 0


def test_chunks_of_discarded_blocks_are_taken_in_the_order_of_their_discards() -> None:
    gpu = gpu_with(3)
    gpu.create(0, 3)
    gpu.prefetch(0, 3)
    gpu.run()
    for block in (2, 0, 1):
        gpu.discard(block, 1, gpu.lib.GPU_DISCARD_UNMAP)
    gpu.create(20, 3)
    gone: list[int] = []
    for newcomer in range(20, 23):
        gpu.prefetch(newcomer, 1)
        gpu.run()
        held = [block for block in range(3) if gpu.block(block).list != gpu.lib.GPU_LIST_NONE]
        gone += {0, 1, 2}.difference(held, gone)
    assert gone == [2, 0, 1]


def test_a_discard_on_a_busy_stream_keeps_what_is_behind_it_waiting() -> None:
    gpu = gpu_with(100)
    gpu.create(0, 40)
    gpu.prefetch(0, 40)
    gpu.run()
    gpu.kernel([(0, 1)], us=100)
    gpu.submit(gpu.lib.GPU_DISCARD, [(8, 20)], discard_kind=gpu.lib.GPU_DISCARD_UNMAP)
    behind = gpu.kernel([(0, 1)], us=100)
    began = gpu.now
    gpu.run()
    p = gpu.profile
    cost_us = p.launch_us + 100 + p.discard_call_us + 20 * p.discard_block_us
    assert gpu.finished[behind][0] - began == pytest.approx(cost_us * 1000, rel=0.01)


def test_an_explicit_migration_clears_a_discard() -> None:
    gpu = gpu_with(10)
    gpu.on_host(0, 10)
    gpu.run_kernel([(0, 10)])
    for kind in (gpu.lib.GPU_DISCARD_KEEP, gpu.lib.GPU_DISCARD_UNMAP):
        gpu.discard(3, 1, kind)
        gpu.prefetch(3, 1)
        assert gpu.block(3).discarded == 0
        assert gpu.block(3).list == gpu.lib.GPU_LIST_USED


def test_a_block_discarded_on_the_host_comes_back_without_a_copy() -> None:
    gpu = gpu_with(10)
    gpu.on_host(0, 4)
    gpu.discard(0, 4, gpu.lib.GPU_DISCARD_KEEP)
    gpu.prefetch(0, 4)
    counters = gpu.counters()
    assert (counters.h2d_prefetch_bytes, counters.populated_bytes) == (0, 4 * BLOCK)
    assert gpu.dropped == [0, 1, 2, 3]


# ---- training


TENSORS = [(at, 16) for at in range(0, 480, 16)]
KERNEL_US = 2000


def streamed(number: int) -> bool:
    """Returns whether a tensor is streamed: two of five are, through two places; others stay."""
    return number % 5 in (1, 3)


def training(blocks: int, prefetched: bool) -> int:
    """Returns the time of the last of four cyclic sweeps, with faults only or with prefetches."""
    gpu = gpu_with(blocks)
    gpu.on_host(0, 480)
    present: list[tuple[int, int]] = []  # (streamed tensor, its last kernel)
    for _ in range(4):
        began = gpu.run()
        kernels = [gpu.kernel([use], us=KERNEL_US) for use in TENSORS]
        for number in filter(streamed, range(len(TENSORS) if prefetched else 0)):
            if len(present) == 2:
                old, last_use = present.pop(0)
                while last_use not in gpu.finished:
                    gpu.advance(gpu.next_event())
                gpu.evict(*TENSORS[old])
            gpu.prefetch(*TENSORS[number])
            present.append((number, kernels[number]))
        gpu.run()
    gpu.check()
    return gpu.now - began


def test_naive_cyclic_training_is_3_to_8_times_slower_than_unlimited_memory() -> None:
    assert 3 < training(320, prefetched=False) / training(600, prefetched=False) < 8


def test_with_a_perfect_order_of_prefetches_training_is_close_to_the_floor() -> None:
    link_ns = (480 - 320) * BLOCK / Gpu(1).profile.prefetch_h2d_gbps
    floor = max(training(600, prefetched=False), link_ns)
    assert training(320, prefetched=True) < 1.15 * floor
