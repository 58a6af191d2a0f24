"""Plans the speed stage's measurements and their order, and computes the results. Pure.

DESIGN
  A phase is one policy under one budget, timed over some iterations of a running training. A round
  has one phase without a limit and one phase for each policy. The order rotates from round to
  round, so that disturbances affect all policies alike. Ratios are computed within a round, and
  results are their medians. One oversubscription is finished before the next begins, so that an
  interrupted run has complete results.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import floor
from paired import compare, interval

__all__ = ["compare", "interval"]

UNLIMITED, DEMAND, WINDOW = "unlimited", "demand", "window"
ROUNDS = 3
SPEEDUP_WANTED = 2.0
"""Required speedup of window over emulated demand at 1.5x and 2x."""
DEMAND_LABEL = (
    "emulated: pump's executors evict what was migrated longest ago, as the driver would; "
    "the budget may be exceeded by overshoot_bytes"
)


@dataclass(frozen=True)
class Phase:
    """One measurement. `ratio`: footprint / budget; the unlimited phase has the ratio of its
    round."""

    ratio: float
    round: int
    policy: str


@dataclass(frozen=True)
class Measured:
    """Result of a phase. Bytes are pump's own transfers in the timed iterations.

    `floor_h2d_bytes`: least that any policy must bring in then; None if unknown.
    `overshoot_bytes`: most bytes above the budget since the switch, even briefly.
    `resident_bytes`: at the end. `settled`: before timing, residency had reached the budget and
    traffic was steady, after `settling_iterations`.
    """

    phase: Phase
    iterations: int
    seconds: float
    budget_bytes: int
    to_gpu_bytes: int
    to_host_bytes: int
    overshoot_bytes: int
    resident_bytes: int
    blocks_used: int
    blocks_hit: int
    floor_h2d_bytes: int | None
    settled: bool
    settling_iterations: int

    @property
    def seconds_per_iteration(self) -> float:
        return self.seconds / self.iterations

    def as_json(self) -> dict[str, Any]:
        return {"kind": "phase", **asdict(self)}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Measured:
        values = {key: value for key, value in found.items() if key != "kind"}
        return cls(**{**values, "phase": Phase(**values["phase"])})


def phases(ratio: float, policies: Sequence[str], rounds: int) -> Iterator[Phase]:
    """Yields all phases of one oversubscription, in order."""
    every = [UNLIMITED, *policies]
    for number in range(rounds):
        turn = number % len(every)
        for policy in every[turn:] + every[:turn]:
            yield Phase(ratio, number, policy)


def tag(ratio: float) -> str:
    """Returns an oversubscription's part of names: 1.5 -> "1_5x"."""
    return f"{ratio:g}".replace(".", "_") + "x"


def budget_bytes(footprint_bytes: int, ratio: float) -> int:
    """Returns the footprint divided by `ratio`, in whole blocks."""
    return int(footprint_bytes / ratio) // floor.BLOCK_BYTES * floor.BLOCK_BYTES


def iterations_of(unit_seconds: float, unit: int, target_seconds: float) -> int:
    """Returns how many iterations to time: about `target_seconds`, and 3 to 24 whole units.

    `unit`: iterations after which the training repeats itself. `unit_seconds`: time of a unit.
    """
    return unit * max(3, min(24, round(target_seconds / max(unit_seconds, 1e-6))))


def floor_seconds(measured: Measured, found: Sequence[Measured], link: float) -> float | None:
    """Returns the least possible time of an iteration in that phase. It follows from the least
    computing time of any round, and from the least bytes over the link (bytes per second)."""
    computing = [one.seconds_per_iteration for one in found if one.phase.policy == UNLIMITED]
    if measured.floor_h2d_bytes is None or not computing:
        return None
    least = floor.Traffic(measured.floor_h2d_bytes // measured.iterations, 0)
    return floor.floor_seconds(min(computing), least, link)


def figures(found: Sequence[Measured], policy: str, link: float) -> dict[str, Any]:
    """Returns one policy's results at one oversubscription, from the rounds that completed it.

    Returns {} if no round has both the policy and the unlimited phase. speedup_over_demand_emulated
    is None for demand itself, and if the round has no demand phase.
    """
    rounds: dict[int, dict[str, Measured]] = {}
    for measured in found:
        rounds.setdefault(measured.phase.round, {})[measured.phase.policy] = measured
    whole = [one for _, one in sorted(rounds.items()) if UNLIMITED in one and policy in one]
    if not whole:
        return {}
    own = [one[policy] for one in whole]
    slowdowns = [
        one[policy].seconds_per_iteration / one[UNLIMITED].seconds_per_iteration for one in whole
    ]
    against = [
        one[DEMAND].seconds_per_iteration / one[policy].seconds_per_iteration
        for one in whole
        if DEMAND in one and policy != DEMAND
    ]
    floors = [floor_seconds(one[policy], found, link) for one in whole]
    shares = [
        least / one.seconds_per_iteration
        for least, one in zip(floors, own, strict=True)
        if least is not None
    ]
    used = sum(one.blocks_used for one in own)
    result = {
        "slowdown": median(slowdowns),
        "of_floor": median(shares) if shares else None,
        "speedup_over_demand_emulated": median(against) if against else None,
        "overshoot_bytes": max(one.overshoot_bytes for one in own),
        "seconds_per_iteration": median([one.seconds_per_iteration for one in own]),
        "unlimited_seconds_per_iteration": median(
            [one[UNLIMITED].seconds_per_iteration for one in whole]
        ),
        "slowdown_interval": interval(slowdowns),
        "speedup_interval": interval(against) if against else None,
        "prefetched_bytes_per_iteration": _each(own, "to_gpu_bytes"),
        "evicted_bytes_per_iteration": _each(own, "to_host_bytes"),
        "floor_to_gpu_bytes_per_iteration": (_each(own, "floor_h2d_bytes") if shares else None),
        "budget_bytes": own[0].budget_bytes,
        "over_budget_at_end_bytes": max(
            max(0, one.resident_bytes - one.budget_bytes) for one in own
        ),
        "hit_share": sum(one.blocks_hit for one in own) / used if used else None,
        "rounds": len(whole),
        "iterations_timed": sum(one.iterations for one in own),
        "settled": all(one.settled for one in own),
        "seconds_per_iteration_of_rounds": [one.seconds_per_iteration for one in own],
        "unlimited_seconds_per_iteration_of_rounds": [
            one[UNLIMITED].seconds_per_iteration for one in whole
        ],
    }
    if policy == DEMAND:
        result["label"] = DEMAND_LABEL
    return result


def _each(own: Sequence[Measured], name: str) -> int:
    """Returns the median of a phase's bytes per iteration."""
    return int(median([getattr(one, name) / one.iterations for one in own]))


def speedup_possible(found: Sequence[Measured], link: float) -> float | None:
    """Returns the speedup of a policy at the floor over emulated demand; None if unknown."""
    pairs = [
        (one.seconds_per_iteration, floor_seconds(one, found, link))
        for one in found
        if one.phase.policy == DEMAND
    ]
    values = [seconds / least for seconds, least in pairs if least is not None]
    return median(values) if values else None
