"""Gathers random rows of a large table, in plain cuda-python.

Prefetching cannot help here. A launch gets the whole table but touches only a few of its
pages, chosen by an index in GPU memory that changes each time. The launch does not show which
pages. So the best policy prefetches nothing. The whole table is far larger than the rows.

    python examples/irregular_gather.py --table-mib 1024
    pump-run --budget 600MiB python examples/irregular_gather.py --table-mib 1024

The program does not use pump. The same options give bit-identical results. On the virtual GPU,
host_touches.c lists the pages (PUMP_VIRTUAL_KERNELS, in both modes); without it each launch
would touch the whole table. In timing mode --compute-per-byte has no effect: the profile sets
the time of a kernel (kernel.gather.gbps and kernel.gather.min_us).
"""

from __future__ import annotations

import argparse
import array
import ctypes
import random
from typing import Any

import workload
from workload import FLOAT_BYTES, MIB

TABLE_MIB_MAX = 8191  # the kernels index its elements with 31 bits


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parses the options; exits with status 2 on a bad one."""
    parser = workload.parser("Gather random rows of a large table.")
    parser.add_argument("--table-mib", type=int, default=1024, help="size of the table")
    parser.add_argument("--rows", type=int, default=256, help="rows that a launch gathers")
    parser.add_argument("--row-bytes", type=int, default=4096, help="size of a row")
    parser.add_argument("--launches", type=int, default=32, help="launches of an iteration")
    options = parser.parse_args(arguments)
    workload.check(parser, options)
    if not 1 <= options.table_mib <= TABLE_MIB_MAX:
        parser.error(f"--table-mib is {options.table_mib}; it must be from 1 to {TABLE_MIB_MAX}")
    if options.row_bytes < FLOAT_BYTES or MIB % options.row_bytes:
        parser.error(f"--row-bytes is {options.row_bytes}; it must be a power of two, 4 to 1 MiB")
    if not 1 <= options.rows <= 60_000:
        parser.error(f"--rows is {options.rows}; it must be from 1 to 60000")
    if options.launches < 1:
        parser.error(f"--launches is {options.launches}; it must be at least 1")
    return options


def footprint_bytes(options: argparse.Namespace) -> int:
    launches = options.launches * options.iterations
    return int(
        options.table_mib * MIB
        + options.rows * options.row_bytes
        + launches * options.rows * FLOAT_BYTES
    )


def indices(options: argparse.Namespace) -> array.array[int]:
    """Returns the rows of all launches of all iterations in order; the same in every run."""
    rows_in_table = options.table_mib * MIB // options.row_bytes
    launches = options.launches * options.iterations
    source = random.Random(1)
    return array.array("i", source.choices(range(rows_in_table), k=launches * options.rows))


class Gather:
    """The table, sums and index in GPU memory, and the launch on them."""

    def __init__(self, gpu: Any, options: argparse.Namespace) -> None:
        self._options = options
        table_bytes = options.table_mib * MIB
        count = table_bytes // FLOAT_BYTES
        width = options.row_bytes // FLOAT_BYTES
        self.sums_bytes = options.rows * options.row_bytes
        table, self.sums = gpu.allocate(table_bytes), gpu.allocate(self.sums_bytes)
        index = indices(options)
        self._index = gpu.allocate(len(index) * FLOAT_BYTES)
        gpu.upload(self._index, index.buffer_info()[0], len(index) * FLOAT_BYTES)
        one, whole = ctypes.c_uint(1), ctypes.c_int(count)
        gpu.launch("init_uniform", [ctypes.c_void_p(table), whole, one, ctypes.c_float(1)], count)()
        items = options.rows * width
        sums = ctypes.c_void_p(self.sums)
        gpu.launch("fill", [sums, ctypes.c_int(items), ctypes.c_float(0)], items)()
        self._rows_of_launch = ctypes.c_void_p()
        work = workload.rounds(options.compute_per_byte)
        shape = [ctypes.c_int(value) for value in (options.rows, width, work)]
        values = [sums, ctypes.c_void_p(table), self._rows_of_launch, *shape]
        self._launch = gpu.launch("gather", values, items)

    def launches_of(self, iteration: int) -> Any:
        """Yields the launches of one iteration. Call each before taking the next."""
        for number in range(self._options.launches):
            launch = iteration * self._options.launches + number
            offset_bytes = launch * self._options.rows * FLOAT_BYTES
            self._rows_of_launch.value = self._index + offset_bytes
            yield self._launch


def make(gpu: Any, options: argparse.Namespace) -> workload.Made:
    gather = Gather(gpu, options)
    return gather.launches_of, [(gather.sums, gather.sums_bytes)]


def main() -> int:
    options = parse()
    return workload.main("irregular_gather", options, footprint_bytes(options), make)


if __name__ == "__main__":
    raise SystemExit(main())
