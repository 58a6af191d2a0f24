"""The simulator under the configuration of G10's artifact, beside its published times.

Rows of suite_sim, for traces with durations as published (NAME.json.*, not the marginal ones).

DESIGN
  GPU memory 40 GiB, 15.754 GB/s each way, no cost of faults: of the artifact's configuration.
  Each tensor has a range of its own. Host memory without a limit: the artifact keeps 128 GB
  and flash behind it, which matters where more than that is evicted.

  sim.g10.uvm       naive Unified Memory / kernels alone; ratio: to the published "lru"
  sim.g10.uvm_bytes to the GPU in an iteration, GiB; ratio: to the published traffic
  sim.g10.plan      G10's schedule carried out by pump's executors on that memory
  sim.g10.plan_room the same schedule where half as much memory again lies idle: what the
                    driver's own eviction, which the schedule does not know of, costs
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness import Row, UnavailableError

PROFILE = "a100-pcie4"
MEMORY_BYTES = 40 << 30
RATE = 15.754
SETTINGS = {
    **dict.fromkeys(
        (
            *("link.prefetch_h2d_gbps", "link.copy_h2d_gbps", "link.copy_d2h_gbps"),
            "link.demand_gbps",
        ),
        str(RATE),
    ),
    "link.duplex_factor": "1",
    **dict.fromkeys(
        (
            *("uvm.fault_base_us", "uvm.fault_replay_us", "uvm.fault_block_us"),
            *("uvm.fault_page_us", "uvm.evict_us", "uvm.cpu_pte_us", "uvm.cpu_unmap_us"),
            *("uvm.host_alloc_us", "uvm.prefetch_call_us", "uvm.prefetch_block_us"),
            "kernels.launch_us",
        ),
        "0",
    ),
}
PUBLISHED = {
    "BERT_Base_b256": (2.697, 173.1, 1.003),
    "VIT_b1280": (6.620, 222.4, 1.491),
}
"""Time of "lru" against "ideal", GiB that it moves each way, and time of G10: example_results of
github.com/platformxlab/G10 (overall_performance, overall_traffic)."""


def rows(folder: Path) -> Iterator[Row]:
    """Four rows for each trace. Raises UnavailableError when none of them is in the folder."""
    files = {name: list(folder.glob(f"{name}.json*")) for name in PUBLISHED}
    if not any(files.values()):
        raise UnavailableError(f"none of {', '.join(PUBLISHED)}.json.* is in {folder}")
    for name, found in files.items():
        if found:
            yield from one(name, found[0])


def one(name: str, file: Path) -> Iterator[Row]:
    from pump import profiles
    from pump.sim import tensors
    from pump.sim.greedy import Greedy
    from pump.sim.simulation import Machine, run

    profile = profiles.load(PROFILE).changed(SETTINGS)
    trace = tensors.parse(file.read_bytes(), file.name)
    plain = tensors.program(trace, "unique")
    compute = plain.compute_seconds / tensors.ITERATIONS
    uvm, moved, plan = PUBLISHED[name]
    facts: dict[str, Any] = {"trace": trace.name, "simulated": True, "profile_settings": SETTINGS}

    def row(part: str, value: float, unit: str, published: float) -> Row:
        more = {"published": published, "ratio": value / published}
        return Row(f"sim.g10.{part}", value, unit, "published", **more, **facts)

    naive = run(plain, Machine(profile, MEMORY_BYTES)).steady
    yield row("uvm", naive.seconds / compute, "x", uvm)
    yield row("uvm_bytes", naive.h2d_bytes / 2**30, "GiB", moved)
    freed = tensors.program(trace, "unique", discard=True, kernels_free=0)
    for part, memory_bytes in (("plan", MEMORY_BYTES), ("plan_room", MEMORY_BYTES * 3 // 2)):
        schedule = Greedy(freed, MEMORY_BYTES // 100 * 97, RATE, RATE)
        outcome = run(freed, Machine(profile, memory_bytes), schedule, reserve=False)
        yield row(part, outcome.steady.seconds / compute, "x", plan)
