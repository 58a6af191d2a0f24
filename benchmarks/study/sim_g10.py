"""The simulator under the configuration of G10's artifact, beside its published times.

Rows of suites/sim.py, for traces with durations as published (NAME.json.*, not the marginal ones).

DESIGN
  GPU memory 40 GiB, 15.754 GB/s each way, no cost of faults, host memory of 128 GiB with flash
  behind it (3.2 GB/s and 12 us to read, 3.0 and 16 to write), what was used longest ago is evicted
  first: of the artifact's configuration. Each tensor has a range of its own. Kernels take 1.2 times
  their published durations: the artifact's own time with unlimited memory is exactly that much
  longer than their sum, in both traces.

  Schedules run on a host that holds everything, under the driver's own order of eviction.

  sim.g10.uvm            naive Unified Memory / kernels alone; ratio: to the published "lru"
  sim.g10.uvm_bytes      to the GPU in an iteration, GiB; ratio: to the published traffic
  sim.g10.uvm_flash      of these from flash
  sim.g10.schedule       G10's schedule carried out by pump's executors on that memory
  sim.g10.gain           uvm / schedule
  sim.g10.schedule_room  the same schedule on a memory that is larger by `room`: what the driver's
                         own eviction costs, of which the schedule does not know
  sim.g10.schedule_peak  most that the schedule itself leaves in memory, of the memory
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from harness import Row, UnavailableError

if TYPE_CHECKING:
    from pump.profiles import Profile
    from pump.sim.simulation import Machine
    from pump.sim.tensors import TensorTrace

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
            *("kernels.launch_us", "uvm.discard_call_us", "uvm.discard_block_us"),
        ),
        "0",
    ),
}
SCALE = 1.2
HOST_BYTES = 128 << 30
FLASH_GBPS = 3.2, 3.0
FLASH_US = 12.0, 16.0
ROOM = 1.02, 1.1, 1.25, 1.5


class Published(NamedTuple):
    """Of example_results of github.com/platformxlab/G10 (overall_performance, overall_traffic):
    times against "ideal"; GiB each way."""

    uvm: float
    uvm_bytes: float
    uvm_flash: float
    scheduled: float


PUBLISHED = {
    "BERT_Base_b256": Published(2.697, 173.1, 0.0, 1.003),
    "VIT_b1280": Published(6.620, 222.4, 23.4, 1.491),
    "ResNet152_b1280": Published(4.165, 277.2, 203.8, 1.016),
}


def rows(folder: Path) -> Iterator[Row]:
    """Rows for each trace. Raises UnavailableError when none of them is in the folder."""
    files = {name: list(folder.glob(f"{name}.json*")) for name in PUBLISHED}
    if not any(files.values()):
        raise UnavailableError(f"none of {', '.join(PUBLISHED)}.json.* is in {folder}")
    for name, found in files.items():
        if found:
            yield from one(name, found[0])


def one(name: str, file: Path) -> Iterator[Row]:
    from study import greedy

    from pump import profiles
    from pump.model.bounds import without_reserve
    from pump.sim import tensors
    from pump.sim.simulation import Machine, run

    profile = profiles.load(PROFILE).changed(SETTINGS)
    trace = scaled(tensors.parse(file.read_bytes(), file.name))
    plain = tensors.program(trace, "unique")
    compute = plain.compute_seconds / tensors.ITERATIONS
    facts: dict[str, Any] = {"trace": trace.name, "simulated": True, "profile_settings": SETTINGS}

    def row(part: str, value: float, unit: str, published: float = 0, **more: float) -> Row:
        if published:
            more |= {"published": published, "ratio": value / published}
        return Row(
            f"sim.g10.{part}", value, unit, "published" if published else None, **more, **facts
        )

    theirs = PUBLISHED[name]
    naive = run(plain, machine_of(profile)).steady
    yield row("uvm", naive.seconds / compute, "x", theirs.uvm)
    yield row("uvm_bytes", naive.h2d_bytes / 2**30, "GiB", theirs.uvm_bytes)
    yield row("uvm_flash", naive.counters["flash_read_bytes"] / 2**30, "GiB", theirs.uvm_flash)
    freed = tensors.program(trace, "unique", discard=True, kernels_free=0)
    budget_bytes = without_reserve(MEMORY_BYTES)
    for room in (1.0, *ROOM):
        schedule = greedy.Greedy(freed, budget_bytes, RATE, RATE)
        larger = Machine(profile, int(MEMORY_BYTES * room), reserve_percent=0)
        seconds = run(freed, larger, schedule).steady.seconds
        part = "schedule" if room == 1.0 else "schedule_room"
        yield row(part, seconds / compute, "x", theirs.scheduled, room=room)
        if room == 1.0:
            yield row("gain", naive.seconds / seconds, "x", theirs.uvm / theirs.scheduled)
    peak_bytes = greedy.peak_bytes(freed, budget_bytes, RATE, RATE)
    yield row("schedule_peak", peak_bytes / MEMORY_BYTES, "x")


def machine_of(profile: Profile) -> Machine:
    """The artifact's machine; profile: with SETTINGS."""
    from pump.sim.host import Host
    from pump.sim.simulation import Machine

    host = Host(HOST_BYTES, FLASH_GBPS, FLASH_US)
    return Machine(profile, MEMORY_BYTES, host=host, least_used=True)


def scaled(trace: TensorTrace) -> TensorTrace:
    """The trace with the artifact's own times of kernels."""
    kernels = [replace(one, duration_ns=round(one.duration_ns * SCALE)) for one in trace.kernels]
    return replace(trace, kernels=kernels)
