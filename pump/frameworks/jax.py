"""JAX: XLA's cuda_async allocator allocates each buffer in stream order.

The default one (bfc) allocates three quarters of the GPU in one piece and is out of memory
beyond, however much pump could page. cuda_async has no such bound; it would fill its pool with
as much at the start unless that is switched off. So it is chosen for `native` too, unless the
user has chosen an allocator or a bound. Not a larger fraction for bfc instead: JAX raises an
error where a program sets that by another name (XLA_CLIENT_MEM_FRACTION).
"""

from __future__ import annotations

from collections.abc import Mapping

from pump.frameworks.advice import Advice, is_true

NAME = "JAX"
ALLOCATOR = "XLA_PYTHON_CLIENT_ALLOCATOR"
PREALLOCATE = "XLA_PYTHON_CLIENT_PREALLOCATE"
UNIFIED = "TF_FORCE_UNIFIED_MEMORY"
FRACTIONS = ("XLA_PYTHON_CLIENT_MEM_FRACTION", "XLA_CLIENT_MEM_FRACTION")


def native(environ: Mapping[str, str]) -> Advice:
    """Choose cuda_async where the user has chosen neither an allocator nor its size."""
    if any(environ.get(name) for name in (ALLOCATOR, UNIFIED, *FRACTIONS)):
        return Advice()
    return tensor(environ)


def tensor(environ: Mapping[str, str]) -> Advice:
    """Choose cuda_async, and no filling of its pool at the start."""
    chosen = environ.get(ALLOCATOR, "")
    conflicts = []
    if chosen not in ("", "cuda_async"):
        conflicts.append(
            f"{ALLOCATOR}={chosen} chooses another allocator than cuda_async, which tensor "
            "granularity needs; unset it or use --granularity native"
        )
    if is_true(environ.get(UNIFIED, "")):
        conflicts.append(
            f"{UNIFIED} makes JAX page one large block itself, so pump sees no tensors; "
            "unset it or use --granularity native"
        )
    settings = {ALLOCATOR: "cuda_async"}
    if not environ.get(PREALLOCATE):
        settings[PREALLOCATE] = "false"
    return Advice(settings, conflicts)
