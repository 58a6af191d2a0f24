"""Finds what an iteration of a PyTorch model is known to touch, by watching PyTorch's operators.

DESIGN
  The floor must remain a lower bound. An operator reads its tensors whole only if its name is in
  READS (look-ups and views are not). It needs the old contents of its outputs only if it is in
  UPDATES. For any other operator only one thing is certain: afterwards, new contents of its outputs
  may be on the GPU (`floor.may_appear`). A tensor's blocks are the blocks that it covers
  completely, because blocks shared with neighbors could move in smaller pieces. Memory is numbered
  by address, so that the allocator's reuse is visible: a new tensor overwrites the old contents of
  its address. The iteration is assumed to repeat at the same addresses, which is true once the
  allocator has its segments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from floor import BLOCK_BYTES, Touch, may_appear
from torch.utils._python_dispatch import TorchDispatchMode

# These operators read all their tensors, except the arguments in UNREAD.
READS = frozenset(
    {
        *("mm", "bmm", "addmm", "add", "add_", "mul", "mul_", "sub", "div", "div_", "neg", "sum"),
        *("mean", "cat", "clone", "copy_", "_to_copy", "relu", "relu_", "threshold_backward"),
        *("gelu", "gelu_backward", "native_layer_norm", "native_layer_norm_backward"),
        *("convolution", "convolution_backward", "native_batch_norm", "native_batch_norm_backward"),
        *("cudnn_batch_norm", "cudnn_batch_norm_backward", "max_pool2d_with_indices"),
        *("_log_softmax", "_log_softmax_backward_data", "max_pool2d_with_indices_backward"),
        *("_native_batch_norm_legit", "batch_norm_backward", "_batch_norm_with_update"),
        *("_scaled_dot_product_efficient_attention", "_scaled_dot_product_flash_attention"),
        "_scaled_dot_product_efficient_attention_backward",
        "_scaled_dot_product_flash_attention_backward",
        *("_foreach_add_", "_foreach_mul_", "_foreach_lerp_", "_foreach_addcmul_"),
        *("_foreach_addcdiv_", "_foreach_sqrt", "_foreach_div_", "_foreach_add", "_foreach_mul"),
        *("addcmul_", "addcdiv_", "lerp_", "sqrt"),
    }
)
UNREAD = {
    "max_pool2d_with_indices_backward": {"self"},  # uses only its shape
    "convolution_backward": {"weight"},  # not read if the images need no gradient
}
UPDATES = frozenset(name for name in READS if name.endswith("_") and name != "copy_")


def of_iteration(step: Callable[[], None]) -> list[Touch]:
    """Runs one iteration and returns its touches. Blocks are numbered by address / 2 MiB."""
    seen = _Watch()
    with seen:
        step()
    return seen.touches


class _Watch(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.touches: list[Touch] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        self.touches += _touches(func, args, kwargs or {}, result)
        return result


def _touches(func: Any, args: Any, kwargs: Mapping[str, Any], result: Any) -> list[Touch]:
    name = func.overloadpacket.__name__
    arguments = func._schema.arguments
    given = list(zip(arguments, args, strict=False))
    given += [
        (argument, kwargs[argument.name]) for argument in arguments if argument.name in kwargs
    ]
    read: set[int] = set()
    written: set[int] = set()
    memory: set[int] = set()
    for argument, value in given:
        blocks = {block for tensor in _tensors(value) for block in _blocks(tensor)}
        memory |= {tensor.untyped_storage().data_ptr() for tensor in _tensors(value)}
        if argument.alias_info is not None and argument.alias_info.is_write:
            written |= blocks
        elif name in READS and argument.name not in UNREAD.get(name, ()):
            read |= blocks
    new = {
        block
        for tensor in _tensors(result)
        if tensor.untyped_storage().data_ptr() not in memory
        for block in _blocks(tensor)
    }
    if name not in READS:
        return may_appear(new | written)
    updated = written if name in UPDATES else set()
    touch = Touch(tuple(read - updated), tuple(updated), tuple((new | written) - updated - read))
    return [touch] if any((touch.reads, touch.updates, touch.overwrites)) else []


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _tensors(part)


def _blocks(tensor: torch.Tensor) -> range:
    """Returns the blocks that a dense tensor covers completely; none for a tensor with gaps."""
    span = 1 + sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    if tensor.numel() == 0 or span != tensor.numel():
        return range(0)
    begin = tensor.data_ptr()
    end = begin + span * tensor.element_size()
    return range(-(-begin // BLOCK_BYTES), end // BLOCK_BYTES)
