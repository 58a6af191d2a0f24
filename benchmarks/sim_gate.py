"""Part of suite_sim: what gates gain, and what they would cost if nobody opened them.

DESIGN
  Each trace is replayed five times under planned with discards, without gates, with them, and
  with gates that are all left to the watchdog; figures are of the third iteration. The
  constants are the study's; `dear`: demand paging at a fifth of the prefetches' rate.
  Geometric means over traces, for each oversubscription:

    sim.gate.gain, sim.gate.dear.gain   time without gates / with them; least and most in the row
    sim.gate.left, sim.gate.dear.left   the same, gates left to the watchdog
    sim.gate.share                      gates set, of all launches of the five iterations
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from harness import Row
from sim_planned import MEASURED, case_of

if TYPE_CHECKING:
    from pump.profiles import Profile
    from pump.sim.simulation import Outcome
    from pump.sim.tensors import TensorTrace

PROFILE = "a100-pcie4"
POLICY = "planned+discard"
DEAR_SHARE = 5


def rows(
    traces: Iterable[TensorTrace], settings: dict[str, str], ratios: Iterable[float]
) -> Iterator[Row]:
    """Rows for each oversubscription. `settings`: the study's constants."""
    from pump import profiles

    dear = str(float(settings["link.prefetch_h2d_gbps"]) / DEAR_SHARE)
    found = list(traces)
    for name, changes in (("", settings), (".dear", {**settings, "link.demand_gbps": dear})):
        profile = profiles.load(PROFILE).changed(changes)
        for ratio in ratios:
            outcomes = [by_gate(trace, profile, ratio) for trace in found]
            for row, gate in (("gain", "set"), ("left", "left")):
                yield _ratio(f"sim.gate{name}.{row}", outcomes, gate, ratio, changes)
            share = sum(o["set"].gates.count for o in outcomes)
            operations = sum(o["set"].operations for o in outcomes)
            facts = {"oversubscription": ratio, "traces": len(found), "simulated": True}
            if not name:
                yield Row("sim.gate.share", share / operations, "of launches", **facts)


def by_gate(trace: TensorTrace, profile: Profile, ratio: float) -> dict[str, Outcome]:
    """The trace at that oversubscription, by what is done with gates."""
    from pump.sim import contenders
    from pump.sim.simulation import GATES

    case = case_of(trace, profile)
    case = case.with_memory(int(case.program.peak_bytes / ratio))
    contender = contenders.by_name(POLICY)
    program = case.of(contender)
    assert program is not None
    return {
        gate: contenders.simulate(contender, program, replace(case.machine, gate=gate))
        for gate in GATES
    }


def _ratio(
    name: str, outcomes: list[dict[str, Outcome]], gate: str, ratio: float, changes: dict[str, str]
) -> Row:
    gains = [
        o["never"].stretches[MEASURED].seconds / o[gate].stretches[MEASURED].seconds
        for o in outcomes
    ]
    return Row(
        name,
        math.exp(sum(map(math.log, gains)) / len(gains)),
        "x",
        oversubscription=ratio,
        least=min(gains),
        most=max(gains),
        traces=len(gains),
        gates=sum(o[gate].gates.count for o in outcomes),
        simulated=True,
        profile_settings=changes,
    )
