"""Repeats the same products of different shapes and waits for each product: real values.

Uses only cuBLAS, as in products.py. Each factor only permutes the rows, so results are exact.
"""

from __future__ import annotations

import common
import torch

SIDE, FACTORS, ROUNDS, WIDTH = 1024, 12, 12, 32

torch.manual_seed(3)
turns = [torch.eye(SIDE).roll(n + 1, 0) for n in range(FACTORS)]
inputs = [torch.randn(SIDE, WIDTH * (n + 1)) for n in range(FACTORS)]
there = [(turn.cuda(), given.cuda()) for turn, given in zip(turns, inputs, strict=True)]
outputs = [torch.empty_like(given) for _, given in there]
wrong = []
for number in range(ROUNDS):
    for (turn, given), output in zip(there, outputs, strict=True):
        torch.mm(turn, given, out=output)
        torch.cuda.synchronize()
    for n, output in enumerate(outputs):
        if not torch.equal(output.cpu(), inputs[n].roll(n + 1, 0)):
            wrong.append((number, n))
common.tell(right=not wrong, wrong=wrong)
