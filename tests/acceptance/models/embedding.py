"""A large embedding table below a small perceptron, with plain SGD on the rows looked up.

The kernels get the table's address and choose the rows, so a launch does not show which rows it
reads. The model shows what pump does without that knowledge.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from acceptance.models import sizes
from acceptance.models.torch_model import device_facts, digest, prepare, wait

RATE = 0.05
HOT_SHARE = 16
"""Half of the look-ups go to the first 1 / HOT_SHARE of the table."""


class Lookups:
    """Chooses the rows of an iteration with a seeded generator on the device, so runs repeat."""

    def __init__(self, shape: sizes.Embedding, seed: int, device: str) -> None:
        self._shape = shape
        self._source = torch.Generator(device).manual_seed(seed + 1)
        self._device = device

    def rows(self, iteration: int) -> Tensor:
        """Returns row numbers, shape [lookups]."""
        shape, half = self._shape, self._shape.lookups // 2
        places = torch.rand(shape.lookups, generator=self._source, device=self._device)
        hot = (places[:half] ** 4 * (shape.rows // HOT_SHARE)).long()
        shard = shape.rows // shape.shards
        cold = (places[half:] * shard).long() + iteration % shape.shards * shard
        return torch.cat((hot, cold)).clamp_(max=shape.rows - 1)


class Recommender:
    """Implements acceptance.models.Model."""

    def __init__(self, shape: sizes.Embedding, seed: int, device: str) -> None:
        prepare(seed)
        self._shape = shape
        self._device = device
        self._lookups = Lookups(shape, seed, device)
        self._samples = shape.lookups // shape.features
        self._table = torch.empty(shape.rows, shape.width, device=device)
        self._table.uniform_(-0.05, 0.05, generator=torch.Generator(device).manual_seed(seed))
        inputs = shape.features * shape.width
        self._perceptron = nn.Sequential(nn.Linear(inputs, 256), nn.ReLU(), nn.Linear(256, 2))
        self._perceptron.to(device)
        self._optimizer = torch.optim.SGD(self._perceptron.parameters(), lr=RATE)
        self._labels = torch.randint(2, (self._samples,)).to(device)
        self._done = 0
        self.facts = {
            "lookups": shape.lookups,
            "cycle": shape.shards,
            "table_bytes": shape.table_bytes,
            "persistent_bytes": shape.table_bytes,
            "precision": "float32",
            **device_facts(device),
        }

    def step(self) -> None:
        rows = self._lookups.rows(self._done)
        self._done += 1
        self._optimizer.zero_grad()
        looked_up = self._table.index_select(0, rows).requires_grad_()
        outputs = self._perceptron(looked_up.view(self._samples, -1))
        nn.functional.cross_entropy(outputs, self._labels).backward()
        assert looked_up.grad is not None
        # Unlike index_add_, adds up gradients of repeated rows in a fixed order.
        self._table.index_put_((rows,), looked_up.grad * -RATE, accumulate=True)
        self._optimizer.step()

    def wait(self) -> None:
        wait(self._device)

    def state_hash(self) -> str:
        self.wait()
        return digest((self._table, *self._perceptron.state_dict().values()))

    def touches(self) -> Sequence[Any]:
        return ()  # the floor cannot know which rows


def build(seed: int, quick: bool, device: str) -> Recommender:
    """Returns the model on `device`; see acceptance.models.build."""
    return Recommender(sizes.embedding(quick), seed, device)
