"""Facts about READ_MOSTLY: duplicates, the cost of a write, and evictions without a copy.

The facts and their sources: docs/uvm.md, "Read duplication".
"""

from __future__ import annotations

import random

import pytest
from gpu_model import BLOCK, Gpu, gpu_with

PAGES = 32
ALL = (1 << PAGES) - 1
WRITE = 2


def there_twice(count: int, blocks: int = 100) -> Gpu:
    """Returns a GPU whose first `count` blocks are on both host and GPU."""
    gpu = gpu_with(blocks)
    gpu.on_host(0, count)
    gpu.read_mostly(0, count)
    gpu.prefetch(0, count)
    gpu.run()
    return gpu


def test_what_comes_from_the_host_stays_valid_there_and_what_was_nowhere_does_not() -> None:
    gpu = gpu_with(100)
    gpu.on_host(0, 4)
    gpu.create(4, 4)
    gpu.read_mostly(0, 8)
    gpu.prefetch(0, 8)
    gpu.run()
    assert [gpu.block(i).host_pages for i in range(8)] == [ALL] * 4 + [0] * 4
    assert gpu.counters().h2d_prefetch_bytes == 4 * BLOCK
    gpu.check()


@pytest.mark.parametrize("how", ["demand", "prefetch"])
def test_the_driver_evicts_duplicates_without_a_copy(how: str) -> None:
    gpu = there_twice(4, blocks=4)
    gpu.on_host(20, 4)
    if how == "demand":
        gpu.run_kernel([(20, 4)])
    else:
        gpu.prefetch(20, 4)
    gpu.run()
    counters = gpu.counters()
    assert (counters.d2h_evict_bytes, counters.clean_bytes) == (0, 4 * BLOCK)
    assert gpu.resident(0, 4) == []
    assert gpu.left == []
    gpu.run_kernel([(0, 4)])
    assert gpu.counters().h2d_demand_bytes >= 4 * BLOCK, "its contents are on the host"
    gpu.check()


def test_a_duplicate_departs_by_the_end_of_the_advice_and_its_chunk_is_taken_first() -> None:
    gpu = there_twice(8)
    began = gpu.now
    gpu.keep_one(0, 8)
    p = gpu.profile
    assert gpu.now - began == pytest.approx(
        (p.advise_call_us + 8 * p.advise_block_us) * 1000, rel=1e-6
    )
    assert gpu.resident(0, 8) == []
    assert gpu.memory_state().unused_bytes == 8 * BLOCK
    assert gpu.block(7).left_ns == gpu.now, "no chunk is free before its mappings are gone"
    began, moved = gpu.now, gpu.counters().d2h_prefetch_bytes
    gpu.evict(0, 8)
    assert gpu.counters().d2h_prefetch_bytes == moved
    assert gpu.now - began > 8 * 512 * p.cpu_pte_us * 1000, "what was mapped for reading is mapped"
    gpu.check()


def test_a_prefetch_to_the_host_behind_the_advice_moves_what_was_written_and_no_more() -> None:
    gpu = there_twice(8)
    gpu.run_kernel([(2, 1, 0, WRITE), (5, 1, 1, WRITE)])
    gpu.keep_one(0, 8)
    assert gpu.resident(0, 8) == [2, 5]
    gpu.left.clear()
    gpu.evict(0, 8)
    assert sorted(block for block, _ in gpu.left) == [2, 5]
    assert [pages.bit_count() for _, pages in sorted(gpu.left)] == [PAGES, 1]
    assert gpu.resident(0, 8) == []
    gpu.check()


def test_a_write_has_a_fault_for_each_4_kib_and_a_block_takes_two_batches() -> None:
    gpu = there_twice(3)
    before = gpu.counters()
    began = gpu.now
    gpu.kernel([(1, 1, 0, WRITE)], us=10)
    gpu.run()
    after, p = gpu.counters(), gpu.profile
    assert after.collapsed_pages - before.collapsed_pages == 512
    assert after.fault_batches - before.fault_batches == 2
    assert after.h2d_busy_ns == before.h2d_busy_ns, "no byte moves"
    batch_us = p.fault_base_us + p.fault_block_us + p.fault_replay_us
    cost_us = p.launch_us + 10 + p.fault_wake_us + 2 * batch_us + 512 * p.collapse_page_us
    assert gpu.now - began == pytest.approx(cost_us * 1000, rel=1e-3)
    assert [gpu.block(i).host_pages for i in range(3)] == [ALL, 0, ALL]
    again = gpu.counters().fault_batches
    gpu.run_kernel([(1, 1, 0, WRITE)])
    assert gpu.counters().fault_batches == again, "a page collapses once"
    gpu.check()


def test_faults_of_several_small_writes_share_a_batch() -> None:
    gpu = there_twice(20)
    before = gpu.counters().fault_batches
    gpu.run_kernel([(0, 16, 1, WRITE)])
    counters = gpu.counters()
    assert counters.collapsed_pages == 16 * 16
    assert counters.fault_batches - before <= 16, "one a step at most"
    gpu.check()


