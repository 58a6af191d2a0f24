"""Facts about ACCESSED_BY: faults that leave memory on the host, and reads of it in place.

The facts and their sources: docs/uvm.md, "Reads in place".
"""

from __future__ import annotations

import itertools
import math
import random
from typing import Any

import pytest
from gpu_model import BLOCK, Gpu

PAGES = 32
ALL = (1 << PAGES) - 1
READ, WRITE, SORTED = 1, 2, 8
SET, UNSET = 5, 6
GIB = 1 << 30
LINE, REQUEST = 128, 20


def gpu_of(blocks: int, **settings: str) -> Gpu:
    """Returns a GPU with an inward stream (1) and an outward stream (2) for prefetches."""
    gpu = Gpu(blocks, settings=settings, arena_blocks=1 << 16)
    assert [gpu.stream(), gpu.stream()] == [1, 2]
    return gpu


def on_host(count: int, blocks: int = 100, advised: bool = True, **settings: str) -> Gpu:
    """Returns a GPU with `count` blocks on the host, and their advice."""
    gpu = gpu_of(blocks, **settings)
    gpu.on_host(0, count)
    if advised:
        gpu.advise(0, count, SET)
    gpu.run()
    return gpu


def use_of(
    first: int, count: int, *, rows: int = 0, row: int = 0, access: int = READ, pages: int = 0
) -> dict[str, int]:
    return {"first_block": first, "block_count": count, "access": access, "pages": pages,
            "rows": rows, "row_bytes": row}  # fmt: skip


def submit(gpu: Gpu, *uses: dict[str, int], us: float = 0, kind: int = 1) -> int:
    """Submits a kernel with these uses; returns its cookie."""
    gpu._cookie += 1
    array = gpu.ffi.new("struct gpu_use[]", list(uses))
    operation = gpu.ffi.new(
        "struct gpu_operation *",
        {"kind": kind, "use_count": len(uses), "uses": array, "duration_ns": round(us * 1000),
         "cookie": gpu._cookie},
    )  # fmt: skip
    out = gpu.ffi.new("struct gpu_submitted *")
    assert gpu.lib.gpu_submit(gpu.engine, gpu.now, gpu.hooks, 0, operation, out) == 0
    return gpu._cookie


def run(gpu: Gpu, *uses: dict[str, int], us: float = 0, kind: int = 1) -> int:
    """Runs a kernel with these uses; returns its nanoseconds."""
    return gpu.time_of(submit(gpu, *uses, us=us, kind=kind))


def counted(gpu: Gpu) -> dict[str, int]:
    counters = gpu.counters()
    return {name: int(getattr(counters, name)) for name, _ in gpu.ffi.typeof(counters[0]).fields}


def rate(gpu: Gpu) -> float:
    """Returns the rate of aligned reads in place: at most the link's."""
    return float(min(gpu.profile.remote_gbps, gpu.profile.copy_h2d_gbps))


def line_ns(gpu: Gpu) -> float:
    return LINE / rate(gpu)


# ---- what a fault does


@pytest.mark.parametrize("access", [READ, WRITE, READ | WRITE])
def test_what_is_on_the_host_stays_there_and_is_accessed_without_a_fault(access: int) -> None:
    gpu = on_host(8)
    run(gpu, use_of(0, 8, access=access))
    found = counted(gpu)
    assert gpu.resident(0, 8) == []
    assert found["fault_batches"] == 0, "SET maps what is on the host"
    assert found["h2d_remote_bytes"] == (8 * BLOCK if access & READ else 0)
    assert found["d2h_remote_bytes"] == (8 * BLOCK if access & WRITE else 0)
    gpu.check()


def test_without_the_advice_the_same_kernel_migrates() -> None:
    gpu = on_host(8, advised=False)
    run(gpu, use_of(0, 8))
    assert gpu.resident(0, 8) == list(range(8))
    assert counted(gpu)["h2d_remote_bytes"] == 0


def test_first_touches_populate_on_the_gpu_and_evict_for_it() -> None:
    gpu = gpu_of(4)
    gpu.create(0, 8)
    gpu.advise(0, 8, SET)
    run(gpu, use_of(0, 8, access=WRITE))
    found = counted(gpu)
    assert found["populated_bytes"] == 8 * BLOCK
    assert found["evictions_used"] == 4
    assert found["d2h_remote_bytes"] == 0
    gpu.check()


