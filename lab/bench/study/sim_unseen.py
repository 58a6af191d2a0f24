"""Training of networks that no policy was tuned for: made up from a seed, for the suite sim.

DESIGN
  There are several families, so that no result depends on one way of making networks up. A kernel
  takes the time of its bytes at 1.4 TB/s, times a factor for its computation. Sizes are as in
  training with adaptive moments: some GiB of weights and states, tens of GiB of activations.

    `layers`    Layers of random width. Each reads the activation before it, one of four also a much
                older one, and one of three uses a workspace. Backward, each layer reads its
                activations and its weights again. An optimiser with two states for each weight ends
                the iteration.
    `ladder`    Down to ever smaller activations with ever larger weights, and up again. The way up
                reads the activations of the way down: The first ones are needed twice, in the
                middle and last. The optimiser takes weights in groups, a kernel for each.
    `giant`     The same with one kernel for all weights, which are up to 2.5 times as large. It
                needs up to 1.8 times the memory at 1.5x. For three seeds, it has more operands than
                an event carries (PUMP_MAX_EXTENTS).
    `experts`   Layers of a shared part and of experts, with a kernel for each expert's share of the
                tokens. Only the layers' inputs are kept: each layer is computed again before its
                backward pass. Each weight has one state, updated as soon as its gradient is there.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from pump_lab.sim.tensors import TensorTrace

SEEDS = 6
MIB = 1 << 20
BYTES_PER_US = 1.4e6
LEAST_US = 5.0


def traces(family: str, seeds: int = SEEDS) -> list[TensorTrace]:
    """Returns one network for each seed. `family`: a key of FAMILIES."""
    from pump_lab.sim import tensors

    found = []
    for seed in range(seeds):
        make = Making(np.random.default_rng(seed))
        FAMILIES[family](make)
        source = f"{family} {seed}"
        found.append(tensors.parse(json.dumps(make.trace(source)).encode(), source))
    return found


@dataclass
class Making:
    """A trace under construction, in the format that pump_lab.sim.tensors reads."""

    random: np.random.Generator
    tensors: list[dict[str, Any]] = field(default_factory=list)
    kernels: list[dict[str, Any]] = field(default_factory=list)

    def tensor(self, mib: float, persistent: bool = False) -> int:
        name = len(self.tensors)
        length = max(1, round(mib * 4)) * MIB // 4
        self.tensors.append({"id": name, "bytes": length, "persistent": persistent})
        return name

    def kernel(self, name: str, reads: list[int], writes: list[int], most: float) -> None:
        """Adds a kernel. `most`: its time / the time to move its bytes, at most."""
        touched = sum(self.tensors[one]["bytes"] for one in {*reads, *writes})
        work_us = touched / BYTES_PER_US * self.random.uniform(1, most)
        row = {
            "name": name,
            "duration_us": max(LEAST_US, work_us),
            "reads": reads,
            "writes": writes,
        }
        self.kernels.append(row)

    def like(self, tensor: int, persistent: bool = False) -> int:
        return self.tensor(self.tensors[tensor]["bytes"] / MIB, persistent)

    def trace(self, name: str) -> dict[str, Any]:
        return {"model": name, "batch": 1, "tensors": self.tensors, "kernels": self.kernels}


def layers(make: Making) -> None:
    random = make.random
    count = int(random.integers(30, 90))
    widths = np.exp(random.normal(5.0, 0.8, count + 1)).clip(8, 900)  # MiB of activations
    weights = [
        make.tensor(mib, True) for mib in np.exp(random.normal(3.5, 1.0, count)).clip(1, 400)
    ]
    states = [[make.like(one, True) for _ in range(2)] for one in weights]
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
        before, of_weight = make.tensor(widths[i]), make.like(weights[i])
        make.kernel("backward", [gradient, weights[i], activations[i + 1]], [before], 10)
        make.kernel("weights", [gradient, *inputs[i]], [of_weight], 10)
        of_weights.append((i, of_weight))
        gradient = before
    for i, of_weight in reversed(of_weights):
        kept = [weights[i], *states[i]]
        make.kernel("optimiser", [of_weight, *kept], kept, 1)


def ladder(make: Making, weight_most: float = 400, bunch: float = 80) -> None:
    """Makes a ladder. `bunch`: MiB of weights that one kernel of the optimiser takes."""
    random = make.random
    rungs, steps = int(random.integers(3, 6)), int(random.integers(2, 6))
    most, least = random.uniform(500, 1200), random.uniform(4, 16)  # MiB
    shrinks, grows = random.uniform(1.6, 2.5), random.uniform(2, 4)
    down = [rung for rung in range(rungs) for _ in range(steps)]
    done: list[tuple[list[int], int, int]] = []  # a layer's inputs, its weight, its output
    last, left = make.tensor(most), dict[int, int]()
    for place, rung in enumerate([*down, *reversed(down)]):
        used = [last]
        if place >= len(down) and rung in left:
            used.append(left.pop(rung))
        weight = make.tensor(min(weight_most, least * grows**rung * random.uniform(0.5, 2)), True)
        last = make.tensor(most / shrinks**rung)
        make.kernel("forward", [*used, weight], [last], 20)
        done.append((used, weight, last))
        if place < len(down):
            left[rung] = last
    gradient = make.like(last)
    make.kernel("loss", [last], [gradient], 2)
    gradients, of_weights = {last: gradient}, []
    for used, weight, wrote in reversed(done):
        gradient, of_weight = gradients.pop(wrote), make.like(weight)
        make.kernel("weights", [gradient, *used], [of_weight], 20)
        of_weights.append((weight, of_weight))
        for one in used:
            already = [gradients[one]] if one in gradients else []
            gradients[one] = already[0] if already else make.like(one)
            make.kernel("backward", [gradient, weight, wrote, *already], [gradients[one]], 20)
    states = {weight: [make.like(weight, True) for _ in range(2)] for weight, _ in of_weights}
    for some in bunches(make, of_weights, bunch):
        kept = [one for weight, _ in some for one in (weight, *states[weight])]
        make.kernel("optimiser", [*(of_weight for _, of_weight in some), *kept], kept, 1)


def bunches(
    make: Making, of_weights: list[tuple[int, int]], most: float
) -> list[list[tuple[int, int]]]:
    """Returns groups of weights with their gradients for one launch each, of `most` MiB. PyTorch's
    launches take up to 320 pieces of 65,536 elements: 80 MiB."""
    found: list[list[tuple[int, int]]] = []
    room = 0.0
    for pair in of_weights:
        mib = make.tensors[pair[0]]["bytes"] / MIB
        if not found or mib > room:
            found.append([])
            room = most
        found[-1].append(pair)
        room -= mib
    return found


def experts(make: Making) -> None:
    random = make.random
    count, several = int(random.integers(8, 20)), int(random.integers(3, 9))
    width, weight_mib = random.uniform(60, 300), random.uniform(20, 120)
    shared = [make.tensor(weight_mib, True) for _ in range(count)]
    own = [[make.tensor(weight_mib, True) for _ in range(several)] for _ in range(count)]
    shares = [random.dirichlet(np.full(several, 2.0)) * 2 * width for _ in range(count)]
    states = {one: make.like(one, True) for one in (*shared, *(w for some in own for w in some))}

    def forward(i: int, begin: int) -> tuple[int, list[tuple[int, int]], int]:
        middle, after = make.tensor(2 * width), make.tensor(width)
        make.kernel("shared", [begin, shared[i]], [middle], 15)
        parts = []
        for weight, mib in zip(own[i], shares[i], strict=True):
            parts.append((make.tensor(mib), make.tensor(mib)))
            make.kernel("gather", [middle], [parts[-1][0]], 1)
            make.kernel("expert", [parts[-1][0], weight], [parts[-1][1]], 15)
        make.kernel("combine", [begin, *(wrote for _, wrote in parts)], [after], 1)
        return middle, parts, after

    def learn(weight: int, reads: list[int]) -> None:
        gradient, kept = make.like(weight), [weight, states[weight]]
        make.kernel("weights", reads, [gradient], 15)
        make.kernel("optimiser", [gradient, *kept], kept, 1)

    begins = [make.tensor(width)]
    for i in range(count):
        begins.append(forward(i, begins[-1])[2])
    gradient = make.tensor(width)
    make.kernel("loss", [begins[-1]], [gradient], 2)
    for i in reversed(range(count)):
        middle, parts, _ = forward(i, begins[i])
        back, before = make.like(middle), make.tensor(width)
        for number, (weight, (took, wrote)) in enumerate(zip(own[i], parts, strict=True)):
            of_part = make.like(took)
            make.kernel("expert back", [gradient, weight, wrote], [of_part], 15)
            make.kernel("scatter", [of_part, *([back] if number else [])], [back], 1)
            learn(weight, [took, gradient])
        make.kernel("shared back", [back, gradient, shared[i]], [before], 15)
        learn(shared[i], [begins[i], back])
        gradient = before


def giant(make: Making) -> None:
    ladder(make, 1000, math.inf)


FAMILIES = {"layers": layers, "ladder": ladder, "giant": giant, "experts": experts}
