"""RMM: its memory resource is chosen by the program, but for cudf.pandas.

    rmm.mr.set_current_device_resource(rmm.mr.CudaAsyncMemoryResource())

makes it stream-ordered. cudf.pandas reads CUDF_PANDAS_RMM_MODE; its default where memory
can be paged is a pool of managed memory of its own, with prefetches of its own.
"""

from __future__ import annotations

from collections.abc import Mapping

from pump.frameworks.advice import Advice

NAME = "RMM"
MODE = "CUDF_PANDAS_RMM_MODE"


def tensor(environ: Mapping[str, str]) -> Advice:
    """Choose cudf.pandas's asynchronous memory resource."""
    chosen = environ.get(MODE, "")
    if chosen in ("", "async"):
        return Advice({MODE: "async"})
    return Advice(
        conflicts=[
            f"{MODE}={chosen} chooses another memory resource than async, which tensor "
            "granularity needs; unset it or use --granularity native"
        ]
    )
