"""Trainings with different steps, for suites/sim.py's part `kinds` and the tests.

The network has LAYERS layers with weights, two optimiser states for each weight, and activations
that die in the backward pass. Its memory is laid out once, as by a caching allocator, and dead
memory is discarded. Steps end with a wait for the GPU, which is marked.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from pump.model.bounds import BLOCK_BYTES
from pump_lab.sim import program as form
from pump_lab.sim.deaths import worth_kernels
from pump_lab.sim.program import Builder, Program

LAYERS = 48
WEIGHT, STATES, ACTIVATION = 6, 6, 12
"""Blocks of a layer: weights, optimiser states, activations of a whole batch."""
FORTH_MS, BACK_MS, UPDATE_MS = 0.6, 1.2, 0.2
FORTH, BACK, OPTIMISER = 0, 1 << 20, 2 << 20
"""Bases of signatures. A kind of step adds KIND times its number."""
KIND = 1 << 24
SOON = worth_kernels(7 * LAYERS)
"""Least distance that is worth a discard, in kernels of the longest iteration: three times forward
and backward, and the optimiser."""


@dataclass
class Training:
    """Builds the steps. `place(layer)`: number of the activation range that a layer uses."""

    builder: Builder = field(default_factory=Builder)
    place: Callable[[int], int] = lambda layer: layer

    def _activation(self, layer: int, share: float, access: int) -> form.Use:
        blocks = max(1, round(ACTIVATION * share))
        return 2 * LAYERS + self.place(layer), 0, blocks * BLOCK_BYTES, access

    def _weights(self, layer: int, access: int) -> form.Use:
        return layer, 0, WEIGHT * BLOCK_BYTES, access

    def launch(
        self, signature: int, uses: list[form.Use], duration_ms: float, stream: int = 0
    ) -> None:
        self.builder.operation(
            form.KERNEL,
            uses,
            duration_ns=round(duration_ms * 1e6),
            host_ns=8000,
            signature=signature + 1,
            stream=stream,
        )

    def forth(self, kind: int = 0, share: float = 1.0, *, keeps: bool = True) -> None:
        """Runs all layers forward. Unless it `keeps` activations, they are dead at once."""
        for layer in range(LAYERS):
            before = [self._activation(layer - 1, share, form.READ)] if layer else []
            uses = [self._weights(layer, form.READ), *before]
            uses.append(self._activation(layer, share, form.OVERWRITE))
            self.launch(KIND * kind + FORTH + layer, uses, FORTH_MS * share)
            if not keeps and layer:
                self.builder.discard([self._activation(layer - 1, share, form.OVERWRITE)])

    def back(self, kind: int = 0, share: float = 1.0, *, forth_in: int = LAYERS) -> None:
        """Runs all layers backward. `forth_in`: number of kernels until the next forward pass
        begins. Memory that the forward pass uses too soon is not discarded."""
        for layer in reversed(range(LAYERS)):
            uses = [self._weights(layer, form.WRITE), self._activation(layer, share, form.READ)]
            self.launch(KIND * kind + BACK + layer, uses, BACK_MS * share)
            if 2 * layer + forth_in > SOON:
                self.builder.discard([self._activation(layer, share, form.OVERWRITE)])

    def update(self) -> None:
        for layer in range(LAYERS):
            self.update_one(layer)

    def update_one(self, layer: int, stream: int = 0) -> None:
        states = LAYERS + layer, 0, STATES * BLOCK_BYTES, form.WRITE
        uses = [self._weights(layer, form.WRITE), states]
        self.launch(OPTIMISER + layer, uses, UPDATE_MS, stream)

    def step(self, kind: int = 0, share: float = 1.0) -> None:
        self.forth(kind, share)
        self.back(kind, share)
        self.update()
        self.end()

    def end(self) -> None:
        self.builder.sync(mark=True)

    def program(self, name: str, streams: int = 1) -> Program:
        """Returns all steps, after the allocation of their ranges."""
        lengths = [WEIGHT] * LAYERS + [STATES] * LAYERS + [ACTIVATION] * LAYERS
        ranges, blocks = form.ranges_in_a_row([count * BLOCK_BYTES for count in lengths])
        start = Builder()
        for index in range(len(ranges)):
            start.alloc(index)
        start.sync()
        steps, uses = self.builder.tables()
        whole = form.np.concatenate((start.tables()[0], steps))
        return Program(name, whole, uses, ranges, blocks, streams, blocks * BLOCK_BYTES)


# ---- kinds of programs -------------------------------------------------------------------


def same(steps: int) -> Program:
    training = Training()
    for _ in range(steps):
        training.step()
    return training.program("same")


def warm_up(steps: int) -> Program:
    """Returns steps whose first quarter has other sizes; some of these are only forward."""
    training = Training()
    for step in range(steps):
        if step >= steps // 4:
            training.step()
        elif step % 2:
            training.forth(1 + step, 0.4 + 0.1 * step, keeps=False)
            training.end()
        else:
            training.step(1 + step, 0.3 + 0.1 * step)
    return training.program("warm-up")


def accumulation(steps: int) -> Program:
    """Returns groups of three micro-steps, each followed by the optimiser."""
    training = Training()
    for step in range(steps):
        training.forth()
        training.back(forth_in=LAYERS if step % 3 == 2 else 0)
        if step % 3 == 2:
            training.update()
        training.end()
    return training.program("accumulation")


def evaluation(steps: int) -> Program:
    """Returns steps; after every four, two forward passes follow that keep no activations."""
    training = Training()
    for step in range(steps):
        if step % 6 < 4:
            training.step()
        else:
            training.forth(1, keeps=False)
            training.end()
    return training.program("evaluation")


def short_batch(steps: int) -> Program:
    """Returns steps; every fifth step has a third of the data."""
    training = Training()
    for step in range(steps):
        training.step(*((1, 0.35) if step % 5 == 4 else (0, 1.0)))
    return training.program("short last batch")


def lengths(steps: int, seed: int = 5) -> Program:
    """Returns steps with one of four sequence lengths, drawn for each step."""
    dice = random.Random(seed)
    training = Training()
    for _ in range(steps):
        kind = dice.randrange(4)
        training.step(kind, (1.0, 0.75, 0.5, 0.35)[kind])
    return training.program("lengths at random")


def streams(steps: int) -> Program:
    """Returns two networks, each on its own stream, that alternate by layers."""
    training = Training()
    half = LAYERS // 2
    for _ in range(steps):
        for way, duration_ms in ((FORTH, FORTH_MS), (BACK, BACK_MS)):
            for index in range(half) if way == FORTH else reversed(range(half)):
                for stream in range(2):
                    layer = index + half * stream
                    access = form.OVERWRITE if way == FORTH else form.READ
                    activation = 2 * LAYERS + layer, 0, ACTIVATION * BLOCK_BYTES, access
                    uses = [(layer, 0, WEIGHT * BLOCK_BYTES, form.WRITE), activation]
                    training.launch(way + layer, uses, duration_ms, stream)
                    if way == BACK:
                        training.update_one(layer, stream)
        training.end()
    return training.program("two streams", 2)


def moving(steps: int) -> Program:
    """Returns steps whose activations alternate between two layouts."""
    turn = 0
    dice = random.Random(3)
    orders = [dice.sample(range(LAYERS), LAYERS) for _ in range(2)]
    training = Training(place=lambda layer: orders[turn % 2][layer])
    for step in range(steps):
        turn = step
        training.step()
    return training.program("moving tensors")


def wandering(steps: int) -> Program:
    """Returns steps whose activations move in each step, to new places."""
    dice = random.Random(4)
    order = list(range(LAYERS))
    training = Training(place=lambda layer: order[layer])
    for _ in range(steps):
        dice.shuffle(order)
        training.step()
    return training.program("wandering tensors")


def clipping(steps: int) -> Program:
    """Returns steps with an extra launch before the optimiser in every fourth step."""
    training = Training()
    for step in range(steps):
        training.forth()
        training.back()
        if step % 4 == 3:
            uses = [(layer, 0, WEIGHT * BLOCK_BYTES, form.READ) for layer in range(LAYERS // 4)]
            training.launch(3 << 20, uses, 1.0)
        training.update()
        training.end()
    return training.program("a launch each four steps")


def dissolving(steps: int) -> Program:
    """Returns steps that are regular for a third, then launches of random layers, all new."""
    dice = random.Random(6)
    training = Training()
    for step in range(steps):
        if step < steps // 3:
            training.step()
            continue
        for _ in range(3 * LAYERS):
            layer = dice.randrange(LAYERS)
            uses = [(layer + LAYERS * part, 0, 6 * BLOCK_BYTES, form.WRITE) for part in range(3)]
            training.launch(dice.randrange(1 << 40, 1 << 41), uses, BACK_MS)
        training.end()
    return training.program("dissolving")


Make = Callable[[int], Program]
PROGRAMS: tuple[Make, ...] = (
    same,
    warm_up,
    accumulation,
    evaluation,
    short_batch,
    lengths,
    streams,
    moving,
    wandering,
    clipping,
)
