"""The trainings of scripts/quickstart, their memory and lower bound; scripts/bench uses them, too.

It needs the folder examples on the path.
"""

from __future__ import annotations

from dataclasses import dataclass

import floor
from mlp import Model

RATIOS = (1.5, 2.0)
"""Oversubscription: footprint / memory."""


@dataclass(frozen=True)
class Workload:
    """Options of examples/train_mlp.py. The first `warm_up` iterations are not timed."""

    model: Model
    iterations: int
    warm_up: int

    def options(self) -> list[str]:
        model = self.model
        return [
            *("--width", str(model.width), "--layers", str(model.layers)),
            *("--batch", str(model.batch), "--rate", repr(model.rate)),
            *("--iterations", str(self.iterations), "--warm-up", str(self.warm_up)),
        ]

    @property
    def footprint_bytes(self) -> int:
        """Returns the GPU memory of the model; tensors of a block or more fill whole blocks."""
        block = floor.BLOCK_BYTES
        sizes = self.model.tensors().values()
        return sum(-(-size // block) * block if size >= block else size for size in sizes)

    def memory_bytes(self, ratio: float) -> int:
        """Returns the footprint / `ratio`, in whole blocks."""
        return int(self.footprint_bytes / ratio) // floor.BLOCK_BYTES * floor.BLOCK_BYTES

    def floor_seconds(self, ratio: float, compute_seconds: float, link: float) -> float:
        """Returns the lower bound of the timed iterations in seconds. `link`: bytes per second."""
        blocks = floor.block_numbers(self.model.tensors())
        touches = floor.touches(self.model.iteration(), blocks)
        repeats = self.iterations - self.warm_up
        least = floor.least_traffic(touches, repeats, self.memory_bytes(ratio))
        return floor.floor_seconds(compute_seconds, least, link)


# Small enough for two CPU cores to compute, large enough that every layer has several blocks.
RESULTS = Workload(Model(width=1024, layers=16, batch=16, rate=2e-4), iterations=15, warm_up=2)
# About 4 GiB. A batch of 512 takes an A100 about 0.2 s with kernels as plain as these.
SPEED = Workload(Model(width=4096, layers=16, batch=512, rate=5e-5), iterations=12, warm_up=2)


def link_bytes_per_second(profile: str) -> float:
    """Returns the highest rate of the profile's link to the GPU, in bytes per second."""
    from pump_lab import profiles

    return float(profiles.load(profile).values["link.copy_h2d_gbps"]) * 1e9
