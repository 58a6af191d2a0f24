"""The shipped device profiles fit quickstart's workload: naive paging costs 3x to 8x.

Runs the example's operations on the model of the GPU (tests/support/gpu_model.py), without driver,
shim and daemon.
"""

from __future__ import annotations

import floor
import pytest
from gpu_model import Gpu
from quickstart.run import RATIOS, SPEED

from pump_lab import profiles

BLOCKS = floor.block_numbers(SPEED.model.tensors())
TOTAL_BLOCKS = sum(map(len, BLOCKS.values()))


def iteration_seconds(profile: str, memory_blocks: int) -> float:
    """Returns the modelled time of the third iteration under the driver's own paging."""
    gpu = Gpu(memory_blocks, profile, arena_blocks=TOTAL_BLOCKS)
    sizes = SPEED.model.tensors()
    for blocks in BLOCKS.values():
        if blocks:
            gpu.create(blocks.start, len(blocks))
    operations = list(SPEED.model.initialisation())
    for _ in range(3):
        gpu.run()
        started = gpu.now
        operations += SPEED.model.iteration()
        for operation in operations:
            accesses = (
                (operation.reads, gpu.lib.GPU_READ),
                (operation.overwrites, gpu.lib.GPU_WRITE),
                (operation.updates, 0),
            )
            names = [name for group, _ in accesses for name in group]
            touched = sum(sizes[name] for name in names)
            time_ns = gpu.lib.uvm_profile_kernel_ns(gpu.profile, operation.kernel.encode(), touched)
            uses = [
                (BLOCKS[name].start, len(BLOCKS[name]), 0, access)
                for group, access in accesses
                for name in group
                if BLOCKS[name]
            ]
            gpu.submit(gpu.lib.GPU_KERNEL, uses, duration_ns=time_ns)
        operations = []
    gpu.run()
    return (gpu.now - started) / 1e9


@pytest.mark.parametrize("profile", profiles.names())
def test_naive_paging_of_quickstarts_workload_is_several_times_slower(profile):
    unlimited = iteration_seconds(profile, TOTAL_BLOCKS)
    for ratio in RATIOS:
        naive = iteration_seconds(profile, SPEED.memory_bytes(ratio) // floor.BLOCK_BYTES)
        assert 3.0 <= naive / unlimited <= 8.0


@pytest.mark.parametrize("profile", profiles.names())
def test_quickstarts_floor_leaves_room_for_the_demanded_speed_up(profile):
    unlimited = iteration_seconds(profile, TOTAL_BLOCKS)
    link = float(profiles.load(profile).values["link.copy_h2d_gbps"]) * 1e9
    for ratio in RATIOS:
        memory = SPEED.memory_bytes(ratio)
        naive = iteration_seconds(profile, memory // floor.BLOCK_BYTES)
        repeats = SPEED.iterations - SPEED.warm_up
        least = SPEED.floor_seconds(ratio, repeats * unlimited, link) / repeats
        assert naive / least > 2.0
