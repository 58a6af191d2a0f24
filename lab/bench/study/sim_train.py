"""How close the quickstart's training gets to the bound that its order of operations allows.

Rows are sim.train.POLICY.of_parts: the floor of parts (pump_lab.floor.lp_floor) / seconds of the
timed iterations, simulated from a recording. `floor_of_parts`: the floor of `virtual.train.*` /
that bound, which limits every policy's `of_floor`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness import Row

POLICIES = "window", "planned"


def rows(recording: Path, work: Any, profile: str, ratio: float, timed: Any) -> Iterator[Row]:
    """Yields the rows. `work`: the training (examples/quickstart/workload.py). `timed` turns the
    times of waits into seconds of the timed iterations."""
    import floor
    from quickstart import workload
    from study import studied_policies

    from pump_lab import profiles
    from pump_lab.floor import Rates, lp_floor
    from pump_lab.sim import recording as reading
    from pump_lab.sim.report import MIGRATION_THREADS
    from pump_lab.sim.simulation import Machine

    program = reading.program(recording.read_bytes(), recording.name)
    loaded = profiles.load(profile)
    operations = work.model.iteration()
    blocks = floor.block_numbers(work.model.tensors())
    issued = program.steps[program.steps["seq"] > 0]
    touches, compute_ns = [], []
    for operation, ns in zip(
        operations, issued["duration_ns"][-len(operations) :].tolist(), strict=True
    ):
        touches += floor.touches([operation], blocks) or [floor.Touch((), (), ())]
        compute_ns.append(ns)
    rates = Rates.of(loaded.values, MIGRATION_THREADS)
    memory_bytes = work.memory_bytes(ratio)
    repeats = work.iterations - work.warm_up
    least = repeats * lp_floor.least_seconds(touches, compute_ns, memory_bytes, rates)
    link = workload.link_bytes_per_second(profile)
    plain = work.floor_seconds(ratio, repeats * sum(compute_ns) / 1e9, link)
    for policy in POLICIES:
        machine = Machine(loaded, memory_bytes)
        outcome = studied_policies.simulate(studied_policies.by_name(policy), program, machine)
        yield Row(
            f"sim.train.{policy}.of_parts",
            least / timed(outcome.syncs_seconds),
            "share",
            oversubscription=ratio,
            floor_of_parts=plain / least,
            parts_seconds=least,
            simulated=True,
        )