def test_a_write_to_what_is_absent_brings_it_and_leaves_no_duplicate() -> None:
    gpu = gpu_with(10)
    gpu.on_host(0, 2)
    gpu.read_mostly(0, 2)
    gpu.run_kernel([(0, 1, 0, WRITE)])
    assert (gpu.block(0).gpu_pages, gpu.block(0).host_pages) == (ALL, 0)
    assert gpu.counters().collapsed_pages == 512
    assert gpu.counters().h2d_demand_bytes == BLOCK
    gpu.check()


def test_first_touches_under_the_advice_are_as_without_it() -> None:
    times = []
    for advised in (False, True):
        gpu = gpu_with(10)
        gpu.create(0, 8)
        if advised:
            gpu.read_mostly(0, 8)
        times.append(gpu.run_kernel([(0, 8, 0, WRITE)]))
        assert gpu.counters().collapsed_pages == 0
    assert times[0] == times[1]


def test_a_copy_engines_write_to_a_duplicate_is_dearer_than_a_kernels() -> None:
    took = []
    for kind in ("GPU_KERNEL", "GPU_MEMSET"):
        gpu = there_twice(1)
        took.append(gpu.time_of(gpu.submit(getattr(gpu.lib, kind), [(0, 1, 0, WRITE)])))
        assert gpu.block(0).host_pages == 0
    assert took[1] - took[0] == pytest.approx(2 * gpu.profile.nonreplayable_us * 1000, rel=0.1)


def test_under_the_advice_a_prefetch_to_the_host_cleans_and_frees_nothing() -> None:
    gpu = there_twice(4)
    gpu.run_kernel([(1, 2, 0, WRITE)])
    gpu.evict(0, 4)
    counters = gpu.counters()
    assert (counters.d2h_ahead_bytes, counters.d2h_prefetch_bytes) == (2 * BLOCK, 0)
    assert gpu.resident(0, 4) == [0, 1, 2, 3]
    gpu.left.clear()
    gpu.keep_one(0, 4)
    assert gpu.resident(0, 4) == []
    assert gpu.left == []
    gpu.check()


def test_a_preferred_gpu_keeps_its_copy_when_the_advice_ends_and_writes_are_free_then() -> None:
    gpu = there_twice(4)
    faults = gpu.counters().fault_batches
    gpu.advise(0, 4, gpu.lib.GPU_ADVICE_PREFER_GPU)
    gpu.keep_one(0, 4)
    gpu.advise(0, 4, gpu.lib.GPU_ADVICE_PREFER_NONE)
    assert [gpu.block(i).gpu_pages for i in range(4)] == [ALL] * 4
    gpu.run_kernel([(0, 4, 0, WRITE)])
    assert gpu.counters().fault_batches == faults
    gpu.evict(0, 4)
    assert gpu.counters().d2h_prefetch_bytes == 4 * BLOCK, "its copy was the only one"
    gpu.check()


def test_a_discard_throws_both_copies_away() -> None:
    gpu = there_twice(2)
    gpu.discard(0, 1, gpu.lib.GPU_DISCARD_UNMAP)
    block = gpu.block(0)
    assert (block.gpu_pages, block.host_pages, block.data_pages) == (0, 0, 0)
    gpu.prefetch(0, 1)
    assert gpu.block(0).host_pages == 0, "there was nothing to duplicate"
    gpu.check()


# ---- the call


def test_advice_waits_for_prefetch_calls_and_for_transfers_of_its_blocks() -> None:
    gpu = gpu_with(100)
    gpu.on_host(0, 64)
    call = gpu.ffi.new("struct gpu_prefetch_call *", {"stream": 1, "block_count": 16})
    assert gpu.lib.gpu_prefetch_step(gpu.engine, gpu.now, gpu.hooks, call) == gpu.lib.GPU_OK
    called, complete = call.cost.caller_free_ns, call.cost.complete_ns
    assert gpu.now < called < complete
    cost = gpu.ffi.new("struct gpu_cost *")
    for first, until in ((32, called), (0, complete)):
        assert gpu.lib.gpu_advise(gpu.engine, gpu.now, gpu.hooks, first, 16, 1, cost) == 0
        assert cost.waits_until_ns >= until
        assert cost.waits_until_ns <= until + gpu.profile.advise_call_us * 1000


def test_faults_and_prefetches_wait_behind_advice() -> None:
    gpu = there_twice(32)
    cost = gpu.ffi.new("struct gpu_cost *")
    gpu.create(64, 1)
    ends = gpu.lib.GPU_ADVICE_READ_MOSTLY_ENDS
    assert gpu.lib.gpu_advise(gpu.engine, gpu.now, gpu.hooks, 0, 32, ends, cost) == 0
    until = cost.caller_free_ns
    assert gpu.lib.gpu_call_ns(gpu.engine, gpu.lib.GPU_CALL_PREFETCH, 0) == until
    assert gpu.lib.gpu_call_ns(gpu.engine, gpu.lib.GPU_CALL_LAUNCH, 0) < until
    gpu.kernel([(64, 1)], us=1)
    assert gpu.run() > until


