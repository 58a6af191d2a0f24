"""The simulator's C part (`lab/simulate/sim.h`, `gpu_engine.h`) for Python.

Importing this module loads libpump_lab.so and libpump_core.so, as pump/wire/abi.py does.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cffi

from pump.wire import abi
from pump_lab.paths import library

HEADERS = ("uvm_profile.h", "gpu_engine.h", "sim.h")

# A constant has the same meaning in all headers, so one FFI can hold them all.
ffi: Any = cffi.FFI()
ffi.include(abi.ffi)
for _name in HEADERS:
    ffi.cdef(abi.contract(Path(library(f"include/{_name}"))))
lib: Any = ffi.dlopen(library("libpump_lab.so"))
