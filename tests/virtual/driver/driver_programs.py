"""Runs one program in plain cuda-python and NVRTC on the virtual driver, for the tests.

Usage: driver_programs.py NAME [argument ...]; prints one JSON value. The programs use no name of
pump: on a real GPU they would run unchanged.
"""

from __future__ import annotations

import json
import sys

import driver_arrays
import driver_clock
import driver_kernels
import driver_memory
import driver_newer
import driver_processes
import driver_streams

PROGRAMS = {
    name: value
    for module in (
        driver_arrays,
        driver_clock,
        driver_kernels,
        driver_memory,
        driver_newer,
        driver_processes,
        driver_streams,
    )
    for name, value in vars(module).items()
    if callable(value) and getattr(value, "__module__", "") == module.__name__
}


if __name__ == "__main__":
    json.dump(PROGRAMS[sys.argv[1]](*sys.argv[2:]), sys.stdout)
