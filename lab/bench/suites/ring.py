"""Event ring: operations per second from producer threads through decode and block table.

DESIGN
  Threads in C (load_generator.c) push operations of four extents (two records each) as fast as they
  can, from 1, 2 and 4 threads. The worker reads them with its own tick, on a separate CPU if there
  is one: drain, decode, block table and window, progress. Its device is dormant, so the worker
  decides nothing: suites/policy.py measures decisions.

    `ring.records_per_s`   Operations a second, all of them seen. Producers wait while the ring is
                           half full, because a slower worker would skip. The worker must have read
                           every operation. `records_per_s` is twice that.
    `ring.flood.dropped`   Share of operations that are lost when producers do not wait: dropped at
                           a full ring or skipped by the worker.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator
from dataclasses import dataclass

from harness import MeasurementError, Options, Row, cpus, interval, median, pin
from load_generators.load_generator import EXTENTS, RECORDS, LoadGenerator, library, serving

THREADS = (1, 2, 4)
OPERATIONS = 400_000
"""Operations of all threads together in one measurement."""

OPERATIONS_QUICK = 40_000
RANGES, RANGE_BLOCKS = 2000, 10
WINDOW = 1000
"""Operations of all threads together that are issued and not executed."""

QUIET_SECONDS = 0.2
"""The worker has stopped if it reads nothing for this long."""


@dataclass(frozen=True)
class Flow:
    """One measurement: operations issued and seen; records left unread; seconds until the last
    record was read, and the worker's CPU seconds in that time."""

    issued: int
    seen: int
    dropped: int
    retries: int
    unread: int
    seconds: float
    cpu_seconds: float


def read_rest(generator: LoadGenerator) -> int:
    """Lets the worker read the rest of the ring; returns the number of records that it cannot
    reach.

    A record before them never becomes ready. Its thread was delayed while the worker skipped, and
    then found its slot in use again.
    """
    worker, header = generator.worker, generator.worker.mapping.shm.header
    head, since = header.event_head, time.perf_counter()
    while worker.mapping.backlog():
        worker.tick()
        now = time.perf_counter()
        if header.event_head != head:
            head, since = header.event_head, now
        elif now - since > QUIET_SECONDS:
            break
    return int(worker.mapping.backlog())


def flow(lib: ctypes.CDLL, threads: int, operations: int, throttle: bool) -> Flow:
    """Runs the threads once, against a fresh worker in this thread."""
    each = operations // threads
    usable = cpus()
    own = usable[-1]
    others = usable[:-1] or [own]
    places = [others[i % len(others)] for i in range(threads)]
    with (
        serving(
            lib,
            "window",
            budget_blocks=2 * RANGES * RANGE_BLOCKS,
            ranges=RANGES,
            range_blocks=RANGE_BLOCKS,
            active=False,
            arguments=False,
        ) as generator,
        pin(own),
    ):
        worker, mapping = generator.worker, generator.worker.mapping
        worker.tick()  # reads the range table
        header = mapping.shm.header
        began, began_cpu = time.perf_counter(), time.thread_time()
        crowd = generator.start(each, WINDOW // threads, throttle, places)
        while header.next_seq <= each * threads:  # counts issued operations
            worker.tick()
        dropped, retries = generator.join(crowd, threads)
        unread = read_rest(generator)
        seconds, cpu_seconds = time.perf_counter() - began, time.thread_time() - began_cpu
        worker.tick()  # retires executed operations
        totals = worker.model.totals()
        seen = int(totals.operations + totals.window_depth)
    return Flow(each * threads, seen, dropped, retries, unread, seconds, cpu_seconds)


def sustained(lib: ctypes.CDLL, threads: int, operations: int, repeats: int) -> Row:
    flows = [flow(lib, threads, operations, throttle=True) for _ in range(repeats)]
    for one in flows:
        if one.dropped or one.seen != one.issued:
            raise MeasurementError(
                f"{threads} threads issued {one.issued} operations, {one.dropped} were dropped "
                f"and the worker has seen {one.seen}"
            )
    rates = [one.issued / one.seconds for one in flows]
    return Row(
        "ring.records_per_s",
        median(rates),
        "ops/s",
        interval=interval(rates),
        threads=threads,
        records_per_s=RECORDS * median(rates),
        extents_per_operation=EXTENTS,
        worker_cpu_us=1e6 * median([one.cpu_seconds / one.issued for one in flows]),
        retries_per_operation=median([one.retries / one.issued for one in flows]),
        operations=operations,
        lost=0,
    )


def flooded(lib: ctypes.CDLL, threads: int, operations: int, repeats: int) -> Row:
    flows = [flow(lib, threads, operations, throttle=False) for _ in range(repeats)]
    lost = [1 - one.seen / one.issued for one in flows]
    return Row(
        "ring.flood.dropped",
        100 * median(lost),
        "%",
        threads=threads,
        unread_records=max(one.unread for one in flows),
        dropped_at_ring=100 * median([one.dropped / one.issued for one in flows]),
        operations=operations,
    )


def run(options: Options) -> Iterator[Row]:
    if options.rest:
        raise MeasurementError(f"the suite has no options, but got {' '.join(options.rest)}")
    lib = library(options.tools)
    operations = OPERATIONS_QUICK if options.quick else OPERATIONS
    for threads in THREADS:
        yield sustained(lib, threads, operations, options.pairs)
    for threads in THREADS:
        yield flooded(lib, threads, operations, max(1, options.pairs // 6))
