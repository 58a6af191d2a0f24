"""Asks a Deciding policy for transfers, and starts them: for the worker and the simulator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pump.model.client import ClientModel
from pump.model.view import Blocks
from pump.policy.base import Deciding

CarryOut = Callable[[Any, int, Blocks, Blocks], None]
"""Called with `struct pump_model *`, a device, blocks for the host and blocks for the GPU."""


def decide(policy: Deciding, model: ClientModel, device: int, carry_out: CarryOut) -> None:
    """Asks the policy about a device, and carries out its decision."""
    to_gpu, to_host = policy.decide(model.view(device))
    if len(to_host) or len(to_gpu):
        carry_out(model.raw, device, to_host, to_gpu)
