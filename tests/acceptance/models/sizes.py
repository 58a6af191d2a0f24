"""Shapes of the models and the memory that they need. Pure arithmetic, no PyTorch.

Footprints are upper estimates that decide, before any allocation, whether a model may run. Budgets
are computed from measured footprints.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

MIB = 1 << 20
FLOAT_BYTES = 4
ALLOCATOR_SHARE = 1.12
"""Reserved over allocated memory of PyTorch's allocator: observed 1.02 to 1.19 (docs/extents.md has
the traffic), and 1.05 to 1.08 for float32 models."""
LIBRARY_BYTES = 96 * MIB
"""Workspaces of cuBLAS (32 MiB on Hopper) and cuDNN, allocated through PyTorch."""


def _footprint(tensors_bytes: float, quick: bool) -> int:
    return int(tensors_bytes * ALLOCATOR_SHARE) + (LIBRARY_BYTES if not quick else 48 * MIB)


@dataclass(frozen=True)
class Gpt:
    """A GPT-2-like decoder: pre-norm blocks, tied head, learned positions, AdamW."""

    layers: int
    width: int
    heads: int
    vocabulary: int
    sequence: int
    batch: int
    quick: bool

    @property
    def tokens(self) -> int:
        return self.batch * self.sequence

    @property
    def parameters(self) -> int:
        block = 12 * self.width**2 + 13 * self.width
        return self.layers * block + (self.vocabulary + self.sequence) * self.width + 2 * self.width

    @property
    def persistent_bytes(self) -> int:
        """Returns the bytes that live across iterations: weights and both moments of AdamW."""
        return 3 * FLOAT_BYTES * self.parameters

    @property
    def activation_bytes(self) -> int:
        """Returns the bytes kept for the backward pass. Each token needs 17 widths per layer. Input
        and result of the first norm take 2, queries, keys, values 3, attention's result and its
        copy 2, second norm 2, both perceptron halves 8. Plus 3 floats per vocabulary entry."""
        a_token = self.layers * 17 * self.width + 3 * self.vocabulary
        return FLOAT_BYTES * self.tokens * a_token

    @property
    def flop(self) -> float:
        """Returns FLOP per iteration: 6 for each parameter and token, and attention's products."""
        attention = 12.0 * self.layers * self.sequence * self.width * self.tokens
        return 6.0 * self.parameters * self.tokens + attention

    @property
    def footprint_bytes(self) -> int:
        gradients = FLOAT_BYTES * self.parameters
        return _footprint(self.persistent_bytes + gradients + self.activation_bytes, self.quick)


def gpt(quick: bool) -> Gpt:
    if quick:
        return Gpt(2, 512, 8, 1024, 64, 2, quick)
    return Gpt(8, 1024, 16, 8192, 512, 4, quick)


@dataclass(frozen=True)
class Convolution:
    """A convolution of ResNet-50 with the batch norm after it. side: of its result, in pixels."""

    inputs: int
    outputs: int
    kernel: int
    stride: int
    side: int


@dataclass(frozen=True)
class ResNet:
    """ResNet-50 (the stride in the 3 x 3 convolution), momentum SGD."""

    batch: int
    image: int
    classes: int
    quick: bool
    stages: ClassVar[tuple[tuple[int, int], ...]] = ((64, 3), (128, 4), (256, 6), (512, 3))
    """(narrow channels, blocks) of each stage; a block's last 1 x 1 has four times the channels."""

    def convolutions(self) -> Iterator[Convolution]:
        """Yields convolutions in forward order; a stage's shortcut is last in its first block."""
        side = self.image // 2
        yield Convolution(3, 64, 7, 2, side)
        side, inputs = side // 2, 64
        for number, (narrow, blocks) in enumerate(self.stages):
            for block in range(blocks):
                stride = 2 if number and block == 0 else 1
                yield Convolution(inputs, narrow, 1, 1, side)
                side //= stride
                yield Convolution(narrow, narrow, 3, stride, side)
                yield Convolution(narrow, 4 * narrow, 1, 1, side)
                if block == 0:
                    yield Convolution(inputs, 4 * narrow, 1, stride, side)
                inputs = 4 * narrow

    @property
    def parameters(self) -> int:
        each = (c.inputs * c.outputs * c.kernel**2 + 2 * c.outputs for c in self.convolutions())
        return sum(each) + 2048 * self.classes + self.classes

    @property
    def persistent_bytes(self) -> int:
        return 2 * FLOAT_BYTES * self.parameters

    @property
    def activation_bytes(self) -> int:
        """Returns the bytes of each convolution's and norm's results; the relu works in place."""
        pixels = sum(c.outputs * c.side**2 for c in self.convolutions())
        pool = 64 * (self.image // 4) ** 2 * 3  # its result, and an 8-byte index for each value
        return FLOAT_BYTES * self.batch * (2 * pixels + pool)

    @property
    def flop(self) -> float:
        """Returns FLOP per iteration: forward once, and twice as much backward."""
        products = sum(c.inputs * c.outputs * c.kernel**2 * c.side**2 for c in self.convolutions())
        return 6.0 * self.batch * products

    @property
    def footprint_bytes(self) -> int:
        gradients = FLOAT_BYTES * self.parameters
        flowing = 3 * FLOAT_BYTES * self.batch * 64 * (self.image // 2) ** 2
        tensors = self.persistent_bytes + gradients + self.activation_bytes + flowing
        return _footprint(tensors, self.quick)


def resnet(quick: bool) -> ResNet:
    return ResNet(2, 64, 10, quick) if quick else ResNet(24, 224, 1000, quick)


@dataclass(frozen=True)
class Embedding:
    """A table of rows. Each iteration looks up and updates some thousands of rows.

    Half of the look-ups go to the first sixteenth of the table. The rest go to one of `shards`
    equal parts, and each iteration uses the next part, as if samples were sorted by time or user.
    """

    rows: int
    width: int
    lookups: int
    features: int
    shards: int
    quick: bool

    @property
    def table_bytes(self) -> int:
        return FLOAT_BYTES * self.rows * self.width

    @property
    def footprint_bytes(self) -> int:
        looked_up = FLOAT_BYTES * self.lookups * self.width
        return _footprint(self.table_bytes + 8 * looked_up, self.quick)


def embedding(quick: bool) -> Embedding:
    if quick:
        return Embedding(1 << 17, 128, 2048, 8, 4, quick)
    return Embedding(5 << 20, 128, 65536, 16, 4, quick)


@dataclass(frozen=True)
class Mlp:
    """The training of examples/train_mlp.py."""

    width: int
    layers: int
    batch: int

    @property
    def footprint_bytes(self) -> int:
        weights = FLOAT_BYTES * self.width**2 * 4 * self.layers
        others = FLOAT_BYTES * self.width * (self.batch * (self.layers + 3) + 4 * 80)
        return int(1.05 * (weights + others)) + 64 * MIB


def mlp(quick: bool) -> Mlp:
    return Mlp(1024, 8, 16) if quick else Mlp(4096, 11, 512)


@dataclass(frozen=True)
class Sweep:
    """The buffers of examples/cyclic_sweep.py. rounds: multiplications and additions on each float;
    they take about as long as the link needs for a third of the buffer."""

    buffers: int
    buffer_bytes: int
    rounds: int

    @property
    def footprint_bytes(self) -> int:
        return self.buffers * self.buffer_bytes


def sweep(quick: bool) -> Sweep:
    return Sweep(12, 8 * MIB, 256) if quick else Sweep(24, 128 * MIB, 2048)