def test_a_prefetch_moves_an_advised_block_and_its_mapping_goes() -> None:
    gpu = on_host(4)
    gpu.prefetch(0, 2)
    gpu.run()
    assert gpu.resident(0, 4) == [0, 1]
    assert [gpu.block(i).mapped_ns != 0 for i in range(4)] == [False, False, True, True]
    run(gpu, use_of(0, 4))
    assert counted(gpu)["h2d_remote_bytes"] == 2 * BLOCK
    gpu.check()


def test_a_prefetch_to_the_host_maps_the_block_there_for_the_gpu() -> None:
    gpu = gpu_of(100)
    gpu.create(0, 4)
    gpu.advise(0, 4, SET)
    run(gpu, use_of(0, 4, access=WRITE))
    faults = counted(gpu)["fault_batches"]
    gpu.evict(0, 4)
    run(gpu, use_of(0, 4))
    assert counted(gpu)["fault_batches"] == faults
    assert counted(gpu)["h2d_remote_bytes"] == 4 * BLOCK
    gpu.check()


@pytest.mark.parametrize("stronger", ["GPU_ADVICE_PREFER_GPU", "GPU_ADVICE_READ_MOSTLY"])
@pytest.mark.parametrize("first", [True, False])
def test_a_preferred_gpu_and_read_mostly_win(stronger: str, first: bool) -> None:
    gpu = on_host(4, advised=False)
    both = [getattr(gpu.lib, stronger), SET]
    for advice in both if first else reversed(both):
        gpu.advise(0, 4, advice)
    run(gpu, use_of(0, 4))
    assert gpu.resident(0, 4) == [0, 1, 2, 3]
    assert counted(gpu)["h2d_remote_bytes"] == 0
    gpu.check()


@pytest.mark.parametrize(
    ("on", "off"),
    [("GPU_ADVICE_PREFER_GPU", "GPU_ADVICE_PREFER_NONE"),
     ("GPU_ADVICE_READ_MOSTLY", "GPU_ADVICE_READ_MOSTLY_ENDS")],
)  # fmt: skip
def test_when_the_stronger_advice_ends_the_mappings_return(on: str, off: str) -> None:
    gpu = on_host(4)
    gpu.advise(0, 4, getattr(gpu.lib, on))
    assert [gpu.block(i).mapped_ns for i in range(4)] == [0] * 4
    gpu.advise(0, 4, getattr(gpu.lib, off))
    run(gpu, use_of(0, 4))
    assert gpu.resident(0, 4) == []
    assert counted(gpu)["fault_batches"] == 0
    gpu.check()


def test_the_end_of_the_advice_removes_no_mapping_and_blocks_return_as_they_are_prefetched() -> (
    None
):
    gpu = on_host(4)
    gpu.advise(0, 4, UNSET)
    run(gpu, use_of(0, 4))
    assert gpu.resident(0, 4) == []
    gpu.prefetch(0, 2)
    gpu.evict(0, 2)
    run(gpu, use_of(0, 4))
    assert gpu.resident(0, 4) == [0, 1], "once it has moved, it faults and migrates"
    gpu.check()


def test_a_discarded_block_gets_no_mapping_and_is_populated_on_the_gpu() -> None:
    gpu = on_host(2)
    gpu.discard(0, 1, gpu.lib.GPU_DISCARD_UNMAP)
    assert [gpu.block(i).mapped_ns != 0 for i in range(2)] == [False, True]
    run(gpu, use_of(0, 2, access=WRITE))
    assert gpu.resident(0, 2) == [0]
    gpu.check()


# ---- evictions


def evicting(advised: bool) -> tuple[Gpu, int]:
    """Returns a full GPU, and the end of the call that evicts its four blocks."""
    gpu = gpu_of(4)
    gpu.create(0, 4)
    gpu.run_kernel([(0, 4, 0, WRITE)])
    if advised:
        gpu.advise(0, 4, SET)
    gpu.on_host(10, 4)
    gpu.prefetch(10, 4)
    return gpu, gpu.now


