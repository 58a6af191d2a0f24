"""Sweeps through buffers in the same order, again and again, in plain cuda-python.

The worst case for the driver is a set of buffers that need more memory than the GPU has. The driver
evicts the oldest block first, which is exactly the block that is needed next, so every buffer
misses in every round. A policy that knows the next launches gains most here. It keeps some buffers
on the GPU and prefetches the others while kernels run.

    python examples/cyclic_sweep.py --buffers 16 --buffer-mib 64
    pump-run --budget 600MiB python examples/cyclic_sweep.py --buffers 16 --buffer-mib 64

The program does not use pump. The same options give bit-identical results. On the virtual GPU in
timing mode --compute-per-byte has no effect: the profile sets the time of a kernel
(pump-run --virtual-set kernel.sweep.gbps=N).
"""

from __future__ import annotations

import argparse
import ctypes
from typing import Any

import workload
from workload import FLOAT_BYTES, MIB


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parses the options; exits with status 2 on a bad one."""
    parser = workload.parser("Sweep through buffers in order, again and again.")
    parser.add_argument("--buffers", type=int, default=16, help="number of buffers")
    parser.add_argument("--buffer-mib", type=int, default=64, help="size of a buffer")
    parser.add_argument("--passes", type=int, default=1, help="successive kernels on a buffer")
    options = parser.parse_args(arguments)
    workload.check(parser, options)
    if options.buffers < 1:
        parser.error(f"--buffers is {options.buffers}; it must be at least 1")
    if options.passes < 1:
        parser.error(f"--passes is {options.passes}; it must be at least 1")
    if not 1 <= options.buffer_mib <= 4096:
        parser.error(f"--buffer-mib is {options.buffer_mib}; it must be from 1 to 4096")
    return options


def footprint_bytes(options: argparse.Namespace) -> int:
    return int(options.buffers * options.buffer_mib * MIB)


def make(gpu: Any, options: argparse.Namespace) -> workload.Made:
    """Fills the buffers; returns the launches on each."""
    size = options.buffer_mib * MIB
    count = size // FLOAT_BYTES
    work = workload.rounds(options.compute_per_byte)
    buffers = [gpu.allocate(size) for _ in range(options.buffers)]
    launches = []
    for number, buffer in enumerate(buffers):
        values = [ctypes.c_void_p(buffer), ctypes.c_int(count)]
        gpu.launch("init_uniform", [*values, ctypes.c_uint(number + 1), ctypes.c_float(1)], count)()
        launches += [gpu.launch("sweep", [*values, ctypes.c_int(work)], count)] * options.passes
    return lambda _: launches, [(buffer, size) for buffer in buffers]


def main() -> int:
    options = parse()
    return workload.main("cyclic_sweep", options, footprint_bytes(options), make)


if __name__ == "__main__":
    raise SystemExit(main())
