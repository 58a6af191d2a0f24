"""Small programs for tests of the simulator."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

from pump.model.bounds import BLOCK_BYTES
from pump_lab import profiles
from pump_lab.sim import program as form
from pump_lab.sim.program import Builder, Program
from pump_lab.sim.simulation import Machine

DATA = Path(__file__).resolve().parents[2] / "lab" / "bench" / "data" / "g10"
MS = 1_000_000


def machine(blocks: int, queue_operations: int = 1024, **settings: str) -> Machine:
    """Returns a GPU with `blocks` blocks; settings with "__" for "." change its profile."""
    changes = {key.replace("__", "."): value for key, value in settings.items()}
    profile = profiles.load("a100-pcie4").changed(changes)
    return Machine(profile, blocks * BLOCK_BYTES, queue_operations)


def made(builder: Builder, lengths_blocks: list[int], name: str = "test") -> Program:
    """Returns the builder's steps, preceded by the allocation of ranges of these lengths."""
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
    """Returns sweeps through buffers in the same order in each round."""
    builder = Builder()
    for _ in range(rounds):
        for index in range(buffers):
            builder.operation(
                form.KERNEL, [whole(index, blocks)], duration_ns=duration_ns, host_ns=4000
            )
    return made(builder, [blocks] * buffers, "cyclic")


def made_up(seed: int, scale: int = 1) -> tuple[Program, Machine]:
    """Returns a random, nearly repeating program on one to three streams, with discards and waits,
    and a GPU that holds a part of its memory. `scale` multiplies the number of blocks."""
    random_ = random.Random(seed)
    lengths = [random_.randrange(2, 40) for _ in range(random_.randrange(6, 40))]
    streams = random_.choice((1, 1, 2, 3))
    builder = Builder()
    iteration: list[tuple[list[form.Use], int, int]] = []  # no duration: a discard
    for _ in range(random_.randrange(5, 40)):
        uses = []
        for index in random_.sample(range(len(lengths)), random_.randrange(1, 4)):
            first = random_.randrange(lengths[index])
            count = random_.randrange(1, lengths[index] - first + 1)
            part = first * scale * BLOCK_BYTES, count * scale * BLOCK_BYTES
            uses.append((index, *part, form.WRITE))
        stream, duration_ns = random_.randrange(streams), random_.randrange(50_000, 4 * MS)
        iteration.append((uses, stream, duration_ns * scale))
        if random_.random() < 0.3:
            index = random_.randrange(len(lengths))
            iteration.append(
                ([whole(index, lengths[index] * scale)], random_.randrange(streams), 0)
            )
    for _ in range(random_.randrange(3, 9)):
        for uses, stream, duration_ns in iteration:
            if random_.random() < 0.01:
                builder.sync()
            elif duration_ns:
                builder.operation(
                    form.KERNEL, uses, stream=stream, duration_ns=duration_ns, host_ns=4000
                )
            else:
                builder.discard(uses, stream)
    share = random_.choice((1.1, 1.5, 2, 4))
    blocks = max(16, int(sum(lengths) * scale / share))
    gpu = machine(blocks, random_.choice((1024, 50, 10)))
    return replace(made(builder, [scale * length for length in lengths]), streams=streams), gpu
