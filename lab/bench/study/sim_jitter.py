"""Event-driven dispatch against a fixed order of transfers, under jitter: rows of the suite sim.

Simulated: seeds take the place of pairs, and the same seed gives the same times.

DESIGN
  There are four rows for each profile, trace, policy and size, with their values by seed. One more
  row for each kind of value covers all of these: the geometric mean, the least and the most of any
  seed. There are two profiles: PROFILE, and the study's, in which a transfer costs no caller time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

from harness import Options, Row

if TYPE_CHECKING:
    from pump_lab.profiles import Profile
    from pump_lab.sim.tensors import TensorTrace

PROFILE = "a100-pcie4"
SHARE = 0.25
SEEDS = 5
RATIOS = (1.5, 2.0)
ITERATIONS = 4
POLICIES = "window+discard", "planned+discard"


def rows(traces: Sequence[TensorTrace], study: dict[str, str], options: Options) -> Iterator[Row]:
    """Yields all rows. `study`: the changes of its profile."""
    from pump_lab import profiles

    plain = profiles.load(PROFILE)
    machines = (
        {PROFILE: plain} if options.quick else {PROFILE: plain, "study": plain.changed(study)}
    )
    ratios = RATIOS[:1] if options.quick else RATIOS
    whole: dict[str, list[float]] = {}
    for (name, profile), trace, policy, ratio in product(
        machines.items(), traces, POLICIES, ratios
    ):
        found = by_seed(trace, policy, ratio, profile, 2 if options.quick else SEEDS)
        facts = {"oversubscription": ratio, "trace": trace.name, "policy": policy, "profile": name}
        for figure, values in found.items():
            yield row(figure, values, **facts, by_seed=values)
            whole.setdefault(figure, []).extend(values)
    for figure, values in whole.items():
        yield row(f"{figure}.all", values, cases=len(values))


def row(figure: str, values: Sequence[float], **facts: Any) -> Row:
    """Returns a row with the geometric mean of the values."""
    mean = math.exp(sum(map(math.log, values)) / len(values))
    span = {"least": min(values), "most": max(values)}
    return Row(f"sim.jitter.{figure}", mean, "x", **span, **facts, simulated=True, share=SHARE)


def by_seed(
    trace: TensorTrace, policy: str, ratio: float, profile: Profile, seeds: int
) -> dict[str, list[float]]:
    """Returns the values of each kind, one for each seed."""
    from study import studied_policies

    from pump_lab.sim import tensors
    from pump_lab.sim.simulation import Jitter, Machine

    candidate = studied_policies.by_name(policy)
    program = tensors.program(trace, iterations=ITERATIONS, discard=candidate.discard)
    machine = Machine(profile, int(program.peak_bytes / ratio))
    simulate = partial(studied_policies.simulate, candidate, program)
    calm = simulate(machine).steady.seconds
    found: dict[str, list[float]] = {}
    for seed in range(seeds):
        rough = replace(machine, jitter=Jitter(SHARE, seed))
        event = simulate(rough).steady.seconds
        for dispatch in ("fixed", "fixed-each-way", "fixed-as-issued"):
            ratio_to = simulate(rough, dispatch=dispatch).steady.seconds / event
            found.setdefault(f"{dispatch.replace('-', '_')}_over_event", []).append(ratio_to)
        found.setdefault("event_over_calm", []).append(event / calm)
    return found
