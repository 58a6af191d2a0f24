"""PyTorch's CUDA wheel and packages that use it: each program with and without pump.

With pump the GPU has less memory than the program needs. Both runs must give the GPU the same work,
and pump must count each call.
"""

from __future__ import annotations

import pytest
from framework_runs import MIB, Bench, check_counts, check_same_traffic, check_same_work, smaller
from framework_runs import PROGRAMS as FOLDER

pytestmark = pytest.mark.frameworks

PROGRAMS = [
    ("mlp", "single"),
    ("mlp", "foreach"),
    ("mlp", "fused"),
    ("encoder",),
    ("language_model", "llama"),
    ("language_model", "gpt2"),
    ("convolution",),
    ("autocast",),
    ("checkpointing",),
    ("graph",),
    ("streams",),
    ("loader", "fork"),
    ("loader", "spawn"),
    ("processes",),
]


@pytest.mark.parametrize("program", PROGRAMS, ids="-".join)
def test_the_same_work_reaches_the_gpu_and_pump_counts_all_of_it(
    program: tuple[str, ...], bench: Bench
) -> None:
    plain = bench.program(*program, pump=False)
    pumped = bench.program(*program, pump=True, memory_bytes=smaller(plain))
    check_same_work(plain, pumped)
    check_counts(pumped)
    assert all(value is not False for value in plain.found.values())


@pytest.mark.parametrize("backend", ["cudaMallocAsync", "native"])
def test_both_allocators_of_pytorch_give_the_same_work(backend: str, bench: Bench) -> None:
    """Reserved sizes of stream-ordered pools may differ between pump and the driver."""
    env = {"PYTORCH_ALLOC_CONF": f"backend:{backend}"}
    plain = bench.program("mlp", "foreach", pump=False, env=env)
    pumped = bench.program("mlp", "foreach", pump=True, env=env)
    check_same_traffic(plain, pumped)
    check_counts(pumped)
    asynchronous = sum(
        report["calls"].get("cuMemAllocAsync", 0) for report in plain.reports.values()
    )
    assert (asynchronous > 0) == (backend == "cudaMallocAsync")


@pytest.mark.parametrize("program", [("mlp", "foreach"), ("encoder",)], ids="-".join)
def test_expandable_segments_are_paged(program: tuple[str, ...], bench: Bench) -> None:
    """Mapped memory (cuMemMap) exceeds the GPU's memory; PyTorch reports its blocks one by one."""
    env = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    plain = bench.program(*program, pump=False, env=env)
    pumped = bench.program(*program, pump=True, env=env, memory_bytes=smaller(plain))
    check_same_traffic(plain, pumped)
    check_counts(pumped)
    (report,), (summary,) = pumped.reports.values(), pumped.summaries.values()
    assert sum(r["calls"]["cuMemMap"] for r in plain.reports.values()) > 0
    assert report["calls"].get("cuMemMap", 0) == 0, "the driver's own memory is not used"
    assert summary["shim"]["converted_bytes_peak"] > smaller(plain)
    assert summary["shim"]["block_events"] > 0 and summary["shim"]["ranges_untracked"] == 0
    assert pumped.violations() == 0


def test_a_step_is_captured_and_replayed_with_tensors_as_units(bench: Bench) -> None:
    """During a capture PyTorch allocates graph nodes, which stay with the driver."""
    own = {"PYTORCH_ALLOC_CONF": "backend:cudaMallocAsync"}
    plain = bench.program("graph", pump=False, env=own)
    pumped = bench.program("graph", pump=True, granularity="tensor", memory_bytes=32 * MIB)
    check_same_traffic(plain, pumped)
    (report,), (summary,) = pumped.reports.values(), pumped.summaries.values()
    allocated = [r["calls"]["cuMemAllocAsync"] for r in (*plain.reports.values(), report)]
    assert 0 < allocated[1] < allocated[0], "only those in the capture reach the driver"
    # Copies within a graph's own memory touch no memory that pump pages.
    assert summary["shim"]["operations"] == report["operations"] - report["graphs"]["copies"]
    assert summary["shim"]["graph_operations"] == report["graphs"]["kernels"] > 0
    assert summary["shim"]["graphs_unknown"] == summary["shim"]["ranges_untracked"] == 0
    assert summary["shim"]["moved_to_host_bytes"] > 0


@pytest.mark.parametrize("program", [("language_model", "llama"), ("graph",)], ids="-".join)
def test_the_recording_names_every_kernel_as_often_as_it_ran(
    program: tuple[str, ...], bench: Bench
) -> None:
    pumped = bench.program(*program, pump=True)
    (folder,) = bench.folder.iterdir()
    trace = bench.trace(folder)
    assert {row["name"]: row["count"] for row in trace["kernel_list"]} == pumped.kernels()
    (report,) = pumped.reports.values()
    assert trace["copies"] == report["counters"]["copies"]
    assert trace["operations"] == report["operations"]


def test_compiled_kernels_run_and_are_counted(bench: Bench) -> None:
    """The compiled kernels depend on timings, so the two runs need not launch the same ones."""
    for pump in (False, True):
        outcome = bench.program("compiled", pump=pump)
        triton = [name for name in outcome.kernels() if name.startswith("triton_")]
        assert len(triton) >= 2, outcome.kernels()
        assert outcome.found["round_trip"] is True
    check_counts(outcome)


def test_torchrun_starts_two_processes_that_share_the_gpu(bench: Bench) -> None:
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command = (bench.python, *torchrun, FOLDER / "distributed.py")
    plain = bench.run(*command, pump=False)
    pumped = bench.run(*command, pump=True)
    assert (plain.found["processes"], plain.found["total"]) == (2, 3.0)
    check_same_work(plain, pumped)
    check_counts(pumped)
    assert len([count for count in pumped.seen().values() if count > 0]) == 2, "not the launcher"
