"""What the way through the worker costs, for programs that are few operations ahead.

Rows of suite_sim: sim.latency.POLICY is seconds of the last iteration / those with a worker, and
movers, that answer in no time at all, which is the most that a plan which the client carries out
by itself could gain. `slow`: with a worker that takes four to seven times as long.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

from harness import Row

if TYPE_CHECKING:
    from pump.sim.tensors import TensorTrace

PROFILE = "a100-pcie4"
RATIOS = 1.5, 2.0
QUEUES = 2, 10, 50
POLICIES = "window+discard", "planned+discard"


def rows(traces: Sequence[TensorTrace], *, quick: bool) -> Iterator[Row]:
    """A row for each trace, size, queue and policy."""
    from pump import profiles
    from pump.sim import contenders, tensors
    from pump.sim.simulation import Daemon, Machine

    usual = Daemon()
    instant = replace(usual, wake_us=0, tick_us=0, row_us=0, mover_wake_us=0)
    slow = replace(usual, wake_us=100, tick_us=200, row_us=10, mover_wake_us=50)
    sizes, queues = (RATIOS[:1], QUEUES[:1]) if quick else (RATIOS, QUEUES)
    for trace, policy in product(traces, POLICIES):
        contender = contenders.by_name(policy)
        program = tensors.program(trace, iterations=4, discard=contender.discard)
        for ratio, queue in product(sizes, queues):
            machine = Machine(profiles.load(PROFILE), int(program.peak_bytes / ratio), queue)
            now, none, late = (
                contenders.simulate(
                    contender, program, replace(machine, daemon=daemon)
                ).steady.seconds
                for daemon in (usual, instant, slow)
            )
            yield Row(
                f"sim.latency.{policy.partition('+')[0]}",
                now / none,
                "x",
                "no latency",
                slow=late / none,
                oversubscription=ratio,
                queue_operations=queue,
                trace=trace.name,
                simulated=True,
            )
