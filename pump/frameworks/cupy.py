"""CuPy: its allocator is chosen by the program, not by the environment.

    cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc)

makes it stream-ordered. CUPY_GPU_MEMORY_LIMIT bounds its own pool alone.
"""

from __future__ import annotations

from collections.abc import Mapping

from pump.frameworks.advice import Advice

NAME = "CuPy"
LIMIT = "CUPY_GPU_MEMORY_LIMIT"


def tensor(environ: Mapping[str, str]) -> Advice:
    """No variable chooses the allocator; a note where a bound of the other one is set."""
    if not environ.get(LIMIT):
        return Advice()
    return Advice(
        notes=[
            f"{LIMIT} limits CuPy's own pool to the GPU's memory; with tensor granularity, "
            "use cupy.cuda.MemoryAsyncPool, which ignores it"
        ]
    )
