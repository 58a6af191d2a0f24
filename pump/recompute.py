"""For PyTorch: layers compute results again in the backward pass instead of keeping them.

    from pump import recompute

    recompute.wrap(model)

Off unless a program asks for it. Each layer becomes a selective checkpoint
(torch.utils.checkpoint): of what it computes, results of the operators listed here are made again
from the layer's input and from the results of all others, which are kept. So random numbers are
drawn once, and statistics change once. What runs again are the same operators on the same bits.

Layers are the modules of one class, if there are several, in the outermost nn.ModuleList or
nn.Sequential objects that have such. A layer that changes a tensor in place, or asks for memory
without contents, which only something unseen can fill, stays as it is: each is watched in its first
pass.

Whether layers do so is chosen once, after LEARNED_FROM + LEARNED passes: where the GPU waited for
memory (`lost_ns` of pump.api.counters) for SHORTAGE of the time that it did not, or longer.

Under torch.compile nothing changes: it has its own choice of what to keep.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from pump import api

__all__ = ["Recompute", "wrap"]

_PURE: Final = frozenset(
    {
        *("abs", "add", "clamp", "clone", "div", "exp", "log", "maximum", "minimum", "mul"),
        *("neg", "pow", "reciprocal", "rsqrt", "rsub", "sqrt", "sub", "_to_copy"),
        *("elu", "erf", "gelu", "hardswish", "leaky_relu", "mish"),
        *("relu", "sigmoid", "silu", "softplus", "tanh"),
        *("eq", "ge", "gt", "le", "lt", "ne", "masked_fill", "where"),
        *("cat", "mean", "sum", "_log_softmax", "_softmax", "_unsafe_view"),
        *("native_group_norm", "native_layer_norm", "_fused_rms_norm"),
        *("mm", "addmm", "bmm", "baddbmm"),
    }
)
"""Convolutions are missing: cuDNN may take another algorithm, with other bits."""

LEARNED_FROM: Final = 3
LEARNED: Final = 8
"""Passes of the model with gradients: so many are left out, and so many are measured."""
SHORTAGE: Final = 1 / 3
"""A forward pass is a third of a step's kernels at the most."""

log = logging.getLogger(__name__)


