"""Gradient checkpointing: drops the results of layers and recomputes them in the backward pass."""

from __future__ import annotations

import common
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

WIDTH, LAYERS, BATCH = 512, 4, 64

torch.manual_seed(6)
layers = nn.ModuleList(
    nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
    for _ in range(LAYERS)
).cuda()


def loss_of(step: int) -> torch.Tensor:
    values = torch.randn(BATCH, WIDTH).cuda().requires_grad_()
    for layer in layers:
        values = checkpoint(layer, values, use_reentrant=bool(step % 2))
    return values.square().mean()


common.train(layers, loss_of)
common.tell()
