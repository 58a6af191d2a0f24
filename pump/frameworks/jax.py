"""JAX: XLA's cuda_async allocator allocates each buffer in stream order.

The default allocator (bfc) allocates three quarters of the GPU in one piece, and runs out of memory
beyond that, even if pump could page more. There is no such limit with cuda_async, but at the start
it fills its pool to the same size unless that is switched off. So `native` chooses cuda_async, too,
unless the user has chosen an allocator or a limit. A larger fraction for bfc would not work: JAX
raises an error if a program sets the fraction by its other name (XLA_CLIENT_MEM_FRACTION).
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
    """Chooses cuda_async if the user has chosen neither an allocator nor its size."""
    if any(environ.get(name) for name in (ALLOCATOR, UNIFIED, *FRACTIONS)):
        return Advice()
    return tensor(environ)


def tensor(environ: Mapping[str, str]) -> Advice:
    """Chooses cuda_async, and switches off filling its pool at the start."""
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
