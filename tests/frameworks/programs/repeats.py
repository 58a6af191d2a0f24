"""A training loop that repeats like real ones: micro-steps, evaluations, random sizes.

Dropout and the optimizer's step count change launch parameters in each step; the caching allocator
returns other addresses. Argument: `steady`, `cycle` (two micro-steps, an evaluation in each fourth
step), or `sizes` (one of three sizes at random in each step).
"""

from __future__ import annotations

import random
import sys

import common
import torch
from torch import nn

WIDTH, LENGTH, BATCH, LAYERS, STEPS = 256, 64, 16, 2, 36
MICRO_STEPS, EVALUATE_EACH = 2, 4

kind = sys.argv[1]
torch.manual_seed(4)
dice = random.Random(4)
layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.1, batch_first=True)
model = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False).cuda()
optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)


def loss_of(length: int) -> torch.Tensor:
    return model(torch.randn(BATCH, length, WIDTH).cuda()).square().mean()


for step in range(STEPS):
    for _ in range(MICRO_STEPS if kind == "cycle" else 1):
        length = dice.choice((LENGTH // 2, LENGTH, 2 * LENGTH)) if kind == "sizes" else LENGTH
        loss_of(length).backward()
    optimiser.step()
    optimiser.zero_grad(set_to_none=True)
    if kind == "cycle" and step % EVALUATE_EACH == EVALUATE_EACH - 1:
        model.eval()
        with torch.no_grad():
            loss_of(LENGTH).item()
        model.train()
common.tell(kind=kind)
