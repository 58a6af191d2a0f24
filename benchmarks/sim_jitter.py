"""Event-driven dispatch beside a fixed order of transfers, under jitter: rows of suite_sim.

Simulated: seeds take the place of pairs, and the same seed gives the same times.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from harness import Options, Row

if TYPE_CHECKING:
    from pump.sim.tensors import TensorTrace

PROFILE = "a100-pcie4"
SHARE = 0.25
SEEDS = 5
RATIOS = (1.5, 2.0)
ITERATIONS = 4
POLICY = "window+discard"


def rows(traces: Sequence[TensorTrace], options: Options) -> Iterator[Row]:
    """Two rows for each trace and size."""
    from pump import profiles
    from pump.sim import contenders, tensors
    from pump.sim.simulation import Jitter, Machine

    contender = contenders.by_name(POLICY)
    for trace in traces:
        program = tensors.program(trace, iterations=ITERATIONS, discard=contender.discard)
        for ratio in RATIOS[:1] if options.quick else RATIOS:
            machine = Machine(profiles.load(PROFILE), int(program.peak_bytes / ratio))

            simulate = partial(contenders.simulate, contender, program)
            calm = simulate(machine).steady.seconds
            gains, drifts = [], []
            for seed in range(2 if options.quick else SEEDS):
                rough = replace(machine, jitter=Jitter(SHARE, seed))
                event = simulate(rough).steady.seconds
                gains.append(simulate(rough, fixed_order=True).steady.seconds / event)
                drifts.append(event / calm)
            facts = {
                "oversubscription": ratio,
                "trace": trace.name,
                "policy": POLICY,
                "simulated": True,
                "share": SHARE,
                "seeds": len(gains),
            }
            mean = math.exp(sum(map(math.log, gains)) / len(gains))
            least = min(gains)
            yield Row("sim.jitter.fixed_over_event", mean, "x", "event", least=least, **facts)
            furthest = max(drifts, key=lambda drift: abs(math.log(drift)))
            yield Row("sim.jitter.event_over_calm", furthest, "x", "no jitter", **facts)
