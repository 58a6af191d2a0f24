"""A large table of embeddings under a small perceptron, plain SGD on the rows looked up.

The kernels get the table's address and look where they like: a launch does not
tell which rows. It shows what pump does where its knowledge ends.
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
"""The part of the table that half of the look-ups go to is its first 1 / HOT_SHARE."""


class Lookups:
    """Which rows an iteration looks up: from a generator on the device, so the same again."""

    def __init__(self, shape: sizes.Embedding, seed: int, device: str) -> None:
        self._shape = shape
        self._source = torch.Generator(device).manual_seed(seed + 1)
        self._device = device

    def rows(self, iteration: int) -> Tensor:
        """Numbers of rows, shape [lookups]."""
        shape, half = self._shape, self._shape.lookups // 2
        places = torch.rand(shape.lookups, generator=self._source, device=self._device)
        hot = (places[:half] ** 4 * (shape.rows // HOT_SHARE)).long()
        shard = shape.rows // shape.shards
        cold = (places[half:] * shard).long() + iteration % shape.shards * shard
        return torch.cat((hot, cold)).clamp_(max=shape.rows - 1)


class Recommender:
    """See acceptance.models.Model."""

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
        # Adds up rows that were looked up more than once in a fixed order, unlike index_add_.
        self._table.index_put_((rows,), looked_up.grad * -RATE, accumulate=True)
        self._optimizer.step()

    def wait(self) -> None:
        wait(self._device)

    def state_hash(self) -> str:
        self.wait()
        return digest((self._table, *self._perceptron.state_dict().values()))

    def touches(self) -> Sequence[Any]:
        return ()  # which rows, the floor cannot know


def build(seed: int, quick: bool, device: str) -> Recommender:
    """The model on `device`; see acceptance.models.build."""
    return Recommender(sizes.embedding(quick), seed, device)
