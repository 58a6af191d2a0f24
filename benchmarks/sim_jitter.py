"""Event-driven dispatch beside a fixed order of transfers, under jitter: rows of suite_sim.

Simulated: seeds take the place of pairs, and the same seed gives the same times.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import TYPE_CHECKING

from harness import Options, Row

if TYPE_CHECKING:
    from pump.sim.tensors import TensorTrace

PROFILE = "a100-pcie4"
SHARE = 0.25
SEEDS = 5
RATIOS = (1.5, 2.0)
ITERATIONS = 4
POLICIES = "window+discard", "planned+discard"


def rows(traces: Sequence[TensorTrace], options: Options) -> Iterator[Row]:
    """Three rows for each trace, policy and size."""
    from pump import profiles
    from pump.sim import contenders, tensors
    from pump.sim.simulation import Jitter, Machine

    ratios = RATIOS[:1] if options.quick else RATIOS
    for trace, policy, ratio in product(traces, POLICIES, ratios):
        contender = contenders.by_name(policy)
        program = tensors.program(trace, iterations=ITERATIONS, discard=contender.discard)
        machine = Machine(profiles.load(PROFILE), int(program.peak_bytes / ratio))
        simulate = partial(contenders.simulate, contender, program)
        calm = simulate(machine).steady.seconds
        gains: dict[str, list[float]] = {"fixed": [], "fixed-each-way": []}
        drifts = []
        for seed in range(2 if options.quick else SEEDS):
            rough = replace(machine, jitter=Jitter(SHARE, seed))
            event = simulate(rough).steady.seconds
            drifts.append(event / calm)
            for dispatch, found in gains.items():
                found.append(simulate(rough, dispatch=dispatch).steady.seconds / event)
        facts = {
            "oversubscription": ratio,
            "trace": trace.name,
            "policy": policy,
            "simulated": True,
            "share": SHARE,
            "seeds": len(drifts),
        }
        for dispatch, found in gains.items():
            mean = math.exp(sum(map(math.log, found)) / len(found))
            name = f"sim.jitter.{dispatch.replace('-', '_')}_over_event"
            yield Row(name, mean, "x", "event", least=min(found), **facts)
        furthest = max(drifts, key=lambda drift: abs(math.log(drift)))
        yield Row("sim.jitter.event_over_calm", furthest, "x", "no jitter", **facts)
