"""CuPy: the program, not the environment, chooses the allocator.

    cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc)

makes allocations stream-ordered. CUPY_GPU_MEMORY_LIMIT limits only CuPy's own pool.
"""

from __future__ import annotations

from collections.abc import Mapping

from pump.frameworks.advice import Advice

NAME = "CuPy"
LIMIT = "CUPY_GPU_MEMORY_LIMIT"


def tensor(environ: Mapping[str, str]) -> Advice:
    """Returns no settings, because no variable chooses the allocator. Adds a note if a limit of
    CuPy's own pool is set."""
    if not environ.get(LIMIT):
        return Advice()
    return Advice(
        notes=[
            f"{LIMIT} limits CuPy's own pool to the GPU's memory; with tensor granularity, "
            "use cupy.cuda.MemoryAsyncPool, which ignores it"
        ]
    )
