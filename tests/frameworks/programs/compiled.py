"""torch.compile: Triton kernels, compiled here and launched through Triton's own path."""

from __future__ import annotations

import common
import torch
from torch import nn

WIDTH, BATCH = 256, 64

torch.manual_seed(7)
model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.LayerNorm(WIDTH)).cuda()
compiled = torch.compile(model)


def loss_of(step: int) -> torch.Tensor:
    return compiled(torch.randn(BATCH, WIDTH).cuda()).square().mean()


common.train(model, loss_of, torch.optim.SGD(model.parameters(), lr=0.1))
common.tell()
