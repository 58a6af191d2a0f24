"""A transformer encoder, forward and backward, with each attention implementation."""

from __future__ import annotations

import common
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

WIDTH, HEADS, LENGTH, BATCH = 256, 4, 64, 8

torch.manual_seed(2)
layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 2 * WIDTH, batch_first=True)
model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).cuda()
ways = [SDPBackend.MATH, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.FLASH_ATTENTION]


def loss_of(step: int) -> torch.Tensor:
    values = torch.randn(BATCH, LENGTH, WIDTH).cuda()
    flash = ways[step] == SDPBackend.FLASH_ATTENTION  # does not support float32
    with sdpa_kernel(ways[step]), torch.autocast("cuda", torch.bfloat16, enabled=flash):
        return model(values).float().square().mean()


common.train(model, loss_of, steps=len(ways))
common.tell(ways=[way.name for way in ways])
