"""JAX's CUDA wheel with three allocators: a stream-ordered allocation per buffer (the default of
pump-run), one allocation for the whole program, or a mapping per buffer."""

from __future__ import annotations

import pytest
from framework_runs import MIB, Bench, check_counts, check_same_work

pytestmark = pytest.mark.frameworks

# XLA must not time products or compile kernels for them: the cuBLASLt stand-in has one algorithm.
XLA = {"XLA_FLAGS": "--xla_gpu_autotune_level=0 --xla_gpu_enable_triton_gemm=false"}
MEMORY_BYTES = 256 * MIB
BUDGET_MIB = 56


@pytest.mark.parametrize("allocator", ["default", "vmm"])
def test_jax_trains_with_twice_its_budget(allocator: str, bench: Bench) -> None:
    own = XLA | {"XLA_PYTHON_CLIENT_ALLOCATOR": allocator}
    plain = bench.program("jax_mlp", pump=False, memory_bytes=MEMORY_BYTES, env=own)
    budget = {"PUMP_BUDGET": f"{BUDGET_MIB}MiB"}
    pumped = bench.program("jax_mlp", pump=True, memory_bytes=MEMORY_BYTES, env=own | budget)
    check_same_work(plain, pumped)
    check_counts(pumped)
    assert plain.found["device"] == "gpu" and plain.found["round_trip"] is True
    (before,), (after,) = plain.reports.values(), pumped.reports.values()
    call = "cuMemMap" if allocator == "vmm" else "cuMemAlloc_v2"
    assert before["calls"][call] > 0, "what it allocates by"
    assert after["calls"].get(call, 0) == 0, "the driver's own memory is not used"
    (summary,) = pumped.summaries.values()
    assert summary["shim"]["converted_bytes_peak"] > 2 * BUDGET_MIB * MIB
    assert summary["shim"]["moved_to_host_bytes"] > 0


def test_jax_with_its_defaults_holds_twice_what_the_card_has(bench: Bench) -> None:
    plain = bench.program("jax_arrays", pump=False, env=XLA)
    pumped = bench.program("jax_arrays", pump=True, memory_bytes=MEMORY_BYTES, env=XLA)
    check_same_work(plain, pumped)
    check_counts(pumped)
    assert plain.found["device"] == "gpu"
    assert plain.found["held_bytes"] == 2 * MEMORY_BYTES
    (summary,) = pumped.summaries.values()
    assert summary["shim"]["converted_bytes_peak"] >= 2 * MEMORY_BYTES
