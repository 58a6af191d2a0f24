"""Mixes that the simulator of several jobs and the virtual GPU can both run. Pure.

DESIGN
  Each job goes through its buffers in order, again and again (examples/cyclic_sweep.py), under the
  policy planned. Its curve is the simulator's curve of such a sweep. Kernel times, footprints and
  pauses differ between jobs; jobs begin together and never end. The mixes were chosen before any
  mix ran on the virtual GPU.

  A way of sharing gives budgets that never change, or leases of `pumpd serve`. The memory that no
  job may have (HEADROOM) holds the blocks that faults bring in above a budget.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Final

from study.jobs import curves, ways, world
from study.jobs.world import Card, Job, Seen, Way

if TYPE_CHECKING:
    from study.jobs.curves import Curve
    from study.jobs.rates import Link

    from pump_lab.profiles import Profile

BUFFER_BYTES: Final = 64 << 20
CARD_BYTES: Final = 32 * BUFFER_BYTES
SETTINGS: Final = {
    "link.prefetch_h2d_gbps": "6",
    "link.copy_h2d_gbps": "6",
    "link.copy_d2h_gbps": "6",
    "kernel.sweep.gbps": "15",
    "uvm.call_work_share": "0",
}
"""Settings of the virtual GPU: a quarter of its link, and driver calls that block instead of using
a CPU core, so that two cores serve three jobs in time."""
HEADROOM: Final = 0.1
"""Share of the GPU that is left free with budgets set by hand; with leases it is 3 %."""
HEADROOM_OF_SERVICE: Final = 0.03
HORIZON_S: Final = 60.0
DIFFERS: Final = 0.1
"""Ways whose simulated progress differs by more must have the same order elsewhere."""


@dataclass(frozen=True)
class Sweep:
    """`passes`: kernels on each buffer in a row. `pause_s`: pause after each iteration."""

    buffers: int
    passes: int = 1
    pause_s: float = 0.0
    priority: int = 0

    @property
    def footprint_bytes(self) -> int:
        return self.buffers * BUFFER_BYTES

    def job(self, curve: Curve, memory_bytes: int) -> Job:
        """Returns the simulator's job on a GPU with `memory_bytes` for jobs."""
        return Job(
            curve,
            self.footprint_bytes / memory_bytes,
            self.passes,
            self.priority,
            work=1.0 if self.pause_s else math.inf,
            pause_s=self.pause_s,
        )


MIXES: Final[dict[str, tuple[Sweep, ...]]] = {
    "equals": (Sweep(26), Sweep(26)),
    "small_beside_large": (Sweep(14), Sweep(44)),
    "slow_beside_quick": (Sweep(26, 4), Sweep(26)),
    "pausing": (Sweep(26, pause_s=0.3), Sweep(36)),
    "ranked": (Sweep(26, priority=10), Sweep(26, 4, priority=-10)),
    "three": (Sweep(20), Sweep(20), Sweep(20, pause_s=0.3)),
    "three_ranked": (Sweep(24, priority=-10), Sweep(12), Sweep(28, priority=10)),
}


@dataclass(frozen=True)
class Sharing:
    """A way of sharing. `by_leases`: leases of a service instead of budgets that are given once.
    `turns`: that service uses turns. `priorities`: the jobs have priorities."""

    way: Way
    by_leases: bool = False
    turns: bool = False
    priorities: bool = False

    @property
    def card_bytes(self) -> int:
        """Returns the bytes that jobs share."""
        left = HEADROOM_OF_SERVICE if self.by_leases else HEADROOM
        return int(CARD_BYTES * (1 - left))


def sharings(mix: Sequence[Sweep]) -> dict[str, Sharing]:
    """Returns the ways for a mix: most for the first or the last job, equal shares, and the
    service's. The service runs without turns, with turns, and both with the jobs' priorities, if
    there are any."""
    first = [1.0] + [0.2] * (len(mix) - 1)
    found = {
        "first": Sharing(ways.Partition(first)),
        "last": Sharing(ways.Partition(first[::-1])),
        "equal": Sharing(ways.Equal()),
        "water": Sharing(ways.Arbiter(), by_leases=True),
        "turns": Sharing(ways.InTurns(), by_leases=True, turns=True),
    }
    if any(sweep.priority for sweep in mix):
        way: Way = ways.Arbiter(priorities=True)
        found["priorities"] = Sharing(way, by_leases=True, priorities=True)
        way = ways.InTurns(priorities=True)
        found["turns_priorities"] = Sharing(way, by_leases=True, turns=True, priorities=True)
    return found


def curve(profile: Profile) -> Curve:
    """Returns the curve of a sweep through as many buffers as fit. `profile`: with SETTINGS."""
    from pump_lab.sim.program import WRITE
    from pump_lab.sim.tensors import Kernel, Tensor, TensorTrace

    count = CARD_BYTES // BUFFER_BYTES
    duration_ns = round(BUFFER_BYTES / float(SETTINGS["kernel.sweep.gbps"]))
    buffers = {i: Tensor(BUFFER_BYTES, True, i, i) for i in range(count)}
    kernels = [Kernel(duration_ns, ((i, WRITE),), i) for i in range(count)]
    return curves.measured(TensorTrace("sweep", buffers, kernels), profile)


@dataclass(frozen=True)
class Simulated:
    """Each job's iterations a second with others and without; budgets in bytes, 0 with leases."""

    rates: list[float]
    alone: list[float]
    budgets: list[int]

    @property
    def progress(self) -> list[float]:
        """Returns the progress of each job."""
        return [rate / own for rate, own in zip(self.rates, self.alone, strict=True)]

    @property
    def mean(self) -> float:
        """Returns the mean progress of all jobs."""
        return fmean(self.progress)


def simulated(mix: Sequence[Sweep], sharing: Sharing, curve: Curve, link: Link) -> Simulated:
    """Simulates a mix under a way of sharing."""

    def on(memory_bytes: int) -> tuple[Card, list[Job]]:
        return Card(memory_bytes, link), [sweep.job(curve, memory_bytes) for sweep in mix]

    card, jobs = on(sharing.card_bytes)
    beside = world.World(jobs, card, sharing.way).run(HORIZON_S)
    whole = on(int(CARD_BYTES * (1 - HEADROOM_OF_SERVICE)))
    alone = [world.alone(one, i, whole[0], HORIZON_S) for i, one in enumerate(whole[1])]
    budgets = [0] * len(mix)
    if not sharing.by_leases:
        seen = [Seen(i, one, mix[i].footprint_bytes, 1.0, True, 0.0) for i, one in enumerate(jobs)]
        targets = sharing.way.look(0.0, seen, card).targets
        budgets = [targets[i] for i in range(len(mix))]
    return Simulated(
        [one.iterations / HORIZON_S for one in beside],
        [one.iterations / HORIZON_S for one in alone],
        budgets,
    )


def disagreements(
    simulated_: dict[str, float], measured: dict[str, float]
) -> tuple[int, list[tuple[str, str]]]:
    """Returns how many pairs of ways the simulator separates by DIFFERS, and the pairs that were
    measured in the opposite order. Both arguments: progress by way."""
    ordered = [
        (better, worse)
        for better in simulated_
        for worse in simulated_
        if simulated_[better] > (1 + DIFFERS) * simulated_[worse]
    ]
    wrong = [(better, worse) for better, worse in ordered if measured[better] <= measured[worse]]
    return len(ordered), wrong
