"""Typical mixed precision: autocast to half, GradScaler, clipping, fused AdamW, and a
concatenation."""

from __future__ import annotations

import common
import torch
from torch import nn

WIDTH, LAYERS, BATCH, STEPS = 1024, 4, 4096, 3

torch.manual_seed(9)
layers = [layer for _ in range(LAYERS) for layer in (nn.Linear(WIDTH, WIDTH), nn.GELU())]
model = nn.Sequential(*layers, nn.LayerNorm(WIDTH)).cuda()
optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
scaler = torch.amp.GradScaler("cuda")
for _ in range(STEPS):
    with torch.autocast("cuda", torch.float16):
        halves = [model(torch.randn(BATCH // 2, WIDTH).cuda()) for _ in range(2)]
        loss = torch.cat(halves).float().square().mean()
    scaler.scale(loss).backward()
    scaler.unscale_(optimiser)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimiser)
    scaler.update()
    optimiser.zero_grad(set_to_none=True)
common.tell()