def test_an_evicted_block_is_mapped_late_one_after_the_other_behind_its_copy() -> None:
    gpu, _ = evicting(advised=True)
    block_ns = gpu.profile.advise_block_us * 1000
    mapped = [gpu.block(i).mapped_ns for i in range(4)]
    left = [gpu.block(i).left_ns for i in range(4)]
    assert all(at >= gone + block_ns for at, gone in zip(mapped, left, strict=True))
    assert all(b - a >= block_ns for a, b in itertools.pairwise(mapped))
    plain, _ = evicting(advised=False)
    assert [plain.block(i).mapped_ns for i in range(4)] == [0] * 4


def test_until_then_an_access_faults_and_maps_the_block_without_moving_it() -> None:
    gpu, _ = evicting(advised=True)
    gpu.lib.block_unmapped(gpu.engine, 3)
    before = counted(gpu)
    cookie = submit(gpu, use_of(3, 1))
    gpu.run()
    after = counted(gpu)
    assert after["remote_blocks"] == before["remote_blocks"] + 1
    assert after["fault_batches"] == before["fault_batches"] + 1
    assert gpu.finished[cookie][0] < gpu.block(3).mapped_ns < gpu.finished[cookie][1]
    assert gpu.resident(0, 4) == []
    run(gpu, use_of(3, 1))
    assert counted(gpu)["fault_batches"] == after["fault_batches"], "one fault maps the block"
    gpu.check()


# ---- blocks on both sides


def mixed(pages: int) -> Gpu:
    """Returns a GPU with these pages of block 0 there, and the others on the host, unmapped."""
    gpu = gpu_of(10)
    gpu.on_host(0, 1)
    run(gpu, use_of(0, 1, pages=pages))
    return gpu


def test_set_maps_the_part_of_a_block_that_is_on_the_host() -> None:
    gpu = mixed(0b1111)
    gpu.advise(0, 1, SET)
    assert gpu.block(0).gpu_pages == 0b1111
    run(gpu, use_of(0, 1))
    assert gpu.block(0).gpu_pages == 0b1111
    assert counted(gpu)["h2d_remote_bytes"] == BLOCK * 28 // 32


@pytest.mark.parametrize(
    ("there", "pulled"),
    [
        (0x0000FFFF, 0),  # half of the block is on the GPU: no group has more than 51 % on the host
        (0x000000FF, 8),  # three quarters are on the host: the whole block goes there
        (0x00000001, 1),
    ],
)
def test_a_fault_in_a_block_on_both_sides_pulls_what_the_drivers_tree_says(
    there: int, pulled: int
) -> None:
    gpu = mixed(there)
    resident = gpu.block(0).gpu_pages
    assert resident == there
    gpu.advise(0, 1, SET)
    gpu.lib.block_unmapped(gpu.engine, 0)
    run(gpu, use_of(0, 1, pages=1 << 31))
    found = counted(gpu)
    assert found["remote_blocks"] == 1
    assert found["d2h_pull_bytes"] == pulled * BLOCK // PAGES
    assert gpu.block(0).gpu_pages == (there if pulled == 0 else 0)
    assert found["h2d_remote_bytes"] == BLOCK // PAGES
    gpu.check()


# ---- the call


def test_set_costs_a_round_trip_for_each_block_on_the_host_and_unset_costs_the_call() -> None:
    gpu = on_host(100, advised=False)
    gpu.prefetch(0, 40)
    gpu.run()
    p, began = gpu.profile, gpu.now
    gpu.advise(0, 100, SET)
    assert gpu.now - began == pytest.approx(
        (p.advise_call_us + 60 * p.advise_block_us) * 1000, abs=2
    )
    began = gpu.now
    gpu.advise(0, 100, SET)
    gpu.advise(0, 100, UNSET)
    assert gpu.now - began == pytest.approx(2 * p.advise_call_us * 1000, abs=2)


