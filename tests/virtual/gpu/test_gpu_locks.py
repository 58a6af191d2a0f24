"""Locks of the driver, on request: which calls wait while memory migrates."""

from __future__ import annotations

import pytest
from gpu_model import Gpu

SLICE_BLOCKS = 4


def gpu(locks: int) -> Gpu:
    made = Gpu(32)
    assert made.lib.gpu_locks(made.engine, locks) == 0
    made.create(0, 64)
    made.prefetch(0, 16, stream=made.stream())
    return made


def leave(g: Gpu, context: int = 0) -> int:
    """Begins to evict a slice; returns the time at which the call ends."""
    call = g.ffi.new(
        "struct gpu_prefetch_call *",
        {"stream": g.stream(), "block_count": SLICE_BLOCKS, "to_host": 1, "context": context},
    )
    assert g.lib.gpu_prefetch_step(g.engine, g.now, g.hooks, call) == g.lib.GPU_OK
    return int(call.cost.caller_free_ns)


def map_memory(g: Gpu, us: int = 10) -> int:
    return int(g.lib.gpu_map_memory(g.engine, g.now, g.hooks, us * 1000))


@pytest.mark.parametrize("locks", [0, 1, 2, 3])
def test_a_launch_waits_for_a_prefetch_to_the_host_under_the_contexts_lock(locks: int) -> None:
    g = gpu(locks)
    until = leave(g)
    assert (g.lib.gpu_call_ns(g.engine, g.lib.GPU_CALL_LAUNCH, 0) == until) == (locks & 1 == 1)


@pytest.mark.parametrize("call", ["LAUNCH", "PREFETCH"])
def test_each_context_has_a_lock_of_its_own(call: str) -> None:
    g = gpu(3)
    until = leave(g, context=1)
    kind = getattr(g.lib, f"GPU_CALL_{call}")
    assert [g.lib.gpu_call_ns(g.engine, kind, context) for context in range(3)] == [0, until, 0]


def test_a_prefetch_of_a_context_beyond_the_last_is_refused() -> None:
    g = gpu(1)
    wrong = {"stream": 0, "block_count": 1, "context": g.lib.GPU_LOCK_CONTEXTS}
    call = g.ffi.new("struct gpu_prefetch_call *", wrong)
    assert g.lib.gpu_prefetch_step(g.engine, g.now, g.hooks, call) == g.lib.GPU_INVALID


@pytest.mark.parametrize("locks", [0, 1, 2, 3])
def test_mapping_memory_waits_for_migrations_under_way(locks: int) -> None:
    g = gpu(locks)
    until = leave(g)
    expected = until if locks & 2 else g.now
    assert map_memory(g) == expected + 10_000


def test_what_would_read_the_address_space_waits_behind_a_writer_that_waits() -> None:
    g = gpu(2)
    leave(g)
    mapped = map_memory(g)
    assert g.lib.gpu_call_ns(g.engine, g.lib.GPU_CALL_PREFETCH, 0) == mapped
    faulting = g.kernel([(32, 4)], us=1)
    g.run()
    assert g.finished[faulting][1] > mapped


def test_faults_wait_for_no_reader() -> None:
    ends = []
    for locks in (0, 2):
        g = gpu(locks)
        leave(g)
        faulting = g.kernel([(32, 4)], us=1)
        g.run()
        ends.append(g.finished[faulting][1])
    assert ends[0] == ends[1]


def test_mapping_memory_waits_for_faults_under_way() -> None:
    g = gpu(2)
    g.kernel([(32, 4)], us=1)
    g.advance(g.now + 10_000)
    assert map_memory(g) > g.now + 20_000