@pytest.mark.parametrize(("first", "count", "advice"), [(0, 8, 0), (0, 8, 7), (0, 0, 1), (4, 8, 1)])
def test_advice_that_makes_no_sense_is_refused_and_changes_nothing(
    first: int, count: int, advice: int
) -> None:
    gpu = gpu_with(10)
    gpu.on_host(0, 8)
    gpu.advise(first, count, advice, expect=gpu.lib.GPU_INVALID)
    gpu.prefetch(0, 8)
    assert [gpu.block(i).host_pages for i in range(8)] == [0] * 8
    assert gpu.counters().errors == (first == 4)
    if first == 4:
        assert gpu.counters().last_error == gpu.lib.GPU_ERROR_COMMAND_ON_FREED


def test_where_nothing_is_under_the_advice_no_time_changes() -> None:
    """After advice has ended, times must equal the times of a GPU without any advice."""
    ends = []
    for advised in (False, True):
        gpu = gpu_with(16)
        gpu.on_host(0, 32)
        if advised:
            gpu.read_mostly(0, 32)
            gpu.keep_one(0, 32)
        began = gpu.now
        for _ in range(2):
            for first in range(0, 32, 8):
                gpu.prefetch(first, 8)
                gpu.kernel([(first, 8, 0, WRITE)], us=50)
        ends.append(gpu.run() - began)
    assert ends[0] == ends[1]


# ---- no byte is lost


class Contents:
    """Tracks the versions of each page, from the model's reports of residency and copies."""

    def __init__(self, gpu: Gpu, count: int) -> None:
        self.gpu, self.count = gpu, count
        self.newest = [[0] * PAGES for _ in range(count)]
        self.host = [[0] * PAGES for _ in range(count)]

    def wrote(self, block: int, pages: int) -> None:
        for page in range(PAGES):
            if pages >> page & 1:
                self.newest[block][page] += 1

    def follow(self) -> None:
        """Applies copies to the host, which carry the newest contents at the last step's end."""
        for block, pages in self.gpu.left:
            for page in range(PAGES):
                if pages >> page & 1:
                    self.host[block][page] = self.newest[block][page]
        self.gpu.left.clear()

    def check(self) -> None:
        for block in range(self.count):
            info = self.gpu.block(block)
            only_gpu = info.gpu_pages & ~info.host_pages
            for page in range(PAGES):
                if not only_gpu >> page & 1:
                    assert self.host[block][page] == self.newest[block][page], (block, page)


@pytest.mark.parametrize("seed", range(6))
def test_whatever_happens_the_newest_contents_of_each_page_are_where_the_model_says(
    seed: int,
) -> None:
    dice = random.Random(seed)
    gpu = gpu_with(12)
    gpu.on_host(0, 24)
    gpu.left.clear()
    contents = Contents(gpu, 24)
    written = 0
    for _ in range(250):
        first = dice.randrange(24)
        count = dice.randrange(1, min(7, 25 - first))
        step = dice.randrange(7)
        if step == 0:
            gpu.read_mostly(first, count)
        elif step == 1:
            gpu.keep_one(first, count)
        elif step == 2:
            gpu.advise(first, count, dice.choice((3, 4)))
        elif step == 3:
            gpu.prefetch(first, count)
        elif step == 4:
            gpu.evict(first, count)
        elif step == 5:
            gpu.run_kernel([(first, count)])
        else:
            # Each block has a step of its own, so that a block evicted in between has new contents.
            for block in range(first, first + count):
                pages = dice.choice((ALL, dice.getrandbits(32) or 1))
                use = {"first_block": block, "block_count": 1, "access": WRITE, "pages": pages}
                write(gpu, use)
                contents.follow()
                contents.wrote(block, pages)
                written += 1
        gpu.run()
        contents.follow()
        contents.check()
        gpu.check()
    assert written > 20
    assert gpu.counters().clean_bytes > 0
    assert gpu.counters().collapsed_pages > 0


def write(gpu: Gpu, use: dict[str, int]) -> None:
    uses = gpu.ffi.new("struct gpu_use[]", [use])
    operation = gpu.ffi.new(
        "struct gpu_operation *",
        {"kind": gpu.lib.GPU_KERNEL, "use_count": 1, "uses": uses, "duration_ns": 1000},
    )
    out = gpu.ffi.new("struct gpu_submitted *")
    assert gpu.lib.gpu_submit(gpu.engine, gpu.now, gpu.hooks, 0, operation, out) == 0
    gpu.run()
