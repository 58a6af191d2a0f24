"""PyTorch: its cudaMallocAsync back end allocates each tensor in stream order.

The native back end allocates segments of 2 MiB and more and places tensors in them; pump then
learns their positions. PYTORCH_ALLOC_CONF (or PYTORCH_CUDA_ALLOC_CONF) chooses the back end. In
PyTorch 2.11, cudaMallocAsync lacks memory snapshots and history, and CUDA IPC of tensors (a
DataLoader that sends CUDA tensors). It also lacks the checkpointed pools of CUDA-graph trees
(torch.compile with mode "reduce-overhead" or "max-autotune"). Each use raises a PyTorch error in
the program. An allocation inside a graph's capture is a node of the graph. The driver allocates it
and never pages it, so it counts against the budget. Programs use most of these features without an
environment variable that pump-run could check, so the user has to choose this back end.
IMPOSSIBLE lists the variables that need missing features.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from pump.frameworks.advice import Advice, is_true

NAME = "PyTorch"
NAMES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
# Options of only the native back end; cudaMallocAsync ignores them without a message.
NATIVE_ONLY = (
    "expandable_segments",
    "max_split_size_mb",
    "max_non_split_rounding_mb",
    "roundup_power2_divisions",
    "garbage_collection_threshold",
    "release_lock_on_cudamalloc",
    "graph_capture_record_stream_reuse",
)
# PyTorch's switches (on with "1") that do not work with cudaMallocAsync, and the feature that each
# needs and cudaMallocAsync lacks (PyTorch 2.11).
IMPOSSIBLE = {
    "TORCHINDUCTOR_CUDAGRAPHS": "checkpoints of CUDA graphs' private pools",
    "TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK": "a listener to segments for NCCL",
}


def tensor(environ: Mapping[str, str]) -> Advice:
    """Chooses the back end cudaMallocAsync, and keeps the variable's options that it supports."""
    name, options = _options(environ)
    if options.get("backend", "") == "cudaMallocAsync":
        return Advice()
    conflicts = []
    if options.get("backend"):
        conflicts.append(
            f"{name} selects backend:{options['backend']}, but tensor granularity needs "
            "backend:cudaMallocAsync; remove the backend or use --granularity native"
        )
    if is_true(environ.get("PYTORCH_NO_CUDA_MEMORY_CACHING", "")):
        conflicts.append(
            "PYTORCH_NO_CUDA_MEMORY_CACHING disables PyTorch's allocators, but tensor "
            "granularity needs one; unset it or use --granularity native"
        )
    for switch, needs in IMPOSSIBLE.items():
        if is_true(environ.get(switch, "")):
            conflicts.append(
                f"{switch} needs {needs}, which backend:cudaMallocAsync lacks; unset it or "
                "use --granularity native"
            )
    notes = []
    if ignored := [option for option in NATIVE_ONLY if option in options]:
        notes.append(
            f"{name}: backend:cudaMallocAsync, which tensor granularity selects, ignores "
            f"{', '.join(ignored)}"
        )
    kept = {key: value for key, value in options.items() if key not in NATIVE_ONLY}
    value = _text({"backend": "cudaMallocAsync", **kept})
    # PyTorch before 2.9 knows only the older name, so that one is always set.
    names = [name for name in NAMES if name == NAMES[1] or environ.get(name)]
    return Advice(dict.fromkeys(names, value), conflicts, notes)


def _options(environ: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Returns the variable that PyTorch reads, the newer one first, and its key:value pairs."""
    name = next((name for name in NAMES if environ.get(name)), NAMES[0])
    pairs = re.findall(r"([^:,\[\]\s]+)\s*:\s*(\[[^\]]*\]|[^,]*)", environ.get(name, ""))
    return name, {key: value.strip() for key, value in pairs}


def _text(options: Mapping[str, str]) -> str:
    return ",".join(f"{key}:{value}" for key, value in options.items())
