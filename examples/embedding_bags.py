"""Sums bags of random rows of embedding tables, in plain cuda-python.

The forward pass of a recommendation model's sparse part. A launch for each table reads the rows
that its bags name, a few hundred bytes each, out of gigabytes. The rows change in each launch.
Frequencies are uniform, or Zipf's with --zipf. By default frequent rows are spread over the table,
as if ids were hashed; --by-heat stores them side by side.

    python examples/embedding_bags.py --tables 4 --table-mib 256
    pump-run --budget 600MiB python examples/embedding_bags.py --tables 4 --table-mib 256

With --managed, --read-in-place advises the tables (SET_ACCESSED_BY): the GPU reads what does not
fit on the host, and migrates nothing. The program does not use pump. The same options give
bit-identical results. On the virtual GPU, host_touches.c lists the rows (PUMP_VIRTUAL_KERNELS, in
both modes). In timing mode the profile sets the time of a kernel, and --compute-per-byte has no
effect.
"""

from __future__ import annotations

import argparse
import array
import ctypes
import math
import random
from typing import Any

import workload
from workload import FLOAT_BYTES, MIB

TABLE_MIB_MAX = 8191  # the kernels index its elements with 31 bits
READS_MAX = 60_000  # rows of a launch that the virtual GPU can list
SCATTER = 2_654_435_761  # a prime above the number of rows, so that it keeps them apart


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parses the options; exits with status 2 on a bad one."""
    parser = workload.parser("Sum bags of random rows of embedding tables.")
    parser.add_argument("--tables", type=int, default=4, help="number of tables")
    parser.add_argument("--table-mib", type=int, default=256, help="size of each table")
    parser.add_argument("--row-bytes", type=int, default=256, help="size of a row")
    parser.add_argument("--bags", type=int, default=256, help="bags of a launch")
    parser.add_argument("--ids", type=int, default=20, help="rows of each bag")
    parser.add_argument("--zipf", type=float, default=0, help="exponent; 0: uniform (default)")
    parser.add_argument("--by-heat", action="store_true", help="frequent rows side by side")
    parser.add_argument(
        "--read-in-place", action="store_true", help="advise the tables; needs --managed"
    )
    options = parser.parse_args(arguments)
    workload.check(parser, options)
    if not 1 <= options.tables <= 1000:
        parser.error(f"--tables is {options.tables}; it must be from 1 to 1000")
    if not 1 <= options.table_mib <= TABLE_MIB_MAX:
        parser.error(f"--table-mib is {options.table_mib}; it must be from 1 to {TABLE_MIB_MAX}")
    if options.row_bytes < FLOAT_BYTES or MIB % options.row_bytes:
        parser.error(f"--row-bytes is {options.row_bytes}; it must be a power of two, 4 to 1 MiB")
    if options.bags < 1 or options.ids < 1 or options.bags * options.ids > READS_MAX:
        parser.error(f"--bags times --ids must be from 1 to {READS_MAX}")
    if not 0 <= options.zipf <= 10:
        parser.error(f"--zipf is {options.zipf}; it must be from 0 to 10")
    if options.read_in_place and not options.managed:
        parser.error("--read-in-place needs --managed: device memory takes no advice")
    return options


def footprint_bytes(options: argparse.Namespace) -> int:
    reads = options.tables * options.iterations * options.bags * options.ids
    sums = options.tables * options.bags * options.row_bytes
    return int(options.tables * options.table_mib * MIB + sums + reads * FLOAT_BYTES)


def rank(uniform: float, count: int, exponent: float) -> int:
    """Returns a rank below `count`, frequent in proportion to (rank + 1) ** -exponent.

    `uniform`: a random number in [0, 1). The sum is taken as an integral.
    """
    if exponent == 1:
        found = math.exp(uniform * math.log(count + 1))
    else:
        power = 1 - exponent
        found = (uniform * ((count + 1) ** power - 1) + 1) ** (1 / power)
    return min(count, int(found)) - 1


def ids(options: argparse.Namespace) -> array.array[int]:
    """Returns the rows of all launches in order; the same in every run."""
    rows = options.table_mib * MIB // options.row_bytes
    reads = options.tables * options.iterations * options.bags * options.ids
    source = random.Random(1)
    ranks = (rank(source.random(), rows, options.zipf) for _ in range(reads))
    if options.by_heat:
        return array.array("i", ranks)
    return array.array("i", (one * SCATTER % rows for one in ranks))


class Bags:
    """The tables, sums and ids in GPU memory, and a launch for each table."""

    def __init__(self, gpu: Any, options: argparse.Namespace) -> None:
        self._options = options
        self._reads = options.bags * options.ids
        width = options.row_bytes // FLOAT_BYTES
        items = options.bags * width
        found = ids(options)
        self._ids = gpu.allocate(len(found) * FLOAT_BYTES)
        gpu.upload(self._ids, found.buffer_info()[0], len(found) * FLOAT_BYTES)
        self.sums_bytes = items * FLOAT_BYTES
        self.sums: list[int] = []
        self._launches: list[tuple[Any, ctypes.c_void_p]] = []
        work = workload.rounds(options.compute_per_byte)
        for number in range(options.tables):
            table = gpu.allocate(options.table_mib * MIB)
            count = options.table_mib * MIB // FLOAT_BYTES
            values = [ctypes.c_void_p(table), ctypes.c_int(count), ctypes.c_uint(number + 1)]
            gpu.launch("init_uniform", [*values, ctypes.c_float(1)], count)()
            if options.read_in_place:
                gpu.access_in_place(table, options.table_mib * MIB)
            self.sums.append(gpu.allocate(self.sums_bytes))
            pointers = [ctypes.c_void_p(address) for address in (self.sums[-1], table, 0)]
            shape = [ctypes.c_int(one) for one in (options.bags, options.ids, width, work)]
            launch = gpu.launch("embedding_bag", [*pointers, *shape], items)
            self._launches.append((launch, pointers[2]))

    def launches_of(self, iteration: int) -> Any:
        """Yields the launches of one iteration. Call each before taking the next."""
        for number, (launch, ids_of_launch) in enumerate(self._launches):
            before = iteration * self._options.tables + number
            ids_of_launch.value = self._ids + before * self._reads * FLOAT_BYTES
            yield launch


def make(gpu: Any, options: argparse.Namespace) -> workload.Made:
    bags = Bags(gpu, options)
    return bags.launches_of, [(address, bags.sums_bytes) for address in bags.sums]


def main() -> int:
    options = parse()
    return workload.main("embedding_bags", options, footprint_bytes(options), make)


if __name__ == "__main__":
    raise SystemExit(main())