def test_faults_and_prefetches_wait_for_set() -> None:
    gpu = on_host(100, advised=False)
    cost = gpu.ffi.new("struct gpu_cost *")
    gpu.create(200, 1)
    assert gpu.lib.gpu_advise(gpu.engine, gpu.now, gpu.hooks, 0, 100, SET, cost) == 0
    until = cost.caller_free_ns
    assert gpu.lib.gpu_call_ns(gpu.engine, gpu.lib.GPU_CALL_PREFETCH, 0) == until
    gpu.kernel([(200, 1)], us=1)
    assert gpu.run() > until


# ---- what accesses in place cost


def test_a_kernel_that_reads_in_place_takes_the_time_of_its_reads_or_its_own() -> None:
    gpu = on_host(64)
    reads_ns = 64 * BLOCK / rate(gpu) + gpu.profile.remote_us * 1000
    assert run(gpu, use_of(0, 64), us=1) == pytest.approx(reads_ns, rel=0.01)
    assert run(gpu, use_of(0, 64), us=1e5) == pytest.approx(1e8, rel=0.001)


@pytest.mark.parametrize(
    ("row", "sectors", "lines"),
    [(32, 1, 1), (64, 2, 1), (128, 4, 1), (188, 6.75, 2.4375), (256, 8, 2), (1024, 32, 8)],
)
def test_rows_cost_their_sectors_and_requests_and_each_read_counts(
    row: int, sectors: float, lines: float
) -> None:
    gpu = on_host(64)
    rows = 10_000_000
    taken = run(gpu, use_of(0, 64, rows=rows, row=row, access=READ | SORTED))
    wire = (sectors * 32 + lines * REQUEST) * LINE / (LINE + REQUEST)
    expected = rows * wire / rate(gpu)
    assert taken == pytest.approx(expected, rel=0.001)
    assert counted(gpu)["h2d_remote_bytes"] == pytest.approx(rows * sectors * 32, rel=1e-6)


def test_reads_in_place_and_reads_of_the_gpus_memory_are_in_proportion_to_blocks() -> None:
    gpu = on_host(64)
    gpu.prefetch(0, 32)
    gpu.run()
    taken = run(gpu, use_of(0, 64, rows=1_000_000, row=128))
    assert taken == pytest.approx(500_000 * line_ns(gpu), rel=0.01)


@pytest.mark.parametrize(("kib", "blocks"), [("2048", 4096), ("64", 4096), ("2048", 1024)])
def test_rows_in_random_order_miss_translations_beyond_their_reach(kib: str, blocks: int) -> None:
    gpu = on_host(blocks, **{"uvm.host_page_kib": kib})
    p, rows = gpu.profile, 2_000_000
    reach = p.remote_reach_gib * GIB * int(kib) / 2048
    misses = max(0.0, 1 - reach / (blocks * BLOCK))
    assert (misses == 0) == (blocks == 1024)
    taken = run(gpu, use_of(0, blocks, rows=rows, row=128))
    assert taken == pytest.approx(rows * (line_ns(gpu) + misses * p.remote_walk_ns), rel=0.01)
    ascending = run(gpu, use_of(0, blocks, rows=rows, row=128, access=READ | SORTED))
    assert ascending == pytest.approx(rows * line_ns(gpu), rel=0.01)


def test_several_uses_of_a_kernel_share_the_reach() -> None:
    gpu = on_host(4096)
    whole = run(gpu, use_of(0, 4096, rows=1_000_000, row=128))
    parts = [use_of(1024 * i, 1024, rows=250_000, row=128) for i in range(4)]
    assert run(gpu, *parts) == pytest.approx(whole, rel=0.01)


def test_prefetches_share_the_inward_link_with_reads_in_place() -> None:
    alone = on_host(512)
    reads_ns = run(alone, use_of(0, 256))
    gpu = on_host(512)
    cookie = submit(gpu, use_of(0, 256))
    gpu.prefetch(256, 256)
    gpu.run()
    start, end = gpu.finished[cookie]
    both_bytes = 256 * BLOCK * (1 / gpu.profile.copy_h2d_gbps + 1 / gpu.profile.prefetch_h2d_gbps)
    assert end - start > 1.3 * reads_ns
    assert gpu.now - start >= 0.99 * both_bytes, "the link does not carry both at once"


