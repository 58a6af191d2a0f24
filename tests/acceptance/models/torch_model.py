"""Common code of the PyTorch models: the training step, waiting, and the hash of the state."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from acceptance.models import torch_touches


def prepare(seed: int) -> None:
    """Sets the seed and keeps PyTorch's defaults. PUMP_ACCEPTANCE_CUDNN=0 disables cuDNN, which the
    virtual GPU does not have.

    Does not request deterministic algorithms: they are slower than PyTorch's usual ones.
    """
    torch.manual_seed(seed)
    if os.environ.get("PUMP_ACCEPTANCE_CUDNN") == "0":
        torch.backends.cudnn.enabled = False


def wait(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()


def digest(tensors: Iterable[torch.Tensor]) -> str:
    """Returns the SHA-256 of the tensors' bits, in that order."""
    found = hashlib.sha256()
    for tensor in tensors:
        found.update(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def device_facts(device: str) -> dict[str, Any]:
    """Returns names and versions on which measured numbers depend."""
    facts = {"torch": torch.__version__, "device": device}
    if device != "cpu":
        facts["gpu"] = torch.cuda.get_device_name()
        facts["cudnn"] = torch.backends.cudnn.enabled
    return facts


class Trained:
    """Trains a module on a few fixed batches in rotation.

    `batches`: pairs of inputs and labels on the device.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        batches: Sequence[tuple[torch.Tensor, torch.Tensor]],
        device: str,
        facts: dict[str, Any],
    ) -> None:
        self._module = module
        self._optimizer = optimizer
        self._batches = batches
        self._device = device
        self._done = 0
        parameters = sum(p.numel() for p in module.parameters())
        self.facts = {**facts, **device_facts(device), "parameters": parameters}

    def step(self) -> None:
        inputs, labels = self._batches[self._done % len(self._batches)]
        self._done += 1
        self._optimizer.zero_grad()
        outputs = self._module(inputs)
        torch.nn.functional.cross_entropy(outputs, labels).backward()
        self._optimizer.step()

    def wait(self) -> None:
        wait(self._device)

    def state_hash(self) -> str:
        self.wait()
        return digest(self._module.state_dict().values())

    def touches(self) -> Sequence[Any]:
        return torch_touches.of_iteration(self.step)
