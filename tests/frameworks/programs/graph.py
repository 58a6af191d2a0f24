"""A training step captured as a CUDA graph and replayed."""

from __future__ import annotations

import common
import torch
from torch import nn

WIDTH, BATCH, REPLAYS = 512, 64, 5

torch.manual_seed(8)
model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH)).cuda()
optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, capturable=True)
values = torch.randn(BATCH, WIDTH).cuda()


def step() -> None:
    optimiser.zero_grad(set_to_none=True)
    model(values).square().mean().backward()
    optimiser.step()


side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    for _ in range(3):
        step()
torch.cuda.current_stream().wait_stream(side)
graph = torch.cuda.CUDAGraph()
optimiser.zero_grad(set_to_none=True)
with torch.cuda.graph(graph):
    step()
for _ in range(REPLAYS):
    values.copy_(torch.randn(BATCH, WIDTH))
    graph.replay()
common.tell(replays=REPLAYS)
