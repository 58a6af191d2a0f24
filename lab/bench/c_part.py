"""Loads C code for suites: a library with the headers that declare it, and load generators.

A load generator passes data that Python has packed to a part of libpump_core.so, so that no Python
runs during a measurement.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cffi
from harness import ROOT, Tools, compile_c


def load(library: Path, *declared_in: Path) -> tuple[Any, Any]:
    """Returns cffi's (ffi, library), declared by the marked parts of these C files."""
    from pump.wire.abi import contract  # suites can be listed before pump is installed

    ffi = cffi.FFI()
    for source in declared_in:
        ffi.cdef(contract(source))
    return ffi, ffi.dlopen(str(library))


def generator(tools: Tools, source: Path, library: Path, *headers: Path) -> tuple[Any, Any]:
    """Returns cffi's (ffi, library) of the load generator `source`, built against a library of the
    pump under test. The `headers` that declare the library are in one folder.

    Raises the errors of harness.compile_c.
    """
    include = f"-I{headers[0].parent}", f"-I{ROOT}"
    flags = ["-shared", "-fPIC", *include, f"-Wl,-rpath,{library.parent}"]
    made = compile_c(tools, f"lib{source.stem}.so", [source, library], *flags)
    return load(made, *headers, source)
