"""Cost of schedules: the worker's CPU time for each operation of a deep window.

DESIGN
  A client in C (load_generator.c) issues and executes operations and carries out the schedule at a
  link's rate, on its own clock, while the worker ticks. Only the ticks are timed, in CPU time of
  the thread. In steady state, the window has 1,000 operations: one iteration of a training over
  20,000 blocks, with memory for two thirds.

  Wake "marker" is one tick for each marker, which reports 16 executed and 16 issued operations.
  Wake "completion" adds a tick after each end of a transfer, as for the real worker. The number of
  these ticks depends on the size of transfers.

    `policy.us_per_operation`          Time of ticks / operations: the median over stretches.
    `policy.us_per_operation.<part>`   Time of a part, from a separate run in which each step is
                                       timed. Timing has a cost, so the parts add up to more.

  Case "arguments": events hold pointers, and the worker learns their lengths, as with the shim.
  Case "lengths": events hold lengths.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from harness import MeasurementError, Options, Row, interval, median, percentile, pin
from load_generators.load_generator import (
    PER_MARKER,
    TO_GPU,
    TO_HOST,
    LoadGenerator,
    library,
    serving,
)

RANGES, RANGE_BLOCKS = 2000, 10
WINDOW = 1000
OVERSUBSCRIPTION = 1.5
BLOCK_NS = 91_000
"""2 MiB at 23 GB/s."""

OPERATION_NS = 10 * BLOCK_NS
"""Time of an operation, in which the link can bring a quarter of the operation's 40 blocks."""

STRETCH = 50
"""Markers of one stretch: 800 operations."""

MARKER, COMPLETION = "marker", "completion"
CASES = (("arguments", MARKER), ("lengths", MARKER), ("arguments", COMPLETION))

PARTS: dict[str, tuple[tuple[str, str], ...]] = {
    "read": (("mapping", "read_into"),),
    "follow": (("mapping", "follow"),),
}
"""Parts of a tick and their calls; `follow` also makes schedules. The remaining part is `rest`:
reading devices, and Python between the calls."""


class Stopwatch:
    """CPU time of this thread, in ns, in named calls."""

    def __init__(self) -> None:
        self.spent: dict[str, int] = dict.fromkeys(PARTS, 0)

    def watch(self, worker: Any) -> None:
        """Times the calls of PARTS on this worker from now."""
        for part, calls in PARTS.items():
            for owner, name in calls:
                target = getattr(worker, owner)
                setattr(target, name, self._timed(part, getattr(target, name)))

    def _timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            began = time.thread_time_ns()
            try:
                return function(*arguments)
            finally:
                self.spent[part] += time.thread_time_ns() - began

        return call


def warm(generator: LoadGenerator, wake: str) -> None:
    """Fills the window, then runs two iterations."""
    generator.worker.tick()
    generator.tell()
    generator.issue(WINDOW)
    generator.clock(OPERATION_NS, BLOCK_NS)
    markers(generator, 2 * WINDOW // PER_MARKER, wake)


def markers(generator: LoadGenerator, count: int, wake: str) -> tuple[int, int]:
    """Advances by `count` markers; returns the CPU ns of the worker's ticks, and their number."""
    spent = ticks = 0
    while count > 0:
        is_marker = generator.next()
        count -= is_marker
        if wake == MARKER and not is_marker:
            continue
        began = time.thread_time_ns()
        generator.worker.tick()
        spent += time.thread_time_ns() - began
        ticks += 1
    return spent, ticks


def measure(generator: LoadGenerator, stretches: int, case: str, wake: str) -> Iterator[Row]:
    warm(generator, wake)
    costs: list[float] = []
    ticks = 0
    moved = [generator.moved(direction) for direction in (TO_GPU, TO_HOST)]
    for _ in range(stretches):
        spent, count = markers(generator, STRETCH, wake)
        costs.append(spent / 1000 / (STRETCH * PER_MARKER))
        ticks += count
    operations = stretches * STRETCH * PER_MARKER
    arrived, left = (
        (generator.moved(direction) - before) / operations
        for direction, before in zip((TO_GPU, TO_HOST), moved, strict=True)
    )
    if arrived == 0 or left == 0:
        raise MeasurementError("the policy moves nothing: this is not the steady state")
    yield Row(
        "policy.us_per_operation",
        median(costs),
        "us",
        interval=interval(costs),
        case=case,
        wake=wake,
        p99=percentile(costs, 99),
        ticks_per_operation=ticks / operations,
        us_per_tick=sum(costs) / stretches * STRETCH * PER_MARKER / (ticks / stretches),
        blocks_per_transfer=generator.moved(TO_GPU) / generator.transfers(TO_GPU),
        blocks_in_per_operation=arrived,
        blocks_out_per_operation=left,
        window=WINDOW,
        blocks=RANGES * RANGE_BLOCKS,
        oversubscription=OVERSUBSCRIPTION,
        operations=operations,
    )


def split(generator: LoadGenerator, stretches: int, case: str, wake: str) -> Iterator[Row]:
    """Yields the time of each part; the stopwatch's own time is included."""
    warm(generator, wake)
    watch = Stopwatch()
    watch.watch(generator.worker)
    spent, _ = markers(generator, stretches * STRETCH, wake)
    operations = stretches * STRETCH * PER_MARKER
    parts = watch.spent | {"rest": spent - sum(watch.spent.values())}
    for part, part_ns in parts.items():
        name = f"policy.us_per_operation.{part}"
        yield Row(
            name, part_ns / 1000 / operations, "us", case=case, wake=wake, share=part_ns / spent
        )


def run(options: Options) -> Iterator[Row]:
    if options.rest:
        raise MeasurementError(f"the suite has no options, but got {' '.join(options.rest)}")
    lib = library(options.tools)
    stretches = options.pairs
    budget = int(RANGES * RANGE_BLOCKS / OVERSUBSCRIPTION)
    with pin():
        for case, wake in CASES:
            for function in (measure, split):
                with serving(
                    lib,
                    "window",
                    budget_blocks=budget,
                    ranges=RANGES,
                    range_blocks=RANGE_BLOCKS,
                    active=True,
                    arguments=case == "arguments",
                ) as generator:
                    yield from function(generator, stretches, case, wake)
