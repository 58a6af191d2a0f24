"""Reads the C contract from the headers that the shim was compiled from.

The headers mark the part that cffi can read, so it is not repeated here. Importing this module
loads `libpump_core.so` (about 100 ms, mostly cffi's parser): workers do, pump-run does not.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cffi

from pump.base import inputs
from pump.base.paths import library

HEADERS = ("pump_abi.h", "pump_core.h", "operation.h", "learner.h", "model.h")

_BEGIN, _END = "/* cffi: begin */", "/* cffi: end */"


def contract(header: Path) -> str:
    """Returns the part of `header` between the cffi marks.

    Raises ValueError if the header has no such part.
    """
    text = inputs.text(str(header))
    _, begin, rest = text.partition(_BEGIN)
    body, end, _ = rest.partition(_END)
    if not begin or not end:
        raise ValueError(f"{header}: no part between {_BEGIN!r} and {_END!r}")
    return body


def _load() -> tuple[Any, Any]:
    ffi = cffi.FFI()
    for name in HEADERS:
        ffi.cdef(contract(Path(library(f"include/{name}"))))
    return ffi, ffi.dlopen(library("libpump_core.so"))


ffi, lib = _load()

INT64S: Any = ffi.typeof("int64_t[]")
"""Type for `ffi.from_buffer`, looked up once because it is needed often."""

SHM_BYTES: int = ffi.sizeof("struct pump_shm")
"""Size of a client's mapping in bytes."""
