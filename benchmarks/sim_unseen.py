"""Training of networks that nobody tuned a policy for: made up from a seed, for suite_sim.

DESIGN
  Layers of random width; each reads the activation before it, one of four a much older one as
  well, and one of three uses a workspace. Backwards each layer reads its activations and its
  weights again; an optimiser with two states a weight ends the iteration. A kernel takes what
  its bytes need at 1.4 TB/s, times what it computes on them: 1 to 10. Sizes as in training
  with adaptive moments: some GiB of weights and states, tens of GiB of activations.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from pump.sim.tensors import TensorTrace

SEEDS = 6
MIB = 1 << 20
BYTES_PER_US = 1.4e6
LEAST_US = 5.0


def traces(seeds: int = SEEDS) -> list[TensorTrace]:
    """One network for each seed."""
    from pump.sim import tensors

    found = []
    for seed in range(seeds):
        source = f"made up, seed {seed}"
        found.append(tensors.parse(json.dumps(network(seed)).encode(), source))
    return found


@dataclass
class Making:
    """A trace in the making, in the format that pump/sim/tensors.py reads."""

    random: np.random.Generator
    tensors: list[dict[str, Any]] = field(default_factory=list)
    kernels: list[dict[str, Any]] = field(default_factory=list)

    def tensor(self, mib: float, persistent: bool = False) -> int:
        name = len(self.tensors)
        length = max(1, round(mib * 4)) * MIB // 4
        self.tensors.append({"id": name, "bytes": length, "persistent": persistent})
        return name

    def kernel(self, name: str, reads: list[int], writes: list[int], most: float) -> None:
        """`most`: times that of moving its bytes, at most."""
        touched = sum(self.tensors[one]["bytes"] for one in {*reads, *writes})
        work_us = touched / BYTES_PER_US * self.random.uniform(1, most)
        row = {
            "name": name,
            "duration_us": max(LEAST_US, work_us),
            "reads": reads,
            "writes": writes,
        }
        self.kernels.append(row)


def network(seed: int) -> dict[str, Any]:
    """One training iteration."""
    random = np.random.default_rng(seed)
    make = Making(random)
    count = int(random.integers(30, 90))
    widths = np.exp(random.normal(5.0, 0.8, count + 1)).clip(8, 900)  # MiB of activations
    weights = [
        make.tensor(mib, True) for mib in np.exp(random.normal(3.5, 1.0, count)).clip(1, 400)
    ]
    states = [[make.tensor(size_of(make, one), True) for _ in range(2)] for one in weights]
    activations = [make.tensor(widths[0])]
    inputs = []
    for i in range(count):
        used = [activations[-1]]
        if len(activations) > 3 and random.random() < 0.25:
            used.append(activations[int(random.integers(0, len(activations) - 2))])
        activations.append(make.tensor(widths[i + 1]))
        workspace = [make.tensor(widths[i] / 2)] if random.random() < 1 / 3 else []
        make.kernel("forward", [*used, weights[i]], [activations[-1], *workspace], 10)
        inputs.append(used)
    gradient = make.tensor(widths[count])
    make.kernel("loss", [activations[-1]], [gradient], 2)
    of_weights = []
    for i in reversed(range(count)):
        before, of_weight = make.tensor(widths[i]), make.tensor(size_of(make, weights[i]))
        make.kernel("backward", [gradient, weights[i], activations[i + 1]], [before], 10)
        make.kernel("weights", [gradient, *inputs[i]], [of_weight], 10)
        of_weights.append((i, of_weight))
        gradient = before
    for i, of_weight in reversed(of_weights):
        kept = [weights[i], *states[i]]
        make.kernel("optimiser", [of_weight, *kept], kept, 1)
    return {
        "model": f"made up {seed}",
        "batch": 1,
        "tensors": make.tensors,
        "kernels": make.kernels,
    }


def size_of(make: Making, tensor: int) -> float:
    """MiB."""
    return float(make.tensors[tensor]["bytes"] / MIB)
