"""Runs the perceptron of examples/train_mlp.py forward only, as inference does.

All its memory except activations is weights that nothing writes. It has the options of train_mlp.py
and does not use pump. The suite lost runs it.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "examples"))

import train_mlp
from mlp import Model, Operation

TRAINED = ("_grad", "_mean", "_square")


class Inference(Model):
    """The model without the tensors that only training needs."""

    def tensors(self) -> dict[str, int]:
        return {
            name: size
            for name, size in super().tensors().items()
            if name == "logits_grad" or not name.endswith((*TRAINED, "_even", "_odd"))
        }

    def initialisation(self) -> Iterator[Operation]:
        for n, (inputs, outputs, _) in enumerate(self.dense):
            count = inputs * outputs
            for kernel, name, more in (
                ("init_uniform", f"weights{n}", (count, n + 1, math.sqrt(6.0 / inputs))),
                ("fill", f"bias{n}", (outputs, 0.0)),
            ):
                yield Operation(kernel, (name, *more), int(more[0]), overwrites=(name,))

    def iteration(self) -> list[Operation]:
        return list(self._forward())


def main() -> int:
    """Runs train_mlp.py with the forward pass only; returns the exit status."""
    parse = train_mlp.parse

    def forward_alone(arguments: list[str] | None = None) -> tuple[argparse.Namespace, Model]:
        options, model = parse(arguments)
        return options, Inference(**asdict(model))

    train_mlp.parse = forward_alone
    return train_mlp.main()


if __name__ == "__main__":
    raise SystemExit(main())
