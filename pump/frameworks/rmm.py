"""RMM: the program chooses the memory resource, except with cudf.pandas.

    rmm.mr.set_current_device_resource(rmm.mr.CudaAsyncMemoryResource())

makes allocations stream-ordered. cudf.pandas reads CUDF_PANDAS_RMM_MODE. If memory can be paged,
its default is its own pool of managed memory, with its own prefetches.
"""

from __future__ import annotations

from collections.abc import Mapping

from pump.frameworks.advice import Advice

NAME = "RMM"
MODE = "CUDF_PANDAS_RMM_MODE"


def tensor(environ: Mapping[str, str]) -> Advice:
    """Chooses cudf.pandas's asynchronous memory resource."""
    chosen = environ.get(MODE, "")
    if chosen in ("", "async"):
        return Advice({MODE: "async"})
    return Advice(
        conflicts=[
            f"{MODE}={chosen} chooses another memory resource than async, which tensor "
            "granularity needs; unset it or use --granularity native"
        ]
    )
