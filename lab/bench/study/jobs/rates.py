"""How fast jobs run side by side, on one engine and one link. Pure.

DESIGN
  Rates are means over many iterations and many turns. Resources are the engine, the link to the
  GPU, the link to the host, and both directions together. Each job gets what it wants of a
  resource, up to its share, which is by weight for the engine. Unused shares go to the other jobs.
  A kernel that waits for its memory holds the engine: a job wants the engine for as long as its
  kernels take, including waits. Kernels of a job that yields wait before they get the engine
  (docs/decisions/0073-gates.md).

  With shares e of the engine and l of the link, an iteration of c seconds takes this many seconds:
  c/e*slow(budget, l/e). Slower kernels on the same link are like the same kernels on a faster link.
  A job's share of the link is its share in the scarcest direction. All jobs' rates depend on each
  other; they are updated in rounds until they stop changing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from study.jobs.curves import Curve

ROUNDS: Final = 60
CLOSE: Final = 3e-3
"""Rates that change by less have converged."""
ENGINE, COME, LEAVE, BOTH = range(4)
"""Resources."""
SHRINKING: Final = 1e18
"""Link time that a job wants while it gives memory back, in seconds a second: all of it."""


@dataclass(frozen=True)
class Link:
    """Rates in bytes a second. `both`: the rate of both directions together / of one direction."""

    come: float
    leave: float
    both: float


class Load(NamedTuple):
    """One job as it runs now.

    `seconds`, `bytes_`: an iteration's kernel time, the footprint. `budget`: share of the
    footprint. `compute`: kernel time for a byte / the curve's. `engine`: weight; 0: does not run.
    `filling`: has free memory for arrivals, so nothing is evicted for them. `shrinking`: gives
    memory back. `yields`: its kernels wait for their memory before they get the engine.
    """

    curve: Curve
    seconds: float
    bytes_: float
    budget: float
    compute: float
    engine: float = 1.0
    filling: bool = False
    shrinking: bool = False
    yields: bool = False


class Flow(NamedTuple):
    """`iterations`: a second. `come`, `leave`: bytes a second for these. `back`: further bytes a
    second that a shrinking job gives back."""

    iterations: float
    come: float
    leave: float
    back: float


STILL: Final = Flow(0.0, 0.0, 0.0, 0.0)


def flows(loads: Sequence[Load], link: Link, before: Sequence[float] = ()) -> list[Flow]:
    """Returns the rates of each job. `before`: iterations a second to start the search with."""
    return _Beside(loads, link).settled(before)


def alone(load: Load, link: Link) -> Flow:
    """Returns the rates that the job would have without others."""
    return flows([load], link)[0]


class _Beside:
    def __init__(self, loads: Sequence[Load], link: Link) -> None:
        self.loads, self.link = loads, link
        self.most = (1.0, 1.0, 1.0, link.both)
        self.running = [i for i, load in enumerate(loads) if load.engine > 0]
        self.rates = dict.fromkeys(self.running, 0.0)
        self.needs = dict.fromkeys(self.running, (0.0,) * 4)
        """Use of each resource by an iteration, in seconds of the whole resource."""
        self.floors = {
            i: loads[i].curve.at(loads[i].budget, loads[i].compute).slow for i in self.running
        }
        """Slow-down with the whole engine and link; with less, a job is not faster."""
        self.back = [i for i, load in enumerate(loads) if load.shrinking]

    def settled(self, before: Sequence[float]) -> list[Flow]:
        for i in self.running:
            self._look(i, 1.0, 1.0)
            if before and before[i]:
                self.rates[i] = min(self.rates[i], before[i])
        for _ in range(ROUNDS if len(self.loads) > 1 else 1):
            off = 0.0
            for i in self.running:
                last = self.rates[i]
                self._look(i, *self._shares(i))
                self.rates[i] = (self.rates[i] + last) / 2
                off = max(off, abs(self.rates[i] - last) / last)
            if off < CLOSE:
                break
        self._fit()
        return [self._flow(i) for i in range(len(self.loads))]

    def _look(self, i: int, engine: float, share: float) -> None:
        """Sets rate and needs by shares of the engine and the link."""
        load = self.loads[i]
        slow, come, leave = load.curve.at(load.budget, load.compute * share / engine)
        self.rates[i] = 1 / (load.seconds * max(slow / engine, self.floors[i]))
        come_s = come * load.bytes_ / self.link.come
        leave_s = max(0.0, leave - come * load.filling) * load.bytes_ / self.link.leave
        engine_s = load.seconds * (1.0 if load.yields else slow)
        self.needs[i] = engine_s, come_s, leave_s, come_s + leave_s

    def _shares(self, i: int) -> tuple[float, float]:
        """Returns the job's shares of the engine, and of the link where the job lacks it most."""
        need = self.needs[i]
        engine = self._could_have(ENGINE, i)
        full = max(need[one] / self.most[one] for one in (COME, LEAVE, BOTH))
        share = 1.0
        for one in (COME, LEAVE, BOTH):
            if need[one] > 0:
                share = min(share, self._could_have(one, i) * full / need[one])
        return engine, share

    def _could_have(self, resource: int, i: int) -> float:
        """Returns the job's part of a resource if it wanted all of the resource."""
        weight = self._weight(resource, i)
        others = [
            (self.rates[k] * self.needs[k][resource], self._weight(resource, k))
            for k in self.running
            if k != i and self.needs[k][resource] > 0
        ]
        if resource in (LEAVE, BOTH):
            others += [(SHRINKING, 1.0)] * len(self.back)
        return left_for(self.most[resource], weight, others)

    def _weight(self, resource: int, i: int) -> float:
        return self.loads[i].engine if resource == ENGINE else 1.0

    def _fit(self) -> None:
        """Lowers rates until no resource is overused, despite the search's error."""
        for resource, most in enumerate(self.most):
            used = sum(self.rates[i] * self.needs[i][resource] for i in self.running)
            if used > most:
                for i in self.running:
                    if self.needs[i][resource] > 0:
                        self.rates[i] *= most / used

    def _flow(self, i: int) -> Flow:
        back = 0.0
        if i in self.back:
            back = self.link.leave * min(
                self._spare(LEAVE) / len(self.back), self._spare(BOTH) / len(self.back)
            )
        if i not in self.rates:
            return STILL._replace(back=back)
        rate, need = self.rates[i], self.needs[i]
        come, leave = need[COME] * self.link.come, need[LEAVE] * self.link.leave
        return Flow(rate, rate * come, rate * leave, back)

    def _spare(self, resource: int) -> float:
        used = sum(self.rates[i] * self.needs[i][resource] for i in self.running)
        return max(0.0, self.most[resource] - used)


def left_for(most: float, weight: float, others: Sequence[tuple[float, float]]) -> float:
    """Returns how much a user of this weight gets next to `others`, given as (wanted, weight). All
    share by weight; parts that a user does not want go to the others."""
    whole = weight + sum(one[1] for one in others)
    left = most
    for wants, share in sorted(others, key=_until):
        if wants * whole > share * left:
            break
        left -= wants
        whole -= share
    return max(0.0, left) * weight / whole


def _until(other: tuple[float, float]) -> float:
    """Returns the level that satisfies the user."""
    return other[0] / other[1]
