"""The cost of the path through the worker, for programs that are few operations ahead.

DESIGN
  `sim.latency.POLICY`    Seconds of the last iteration / seconds with a worker and movers that
                          answer instantly. `slow`: with a worker that takes four to seven times as
                          long.
  `sim.latency.stopped`   Seconds with a worker that is stopped for 50 of every 200 ms / with one
                          that runs. `case`: the policy.
  `sim.wakes.POLICY`      By wakes(): seconds with the delays of `case` (idle, busy:
                          pump_lab.sim.wakeups) / with constant delays, as the mean over seeds.
                          `least`, `most`: over seeds. `none`: without any delay / with constant
                          delays. The first iteration does not count.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from statistics import mean
from typing import TYPE_CHECKING, Any

from harness import Row

if TYPE_CHECKING:
    from pump_lab.sim.program import Program
    from pump_lab.sim.simulation import Machine
    from pump_lab.sim.tensors import TensorTrace

PROFILE = "a100-pcie4"
RATIOS = 1.5, 2.0
QUEUES = 2, 10, 50
POLICIES = "window+discard", "planned+discard"
STOPPED_QUEUES = 50, 1024
WAKES_QUEUES = 10, 50, 1024
WAKES_POLICIES = "window", "planned"
SEEDS = 4


def rows(traces: Sequence[TensorTrace], *, quick: bool) -> Iterator[Row]:
    """Yields a row for each trace, size, queue and policy."""
    from study import studied_policies

    from pump_lab import profiles
    from pump_lab.sim import tensors
    from pump_lab.sim.simulation import Daemon, Machine

    usual = Daemon()
    instant = replace(usual, wake_us=0, tick_us=0, row_us=0, mover_wake_us=0)
    slow = replace(usual, wake_us=100, tick_us=200, row_us=10, mover_wake_us=50)
    sizes, queues = (RATIOS[:1], QUEUES[:1]) if quick else (RATIOS, QUEUES)
    for trace, policy in product(traces, POLICIES):
        candidate = studied_policies.by_name(policy)
        program = tensors.program(trace, iterations=4, discard=candidate.discard)
        for ratio, queue in product(sizes, queues):
            machine = Machine(profiles.load(PROFILE), int(program.peak_bytes / ratio), queue)
            now, none, late = (
                studied_policies.simulate(
                    candidate, program, replace(machine, daemon=daemon)
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
    queues = queues[:1] if quick else STOPPED_QUEUES
    for trace, ratio, queue, policy in product(traces, sizes, queues, POLICIES):
        yield _stopped(trace, ratio, queue, policy)


def _stopped(trace: TensorTrace, ratio: float, queue: int, policy: str) -> Row:
    from study import studied_policies

    from pump_lab import profiles
    from pump_lab.sim import tensors
    from pump_lab.sim.simulation import Daemon, Machine

    candidate = studied_policies.by_name(policy)
    program = tensors.program(trace, iterations=4, discard=candidate.discard)
    machine = Machine(profiles.load(PROFILE), int(program.peak_bytes / ratio), queue)

    def seconds(daemon: Daemon) -> float:
        """Returns the seconds of the last three iterations: one may fall between two stops."""
        outcome = studied_policies.simulate(candidate, program, replace(machine, daemon=daemon))
        return sum(stretch.seconds for stretch in outcome.stretches[1:])

    return Row(
        "sim.latency.stopped",
        seconds(Daemon(stop_every_ms=200, stop_ms=50)) / seconds(Daemon()),
        "x",
        "a worker that runs",
        case=policy,
        oversubscription=ratio,
        queue_operations=queue,
        trace=trace.name,
        simulated=True,
    )


def wakes(traces: Sequence[TensorTrace], *, quick: bool) -> Iterator[Row]:
    """Yields a row for each trace, size, queue, policy and distribution."""
    from pump_lab import profiles
    from pump_lab.sim import tensors, wakeups
    from pump_lab.sim.simulation import Machine

    seeds = range(1 if quick else SEEDS)
    sizes = (RATIOS[:1], WAKES_QUEUES[:1]) if quick else (RATIOS, WAKES_QUEUES)
    for trace, policy, ratio, queue in product(traces, WAKES_POLICIES, *sizes):
        program = tensors.program(trace, iterations=4)
        machine = Machine(profiles.load(PROFILE), int(program.peak_bytes / ratio), queue)
        facts = {
            "oversubscription": ratio,
            "queue_operations": queue,
            "trace": trace.name,
            "simulated": True,
        }
        constant = _later_seconds(policy, program, machine)
        none = _later_seconds(policy, program, machine, wake_us=0, mover_wake_us=0) / constant
        for name in ("idle", "busy"):
            late = wakeups.load(name)
            each = [
                _later_seconds(policy, program, machine, wake_ups=late, seed=seed) / constant
                for seed in seeds
            ]
            yield Row(
                f"sim.wakes.{policy}",
                mean(each),
                "x",
                "constant delays",
                case=name,
                least=min(each),
                most=max(each),
                none=none,
                **facts,
            )


def _later_seconds(policy: str, program: Program, machine: Machine, **daemon: Any) -> float:
    """Returns the seconds of all iterations but the first, with a daemon of these settings."""
    from study import studied_policies

    from pump_lab.sim.simulation import Daemon

    found = replace(machine, daemon=Daemon(**daemon))
    outcome = studied_policies.simulate(studied_policies.by_name(policy), program, found)
    return sum(stretch.seconds for stretch in outcome.stretches[1:])
