"""Makes PyTorch layers recompute results in the backward pass instead of keeping them.

    from pump import recompute

    recompute.wrap(model)

Off unless a program calls `wrap`. Each layer becomes a selective checkpoint
(torch.utils.checkpoint). The backward pass recomputes the results of the operators in _PURE from
the layer's input and from the results of all other operators, which are kept. So random numbers are
drawn once, and statistics change once. The same operators run again on the same bits.

The layers are the modules whose class occurs several times in one of the outermost nn.ModuleList
or nn.Sequential objects that repeat a class. A layer is skipped if it changes a tensor in place, or
allocates uninitialized memory, which only hidden code can fill. The first pass of each layer checks
this.

The decision whether layers recompute is made once, after LEARNED_FROM + LEARNED passes. They do if
the GPU's waiting time for memory (`lost_ns` of pump.api.counters) is at least SHORTAGE of the
remaining time.

Under torch.compile nothing changes, because torch.compile itself chooses which results to keep.
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
"""Operators that may run again. Convolutions are missing: cuDNN may choose another algorithm, with
other bits."""

LEARNED_FROM: Final = 3
LEARNED: Final = 8
"""Passes of the model with gradients: the first LEARNED_FROM are skipped, then LEARNED measured."""
SHORTAGE: Final = 1 / 3
"""Layers recompute if the ratio of waiting to other time reaches this value. A forward pass, the
most that can run again, takes at most a third of a step's kernel time."""

log = logging.getLogger(__name__)


class Recompute:
    """The result of `wrap`. on: whether layers recompute; None until decided. reason: the reason
    for `on`. layers: names of the layers. left: names of skipped layers, with the reason."""

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
        self._counting: Any = model.register_forward_pre_hook(self._count_pass)

    def __repr__(self) -> str:
        return (
            f"<Recompute on={self.on}: {self.reason}; {len(self.layers)} layers, "
            f"{len(self.left)} skipped>"
        )

    def remove(self) -> None:
        """Restores all layers. A second call does nothing."""
        self._counting.remove()
        for layer in self._modules.values():
            layer.__dict__.pop("forward", None)
        self._modules = {}

    def _decide(self, on: bool, reason: str) -> None:
        self.on, self.reason = on, reason
        self._counting.remove()
        log.info("%s: %s", "on" if on else "off", reason)

    def _skip_layer(self, name: str, reason: str) -> None:
        self.left[name] = reason
        self.layers.remove(name)
        log.info("skipping %s: %s", name, reason)

    # ---- learning -----------------------------------------------------------------------

    def _count_pass(self, _model: nn.Module, _args: object) -> None:
        if not torch.is_grad_enabled() or torch.compiler.is_compiling():
            return
        self._passes += 1
        if self._passes not in (LEARNED_FROM + 1, LEARNED_FROM + LEARNED + 1):
            return
        try:
            now = api.counters()
        except api.ControlError as error:
            self._decide(False, f"pump does not answer: {error}")
            return
        if not now:
            self._decide(False, "pump does not serve this process")
        elif self._passes > LEARNED_FROM + 1:
            lost, passed = (now[one] - self._before[one] for one in ("lost_ns", "lost_of_ns"))
            self._decide(*_chosen(lost, passed))
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
                self._skip_layer(name, watch.found)
            return result
        if not self.on:
            return forward(*args, **kwargs)
        try:
            return checkpoint(
                forward,
                *args,
                use_reentrant=False,
                preserve_rng_state=False,  # operators that draw random numbers do not run again
                context_fn=functools.partial(create_selective_checkpoint_contexts, _policy),
                **kwargs,
            )
        except _ImpureError as error:
            # The operator that changes a tensor has not run yet, so the layer can start again.
            self._skip_layer(name, str(error))
        return forward(*args, **kwargs)


def wrap(
    model: nn.Module, on: bool | None = None, layers: Iterable[nn.Module] | None = None
) -> Recompute:
    """Lets layers of a model recompute results if the link is too slow to move them.

    `on`: whether layers recompute; None: decide after learning. `layers`: the layers to use instead
    of the repeated ones. Raises ValueError if there are no layers, if a layer is not in the model,
    or if a layer has its own forward.
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
        found._decide(on, "the program chose it")
    return found


def _repeated(module: nn.Module) -> list[nn.Module]:
    """Returns the repeated modules of the outermost lists in which a class occurs several times."""
    members = list(module.children())
    if isinstance(module, nn.ModuleList | nn.Sequential):
        kinds = [type(one) for one in members]
        if len(set(kinds)) < len(kinds):
            return [one for one in members if kinds.count(type(one)) > 1]
    return [layer for member in members for layer in _repeated(member)]


def _chosen(lost_ns: int, passed_ns: int) -> tuple[bool, str]:
    """Returns the decision and its reason. lost_ns: time spent waiting for memory in passed_ns."""
    if passed_ns <= 0:
        return False, "pump measured no lost time"
    lost = min(max(lost_ns, 0), passed_ns)
    shortage = lost / max(passed_ns - lost, 1)
    reason = f"the GPU waited {shortage:.2f} s for memory per second of work"
    return shortage >= SHORTAGE, f"{reason}, measured over {LEARNED} passes"


# ---- operators -----------------------------------------------------------------------------


class _ImpureError(Exception):
    """A layer runs an operator that must not be repeated; the text names the operator."""


class _Watch(TorchDispatchMode):
    """Watches a layer's operators. found: the first reason not to repeat them; "" for none."""

    found: str = ""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.found = self.found or _impure(func)
        return func(*args, **(kwargs or {}))


def _impure(operator: Any) -> str:
    """Returns why a layer with this operator must be skipped; "" if it need not be."""
    schema = getattr(operator, "_schema", None)
    if schema is None:  # a higher-order operator: its result is kept
        return ""
    if schema.is_mutable:
        return f"{operator} changes a tensor in place"
    if schema.name.startswith(("aten::empty", "aten::new_empty")):
        return f"{operator} returns memory that only hidden code can fill"
    return ""


def _policy(_context: Any, operator: Any, *_: Any, **__: Any) -> Any:
    """Returns whether the checkpoint keeps or recomputes the results of an operator."""
    reason = _impure(operator)
    if reason:
        raise _ImpureError(reason)
    again = isinstance(operator, torch._ops.OpOverload) and (
        operator.is_view
        or (operator.namespace == "aten" and operator.overloadpacket.__name__ in _PURE)
    )
    return CheckpointPolicy.PREFER_RECOMPUTE if again else CheckpointPolicy.MUST_SAVE