class Recompute:
    """What `wrap` has done. on: whether layers compute again; None until that is chosen. reason:
    why. layers: their names. left: names of those that stay as they are, and why."""

    def __init__(self, model: nn.Module, layers: Mapping[str, nn.Module]) -> None:
        self.on: bool | None = None
        self.reason = f"not chosen before {LEARNED_FROM + LEARNED} passes"
        self.layers = list(layers)
        self.left: dict[str, str] = {}
        self._watched: set[str] = set()
        self._passes = 0
        self._before: Mapping[str, int] = {}
        self._modules = dict(layers)
        for name, layer in layers.items():
            layer.forward = functools.partial(self._forward, name, layer.forward)
        self._counting: Any = model.register_forward_pre_hook(self._count)

    def __repr__(self) -> str:
        return (
            f"<Recompute on={self.on}: {self.reason}; {len(self.layers)} layers, "
            f"{len(self.left)} skipped>"
        )

    def remove(self) -> None:
        """Make all layers as they were. A second time it does nothing."""
        self._counting.remove()
        for layer in self._modules.values():
            layer.__dict__.pop("forward", None)
        self._modules = {}

    def _choose(self, on: bool, reason: str) -> None:
        self.on, self.reason = on, reason
        self._counting.remove()
        log.info("%s: %s", "on" if on else "off", reason)

    def _leave(self, name: str, reason: str) -> None:
        self.left[name] = reason
        self.layers.remove(name)
        log.info("skipping %s: %s", name, reason)

    # ---- learning -----------------------------------------------------------------------

    def _count(self, _model: nn.Module, _args: object) -> None:
        if not torch.is_grad_enabled() or torch.compiler.is_compiling():
            return
        self._passes += 1
        if self._passes not in (LEARNED_FROM + 1, LEARNED_FROM + LEARNED + 1):
            return
        try:
            now = api.counters()
        except api.ControlError as error:
            self._choose(False, f"pump does not answer: {error}")
            return
        if not now:
            self._choose(False, "pump does not serve this process")
        elif self._passes > LEARNED_FROM + 1:
            lost, passed = (now[one] - self._before[one] for one in ("lost_ns", "lost_of_ns"))
            self._choose(*_chosen(lost, passed))
        else:
            self._before = now

    # ---- layers -------------------------------------------------------------------------

    def _forward(self, name: str, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled() or torch.compiler.is_compiling() or name in self.left:
            return forward(*args, **kwargs)
        if name not in self._watched and self.on is not False:
            self._watched.add(name)
            with _Watch() as watch:
                result = forward(*args, **kwargs)
            if watch.found:
                self._leave(name, watch.found)
            return result
        if not self.on:
            return forward(*args, **kwargs)
        try:
            return checkpoint(
                forward,
                *args,
                use_reentrant=False,
                preserve_rng_state=False,  # what draws random numbers does not run again
                context_fn=functools.partial(create_selective_checkpoint_contexts, _policy),
                **kwargs,
            )
        except _ImpureError as error:
            # What changes a tensor has not run yet, so the layer can begin anew.
            self._leave(name, str(error))
        return forward(*args, **kwargs)


def wrap(
    model: nn.Module, on: bool | None = None, layers: Iterable[nn.Module] | None = None
) -> Recompute:
    """Let layers of a model compute again what the link has no time for.

    on: whether; None: chosen after learning. layers: those to take instead of the repeated ones.
    Raises ValueError where there are no such layers, or where one has a forward of its own.
    """
    names = {module: name for name, module in model.named_modules()}
    chosen = list(_repeated(model) if layers is None else layers)
    if not chosen:
        raise ValueError("the model repeats no layer; name the layers: layers=[...]")
    for layer in chosen:
        if layer not in names:
            raise ValueError(f"a layer of class {type(layer).__name__} is not in the model")
        if "forward" in vars(layer):
            raise ValueError(
                f"layer {names[layer]!r} has its own forward, perhaps from an earlier wrap"
            )
    found = Recompute(model, {names[layer]: layer for layer in chosen})
    if on is not None:
        found._choose(on, "the program chose it")
    return found


def _repeated(module: nn.Module) -> list[nn.Module]:
    """Members of the outermost lists that contain several modules of one class."""
    members = list(module.children())
    if isinstance(module, nn.ModuleList | nn.Sequential):
        kinds = [type(one) for one in members]
        if len(set(kinds)) < len(kinds):
            return [one for one in members if kinds.count(type(one)) > 1]
    return [layer for member in members for layer in _repeated(member)]


def _chosen(lost_ns: int, passed_ns: int) -> tuple[bool, str]:
    """Choice and reason, for what a stretch of time lost by waiting for memory."""
    if passed_ns <= 0:
        return False, "pump measured no lost time"
    lost = min(max(lost_ns, 0), passed_ns)
    shortage = lost / max(passed_ns - lost, 1)
    reason = f"the GPU waited {shortage:.2f} s for memory per second of work"
    return shortage >= SHORTAGE, f"{reason} ({LEARNED} passes)"


# ---- operators -----------------------------------------------------------------------------


class _ImpureError(Exception):
    """A layer does what must not be repeated; the text says what."""


class _Watch(TorchDispatchMode):
    """found: the first thing that must not be repeated."""

    found: str = ""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.found = self.found or _impure(func)
        return func(*args, **(kwargs or {}))


def _impure(operator: Any) -> str:
    """Why a layer with this operator stays as it is; empty where it need not."""
    schema = getattr(operator, "_schema", None)
    if schema is None:  # of a higher order: kept, not repeated
        return ""
    if schema.is_mutable:
        return f"{operator} changes a tensor in place"
    if schema.name.startswith(("aten::empty", "aten::new_empty")):
        return f"{operator} returns memory that only hidden code can fill"
    return ""


def _policy(_context: Any, operator: Any, *_: Any, **__: Any) -> Any:
    """Whether the checkpoint keeps what an operator returns."""
    reason = _impure(operator)
    if reason:
        raise _ImpureError(reason)
    again = isinstance(operator, torch._ops.OpOverload) and (
        operator.is_view
        or (operator.namespace == "aten" and operator.overloadpacket.__name__ in _PURE)
    )
    return CheckpointPolicy.PREFER_RECOMPUTE if again else CheckpointPolicy.MUST_SAVE
