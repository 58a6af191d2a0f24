"""A multi-layer perceptron with AdamW: for-loop, foreach or fused."""

from __future__ import annotations

import sys

import common
import torch
from torch import nn

WIDTH, CLASSES, BATCH = 1024, 10, 128

kind = sys.argv[1]
torch.manual_seed(1)
model = nn.Sequential(
    *(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.GELU()),
    nn.Linear(WIDTH, CLASSES),
).cuda()
optimiser = torch.optim.AdamW(
    model.parameters(), lr=1e-3, fused=kind == "fused", foreach=kind == "foreach"
)


def loss_of(step: int) -> torch.Tensor:
    values = torch.randn(BATCH, WIDTH).cuda()
    return nn.functional.cross_entropy(model(values), torch.full((BATCH,), step).cuda())


common.train(model, loss_of, optimiser, steps=5)
common.tell(kind=kind)
