"""The training example as plain data: its tensors and the operations of one iteration.

From these lists, train_mlp.py allocates the tensors and launches the operations. The quickstart
computes from them the least number of bytes that an iteration must move. Tests run them on the host
kernels. This module needs no GPU.

The model maps digits of 8 x 8 pixels to `width`, then `layers` times width to width, then width to
10 classes. Each layer has a bias and, except for the last one, relu. The loss is the mean cross
entropy. Adam ends the iteration. All values are float32, labels int32.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

PIXELS = 64
CLASSES = 10
SAMPLES = 1797  # of scikit-learn's digits
ROWS = 8  # of a tile in kernels.cu
MEAN_DECAY = 0.9
SQUARE_DECAY = 0.999


class Late(Enum):
    """Arguments whose values are known only when the iteration is issued."""

    IMAGES = "address of this iteration's images"
    LABELS = "address of this iteration's labels"
    MEAN_SCALE = "Adam's 1 / (1 - mean_decay^t)"
    SQUARE_SCALE = "Adam's 1 / (1 - square_decay^t)"


# A str is the address of the tensor of that name; int and float are 32 bits wide.
Argument = str | int | float | Late


@dataclass(frozen=True)
class Operation:
    """One kernel launch and the tensors it touches.

    `reads` are only read, `updates` are read and written, `overwrites` are written without being
    read.
    """

    kernel: str
    arguments: tuple[Argument, ...]
    items: int
    reads: tuple[str, ...] = ()
    updates: tuple[str, ...] = ()
    overwrites: tuple[str, ...] = ()


@dataclass(frozen=True)
class Model:
    """A perceptron of `layers` hidden width x width layers, trained in batches."""

    width: int
    layers: int
    batch: int
    rate: float

    def __post_init__(self) -> None:
        for name, value in (("width", self.width), ("batch", self.batch)):
            if value < ROWS or value % ROWS:
                raise ValueError(f"{name} is {value}; it must be a multiple of {ROWS}")
        if self.layers < 0:
            raise ValueError(f"layers is {self.layers}; it must not be negative")
        if self.batch > SAMPLES:
            raise ValueError(f"batch is {self.batch}; the data set has {SAMPLES} images")
        if self.width > 32768:
            raise ValueError(f"width is {self.width}; the kernels count up to 32768 squared")
        if not self.rate > 0:
            raise ValueError(f"rate is {self.rate}; it must be above 0")

    @property
    def dense(self) -> list[tuple[int, int, bool]]:
        """Returns (inputs, outputs, relu) of every layer, first to last."""
        hidden = [(self.width, self.width, True)] * self.layers
        return [(PIXELS, self.width, True), *hidden, (self.width, CLASSES, False)]

    @property
    def batches(self) -> int:
        """Returns the number of whole batches in the data set."""
        return SAMPLES // self.batch

    def values(self) -> list[str]:
        """Returns the names of the trained tensors, in the optimizer's order."""
        return [f"{kind}{n}" for n in range(len(self.dense)) for kind in ("weights", "bias")]

    def tensors(self) -> dict[str, int]:
        """Returns the bytes of each tensor, in order of allocation; each has its own allocation."""
        elements = {"images": SAMPLES * PIXELS, "labels": SAMPLES, "loss": self.batch}
        for n, (inputs, outputs, _) in enumerate(self.dense):
            for role in ("", "_grad", "_mean", "_square"):
                elements[f"weights{n}{role}"] = inputs * outputs
                elements[f"bias{n}{role}"] = outputs
            elements[f"y{n}"] = self.batch * outputs
        # Gradients of activations: only two are alive at a time.
        for which in ("even", "odd"):
            elements[f"y_grad_{which}"] = self.batch * self.width
        elements["logits_grad"] = self.batch * CLASSES
        return {name: 4 * count for name, count in elements.items()}

    def initialisation(self) -> Iterator[Operation]:
        """Yields the operations that set weights (He initialization) and zero everything else."""
        sizes = self.tensors()
        for n, (inputs, _, _) in enumerate(self.dense):
            count = sizes[f"weights{n}"] // 4
            bound = math.sqrt(6.0 / inputs)
            yield Operation(
                "init_uniform",
                (f"weights{n}", count, n + 1, bound),
                count,
                overwrites=(f"weights{n}",),
            )
        for value in self.values():
            roles = (
                ("_mean", "_square") if value.startswith("weights") else ("", "_mean", "_square")
            )
            for name in (value + role for role in roles):
                count = sizes[name] // 4
                yield Operation("fill", (name, count, 0.0), count, overwrites=(name,))

    def iteration(self) -> list[Operation]:
        """Returns the operations of one iteration, in order."""
        return [*self._forward(), *self._backward(), *self._adam()]

    def _forward(self) -> Iterator[Operation]:
        x: str | Late = Late.IMAGES
        for n, (inputs, outputs, relu) in enumerate(self.dense):
            weights, bias, y = f"weights{n}", f"bias{n}", f"y{n}"
            yield Operation(
                "dense_forward",
                (y, x, weights, bias, self.batch, inputs, outputs, int(relu)),
                self.batch // ROWS * outputs,
                reads=(_tensor(x), weights, bias),
                overwrites=(y,),
            )
            x = y
        yield Operation(
            "softmax_loss",
            ("loss", "logits_grad", _tensor(x), Late.LABELS, self.batch, CLASSES),
            self.batch,
            reads=(_tensor(x), "labels"),
            overwrites=("loss", "logits_grad"),
        )

    def _backward(self) -> Iterator[Operation]:
        y_grad = "logits_grad"
        for n, (inputs, outputs, _) in reversed(list(enumerate(self.dense))):
            x: str | Late = f"y{n - 1}" if n else Late.IMAGES
            yield Operation(
                "dense_backward_weights",
                (f"weights{n}_grad", x, y_grad, self.batch, inputs, outputs),
                inputs // ROWS * outputs,
                reads=(_tensor(x), y_grad),
                overwrites=(f"weights{n}_grad",),
            )
            yield Operation(
                "dense_backward_bias",
                (f"bias{n}_grad", y_grad, self.batch, outputs),
                outputs,
                reads=(y_grad,),
                overwrites=(f"bias{n}_grad",),
            )
            if n == 0:
                return  # the gradient of the images is not needed, so it is not computed
            x_grad = "y_grad_even" if n % 2 else "y_grad_odd"
            yield Operation(
                "dense_backward_input",
                (x_grad, y_grad, f"weights{n}", x, self.batch, inputs, outputs),
                self.batch // ROWS * inputs,
                reads=(y_grad, f"weights{n}", _tensor(x)),
                overwrites=(x_grad,),
            )
            y_grad = x_grad

    def _adam(self) -> Iterator[Operation]:
        sizes = self.tensors()
        for value in self.values():
            grad, state = f"{value}_grad", (value, f"{value}_mean", f"{value}_square")
            count = sizes[value] // 4
            scales = (MEAN_DECAY, SQUARE_DECAY, Late.MEAN_SCALE, Late.SQUARE_SCALE)
            yield Operation(
                "adam",
                (value, grad, *state[1:], count, self.rate, *scales),
                count,
                reads=(grad,),
                updates=state,
            )


def _tensor(argument: str | Late) -> str:
    """Returns the name of the tensor that a kernel argument points to."""
    if isinstance(argument, Late):
        return argument.name.lower()
    return argument


def adam_scales(step: int) -> tuple[float, float]:
    """Returns (mean_scale, square_scale) of Adam's step, counted from 1."""
    return 1.0 / (1.0 - MEAN_DECAY**step), 1.0 / (1.0 - SQUARE_DECAY**step)
