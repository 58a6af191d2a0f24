"""Asks a Deciding policy for transfers, and starts them: for the worker and the simulator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pump.model.client import ClientModel
from pump.model.view import Blocks
from pump.policy.base import Deciding

CarryOut = Callable[[Any, int, Blocks, Blocks], None]
"""Of `struct pump_model *` and a device: block numbers to the host, and to the GPU."""


def decide(policy: Deciding, model: ClientModel, device: int, carry_out: CarryOut) -> None:
    """Ask the policy about a device, and send what it answers."""
    to_gpu, to_host = policy.decide(model.view(device))
    if len(to_host) or len(to_gpu):
        carry_out(model.raw, device, to_host, to_gpu)
