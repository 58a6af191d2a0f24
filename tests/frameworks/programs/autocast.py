"""bfloat16 autocast over a model in float32."""

from __future__ import annotations

import common
import torch
from torch import nn

WIDTH, CLASSES, BATCH = 512, 10, 64

torch.manual_seed(5)
model = nn.Sequential(
    *(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CLASSES)),
).cuda()


def loss_of(step: int) -> torch.Tensor:
    with torch.autocast("cuda", torch.bfloat16):
        scores = model(torch.randn(BATCH, WIDTH).cuda())
        assert scores.dtype == torch.bfloat16
        return nn.functional.cross_entropy(scores, torch.full((BATCH,), step).cuda())


common.train(model, loss_of)
common.tell()
