"""Part of suites/sim.py: cost and benefit of the memory that pump leaves to others.

DESIGN
  Each trace is replayed five times with discards; values are of the third iteration. Pump leaves
  `reserve` of the memory, as if others had none; others have `taken`. There is one row for each
  policy, oversubscription, reserve and share taken, with geometric means over traces:

    `sim.reserve.<policy>`   Time / time with pump's own reserve and nothing taken. `h2d`: bytes to
                             the GPU / the least possible with all of the memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from harness import Row
from study.sim_planned import case_of, least_bytes, steady

if TYPE_CHECKING:
    from pump_lab.profiles import Profile
    from pump_lab.sim.report import Case
    from pump_lab.sim.tensors import TensorTrace

POLICIES = ("window", "planned")
RESERVES = (3.0, 1.0, 0.5)
TAKEN = (0.0, 1.0, 2.0, 3.0)
"""RESERVES and TAKEN are percentages of the memory. The first reserve is pump's own."""


def rows(traces: Iterable[TensorTrace], profile: Profile, ratios: Iterable[float]) -> Iterator[Row]:
    cases = [case_of(trace, profile) for trace in traces]
    for ratio in ratios:
        sized = [case.with_memory(int(case.program.peak_bytes / ratio)) for case in cases]
        least = [least_bytes(case)["h2d_of_memory"] for case in sized]
        for policy in POLICIES:
            base = [steady(left(case, RESERVES[0]), f"{policy}+discard") for case in sized]
            for reserve in RESERVES:
                for taken in TAKEN:
                    found = [steady(left(c, reserve, taken), f"{policy}+discard") for c in sized]
                    times = zip(found, base, strict=True)
                    moved = zip(found, least, strict=True)
                    yield Row(
                        f"sim.reserve.{policy}",
                        mean(one.seconds / usual.seconds for one, usual in times),
                        "x",
                        oversubscription=ratio,
                        case=f"reserve {reserve:g} %, taken {taken:g} %",
                        reserve_percent=reserve,
                        taken_percent=taken,
                        h2d=mean(one.h2d_bytes / bytes_ for one, bytes_ in moved),
                        traces=len(sized),
                        profile=profile.name,
                        simulated=True,
                        mapping="caching",
                    )


def left(case: Case, reserve: float, taken: float = 0.0) -> Case:
    """Returns the case in which pump leaves and others take these percentages of the memory."""
    from pump.model.bounds import BLOCK_BYTES

    blocks = case.machine.memory_bytes // BLOCK_BYTES
    bytes_ = int(blocks * taken / 100) * BLOCK_BYTES
    machine = replace(case.machine, reserve_percent=reserve, taken_bytes=bytes_)
    return replace(case, machine=machine)


def mean(values: Iterable[float]) -> float:
    """Returns the geometric mean."""
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs))
