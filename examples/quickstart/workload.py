"""The trainings of scripts/quickstart, their memory and their floor; scripts/bench has them too.

Needs the folder examples on the path, as both have it.
"""

from __future__ import annotations

from dataclasses import dataclass

import floor
from mlp import Model

RATIOS = (1.5, 2.0)
"""Oversubscription: footprint / memory."""


@dataclass(frozen=True)
class Workload:
    """Options of examples/train_mlp.py. `warm_up` of the iterations are not timed."""

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
        """GPU memory of the whole model, in whole blocks where a tensor fills one."""
        block = floor.BLOCK_BYTES
        sizes = self.model.tensors().values()
        return sum(-(-size // block) * block if size >= block else size for size in sizes)

    def memory_bytes(self, ratio: float) -> int:
        """Memory of which the footprint is `ratio` times as much, in whole blocks."""
        return int(self.footprint_bytes / ratio) // floor.BLOCK_BYTES * floor.BLOCK_BYTES

    def floor_seconds(self, ratio: float, compute_seconds: float, link: float) -> float:
        """Floor of the timed iterations; `link` in bytes per second."""
        blocks = floor.block_numbers(self.model.tensors())
        touches = floor.touches(self.model.iteration(), blocks)
        repeats = self.iterations - self.warm_up
        least = floor.least_traffic(touches, repeats, self.memory_bytes(ratio))
        return floor.floor_seconds(compute_seconds, least, link)


# Small enough for two cores to compute, large enough that every layer is some blocks.
RESULTS = Workload(Model(width=1024, layers=16, batch=16, rate=2e-4), iterations=15, warm_up=2)
# About 4 GiB. A batch of 512 takes an A100 about 0.2 s with kernels as plain as these.
SPEED = Workload(Model(width=4096, layers=16, batch=512, rate=5e-5), iterations=12, warm_up=2)


def link_bytes_per_second(profile: str) -> float:
    """Fastest that the profile's link brings bytes to the GPU."""
    from pump import profiles

    return float(profiles.load(profile).values["link.copy_h2d_gbps"]) * 1e9
