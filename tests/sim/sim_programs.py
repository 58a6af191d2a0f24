"""Small programs for tests of the simulator."""

from __future__ import annotations

from pathlib import Path

from pump import profiles
from pump.model.bounds import BLOCK_BYTES
from pump.sim import program as form
from pump.sim.program import Builder, Program
from pump.sim.simulation import Machine

DATA = Path(__file__).resolve().parents[2] / "benchmarks" / "data" / "g10"
MS = 1_000_000


def machine(blocks: int, queue_operations: int = 1024, **settings: str) -> Machine:
    """A GPU of so many blocks; settings with "__" for "." change its profile."""
    changes = {key.replace("__", "."): value for key, value in settings.items()}
    profile = profiles.load("a100-pcie4").changed(changes)
    return Machine(profile, blocks * BLOCK_BYTES, queue_operations)


def made(builder: Builder, lengths_blocks: list[int], name: str = "test") -> Program:
    """The builder's steps behind the allocation of ranges of so many blocks."""
    ranges, blocks = form.ranges_in_a_row([count * BLOCK_BYTES for count in lengths_blocks])
    start = Builder()
    for index in range(len(ranges)):
        start.alloc(index)
    start.sync()
    steps, uses = builder.tables()
    steps = form.np.concatenate((start.tables()[0], steps))
    steps["mark"][-1] = 1
    return Program(name, steps, uses, ranges, blocks, 1, blocks * BLOCK_BYTES)


def whole(index: int, blocks: int, access: int = form.WRITE) -> form.Use:
    return index, 0, blocks * BLOCK_BYTES, access


def cyclic(buffers: int, blocks: int, rounds: int, duration_ns: int) -> Program:
    """Sweeps through buffers in the same order, again and again."""
    builder = Builder()
    for _ in range(rounds):
        for index in range(buffers):
            builder.operation(
                form.KERNEL, [whole(index, blocks)], duration_ns=duration_ns, host_ns=4000
            )
    return made(builder, [blocks] * buffers, "cyclic")
