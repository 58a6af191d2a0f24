"""Layers that recompute in the backward pass (pump/recompute.py), compared with normal layers.

The argument selects the part. `cpu`: everything that can be compared on the CPU. `gpu`: only matrix
products, which are real in compute mode. `learn`: the choice after learning.
"""

from __future__ import annotations

import copy
import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

sys.path.append(str(Path(__file__).resolve().parents[3]))

from pump import recompute

WIDTH, LAYERS, BATCH, STEPS = 32, 4, 16, 3


class Block(nn.Module):
    """Norm, products, an activation, random numbers, a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        inside = nn.functional.gelu(self.up(self.norm(values)))
        kept = torch.where(torch.rand_like(inside) > 0.1, inside, 0.0)
        return values + self.down(kept)


class WithStatistics(nn.Module):
    """A batch norm, which counts its passes in place."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.product = nn.BatchNorm1d(WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return self.product(self.norm(values))


class InPlace(nn.Module):
    """Changes the result of a product in place."""

    def __init__(self) -> None:
        super().__init__()
        self.product = nn.Linear(WIDTH, WIDTH)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return self.product(values).relu_()


class Later(nn.Module):
    """Changes a tensor in place once `in_place` is set."""

    in_place = False

    def __init__(self) -> None:
        super().__init__()
        self.product = nn.Linear(WIDTH, WIDTH)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        found = self.product(values).tanh() * 2.0
        return found.add_(1.0) if self.in_place else found + 1.0


class Doubled(nn.Module):
    """Saves nothing of its input."""

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return (values * 2.0).tanh()


class Square(nn.Module):
    """Two products."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = (nn.Linear(width, width, bias=False) for _ in range(2))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(values))


class Counts(TorchDispatchMode):
    """Counts the operators that ran, by name."""

    def __init__(self) -> None:
        super().__init__()
        self.ran: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.ran[func.overloadpacket.__name__] += 1
        return func(*args, **(kwargs or {}))


def stack(kind: Callable[[], nn.Module]) -> nn.Sequential:
    torch.manual_seed(6)
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Sequential(*(kind() for _ in range(LAYERS))))


def trained(
    kind: Callable[[], nn.Module], on: bool | None
) -> tuple[list[torch.Tensor], Counter[str], list[str], dict[str, str]]:
    """Returns losses with parameters and buffers, operators of the last step, recomputing layers,
    and layers left unchanged. on: None trains without pump.recompute."""
    model = stack(kind)
    wrapped = None if on is None else recompute.wrap(model, on)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for step in range(STEPS):
        for layer in model.modules():
            if isinstance(layer, Later):
                layer.in_place = step == STEPS - 1
        given = torch.randn(BATCH, WIDTH)
        with Counts() as counts:
            loss = model(given).square().mean()
            optimiser.zero_grad()
            loss.backward()
        optimiser.step()
        losses.append(loss.detach())
    state = [*losses, *model.state_dict().values()]
    if wrapped is None:
        return state, counts.ran, [], {}
    return state, counts.ran, wrapped.layers, wrapped.left


def on_the_cpu() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for kind in (Block, WithStatistics, InPlace, Later):
        plain, ran, _, _ = trained(kind, None)
        for on in (False, True):
            state, again, layers, left = trained(kind, on)
            found[f"{kind.__name__} {on}"] = {
                "equal": len(state) == len(plain) and all(map(torch.equal, state, plain)),
                "more": {name: n - ran[name] for name, n in again.items() if n > ran[name]},
                "layers": len(layers),
                "left": sorted(set(left.values())),
            }
    found["changed"] = error_of_changed_input()
    found["again"] = errors_of_invalid_wraps()
    return found


def error_of_changed_input() -> str:
    """Returns the error after a change to a layer's input that the layer does not save."""
    model = nn.Sequential(Doubled())
    recompute.wrap(model, True, list(model))
    for _ in range(2):  # the first pass is for observation
        given = torch.randn(BATCH, WIDTH)
        result = model(given.requires_grad_())
        with torch.no_grad():
            given.zero_()
    try:
        result.sum().backward()
    except RuntimeError as error:
        return str(error)
    return ""


def errors_of_invalid_wraps() -> list[str]:
    """Returns the errors of invalid calls of recompute.wrap. After a removal, wrap works again."""
    model, found = stack(Block), []
    wrapped = recompute.wrap(model)
    for other in (model, nn.Linear(1, 1)):
        try:
            recompute.wrap(other)
        except ValueError as error:
            found.append(str(error))
    wrapped.remove()
    recompute.wrap(model, False).remove()
    return found


def on_the_gpu() -> dict[str, Any]:
    """Returns the gradients of a chain of products, and the chain's peak memory."""
    width, rows = 512, 2048
    torch.manual_seed(7)
    first = nn.Sequential(nn.Sequential(*(Square(width) for _ in range(6))))
    given, gradient = torch.randn(rows, width), torch.randn(rows, width)
    states, most = {}, {}
    for on in (False, True):
        model = copy.deepcopy(first).cuda()
        recompute.wrap(model, on)
        values = given.cuda()
        for _ in range(2):
            for parameter in model.parameters():
                parameter.grad = None
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            model(values).backward(gradient.cuda())
        torch.cuda.synchronize()
        most[on] = torch.cuda.max_memory_allocated()
        states[on] = [one.grad.cpu() for one in model.parameters()]
    return {
        "equal": all(map(torch.equal, states[False], states[True])),
        "contents": all(bool(one.abs().max() > 0) for one in states[False]),
        "less_memory": most[True] < most[False],
    }


def learned() -> dict[str, Any]:
    width, rows = 1024, 4096
    model = nn.Sequential(nn.Sequential(*(Square(width) for _ in range(8)))).cuda()
    wrapped = recompute.wrap(model)
    before = wrapped.on
    given = torch.randn(rows, width).cuda()
    for _ in range(recompute.LEARNED_FROM + recompute.LEARNED + 2):
        model(given).square().mean().backward()
        torch.cuda.synchronize()
    return {
        "before": before,
        "on": wrapped.on,
        "reason": wrapped.reason,
        "reserved_bytes": torch.cuda.max_memory_reserved(),
    }


print(json.dumps({"cpu": on_the_cpu, "gpu": on_the_gpu, "learn": learned}[sys.argv[1]]()))
