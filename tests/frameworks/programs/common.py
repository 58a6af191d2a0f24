"""Shared by the programs of this folder: a training loop, and the output of the results."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

STEPS = 3


def train(
    model: nn.Module,
    loss_of: Callable[[int], torch.Tensor],
    optimiser: torch.optim.Optimizer | None = None,
    steps: int = STEPS,
) -> None:
    """Runs `steps` of forward, backward and optimizer; `loss_of` gets the step's number."""
    optimiser = optimiser or torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(steps):
        loss = loss_of(step)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()


def tell(**found: Any) -> None:
    """Prints values that must be equal with and without pump.

    Copies are real on the virtual GPU in every mode, so their result is real too. Results of
    kernels are not.
    """
    torch.cuda.synchronize()
    sent = torch.randn(1 << 20)
    found["round_trip"] = bool(torch.equal(sent.cuda().cpu(), sent))
    found["allocated_bytes"] = torch.cuda.max_memory_allocated()
    found["reserved_bytes"] = torch.cuda.max_memory_reserved()
    print(json.dumps(found), flush=True)