def test_reads_that_wait_for_translations_leave_the_link_to_others() -> None:
    gpu = on_host(4096, blocks=8192)
    gpu.create(5000, 1)
    before = counted(gpu)["h2d_busy_ns"]
    rows = 2_000_000
    taken = run(gpu, use_of(0, 4096, rows=rows, row=128))
    busy = counted(gpu)["h2d_busy_ns"] - before
    assert busy == pytest.approx(rows * 128 / gpu.profile.copy_h2d_gbps, rel=0.01)
    assert busy < 0.3 * taken


def test_a_card_without_a_rate_reads_at_the_rate_of_copies() -> None:
    gpu = on_host(4, **{"link.remote_gbps": "0"})
    assert gpu.profile.remote_gbps == gpu.profile.copy_h2d_gbps


# ---- touches by rows


@pytest.mark.parametrize(("rows_of_block", "row"), [(1, 128), (4, 1024), (40, 128), (2000, 128)])
def test_migration_moves_the_pages_that_have_a_row(rows_of_block: int, row: int) -> None:
    gpu = on_host(1000, blocks=1000, advised=False)
    before = counted(gpu)["fault_pages"]
    run(gpu, use_of(0, 1000, rows=1000 * rows_of_block, row=row))
    faults = counted(gpu)["fault_pages"] - before
    hit = 1 - math.exp(-rows_of_block / PAGES)
    if rows_of_block <= 4:  # the tree adds little to pages this far apart
        assert faults == pytest.approx(1000 * PAGES * hit, rel=0.08)
    else:
        assert counted(gpu)["h2d_demand_bytes"] >= 0.97 * 1000 * BLOCK * hit
    gpu.check()


def test_the_second_touch_of_a_row_costs_no_fault_while_its_page_is_there() -> None:
    gpu = on_host(10, advised=False)
    run(gpu, use_of(0, 10, rows=10_000, row=128))
    faults = counted(gpu)["fault_batches"]
    run(gpu, use_of(0, 10, rows=10_000, row=128))
    assert counted(gpu)["fault_batches"] == faults


# ---- nothing changes without the advice, no byte is lost with it


def work(gpu: Gpu, seed: int, advices: tuple[int, ...]) -> None:
    """Makes random calls on 24 blocks, more than the GPU holds, and checks the state."""
    dice = random.Random(seed)
    for _ in range(250):
        first = dice.randrange(24)
        count = dice.randrange(1, min(7, 25 - first))
        step = dice.randrange(6)
        if step == 0 and advices:
            gpu.advise(first, count, dice.choice(advices))
        elif step == 1:
            gpu.prefetch(first, count)
        elif step == 2:
            gpu.evict(first, count)
        elif step == 3:
            run(gpu, use_of(first, count, access=dice.choice((READ, WRITE)),
                            pages=dice.getrandbits(32) or 1))  # fmt: skip
        elif step == 4:
            run(gpu, use_of(first, count, rows=dice.randrange(1, 500), row=128))
        else:
            gpu.run_kernel([(first, count, 0, WRITE)])
        if dice.random() < 0.7:
            gpu.run()
        gpu.check()


@pytest.mark.parametrize("seed", range(8))
def test_whatever_happens_the_state_stays_sound(seed: int) -> None:
    gpu = gpu_of(12)
    gpu.on_host(0, 24)
    work(gpu, seed, (1, 2, 3, 4, SET, SET, SET, UNSET))
    gpu.run()
    gpu.check()
    assert counted(gpu)["h2d_remote_bytes"] > 0
    assert counted(gpu)["errors"] == 0


def test_advice_that_has_ended_leaves_no_difference_once_all_has_moved() -> None:
    ends: list[Any] = []
    for advised in (False, True):
        gpu = gpu_of(16)
        gpu.on_host(0, 32)
        if advised:
            gpu.advise(0, 32, SET)
            gpu.advise(0, 32, UNSET)
        for first in range(0, 32, 8):
            gpu.prefetch(first, 8)
        gpu.evict(0, 32)
        gpu.run()
        began = gpu.now
        for _ in range(2):
            gpu.run_kernel([(0, 32, 0, WRITE)])
        ends.append(gpu.now - began)
    assert ends[0] == ends[1]
