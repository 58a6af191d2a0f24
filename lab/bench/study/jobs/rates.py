"""How fast jobs run beside each other, on one engine and one link. Pure.

DESIGN
  Rates are means over many iterations and many turns. A resource (the engine, the link to the GPU,
  the link to the host, both directions together) gives each job what it wants as far as that is no
  more than its share, by weight on the engine; what one leaves others have. A kernel that waits for
  its memory holds the engine: a job wants it for as long as its kernels take, waits included. Those
  of a job that yields wait before they have it (docs/decisions/0073-gates.md).

  A job that has shares e of the engine and l of the link takes  c / e * slow(budget, l / e)  for an
  iteration of c seconds: slower kernels on the same link are the same kernels on a faster one. Its
  share of the link is that in the direction that it lacks most. All jobs' rates depend on each
  other's; they are found by going around until nothing changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from study.jobs.curves import Curve

ROUNDS: Final = 60
CLOSE: Final = 3e-3
"""Rates that change by less are found."""
ENGINE, COME, LEAVE, BOTH = range(4)
"""Resources."""
SHRINKING: Final = 1e18
"""What a job wants of the link while it gives memory back, in seconds a second: all."""


@dataclass(frozen=True)
class Link:
    """Rates in bytes a second. both: what both directions carry at once, of one direction's."""

    come: float
    leave: float
    both: float


class Load(NamedTuple):
    """One job as it runs now.

    seconds, bytes_: an iteration's kernels, the footprint. budget: of the footprint. compute:
    kernels' time for a byte / the curve's. engine: weight; 0: does not run. filling: has room for
    what comes, so that nothing leaves for it. shrinking: gives memory back. yields: its kernels
    wait for their memory before they have the engine.
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
    """iterations: a second. come, leave: bytes a second for these. back: bytes a second that a
    shrinking job gives back besides."""

    iterations: float
    come: float
    leave: float
    back: float


STILL: Final = Flow(0.0, 0.0, 0.0, 0.0)


def flows(loads: Sequence[Load], link: Link, before: Sequence[float] = ()) -> list[Flow]:
    """What each job does. before: iterations a second from which to search."""
    return _Beside(loads, link).settled(before)


def alone(load: Load, link: Link) -> Flow:
    """What it would do without others."""
    return flows([load], link)[0]


class _Beside:
    def __init__(self, loads: Sequence[Load], link: Link) -> None:
        self.loads, self.link = loads, link
        self.most = (1.0, 1.0, 1.0, link.both)
        self.running = [i for i, load in enumerate(loads) if load.engine > 0]
        self.rates = dict.fromkeys(self.running, 0.0)
        self.needs = dict.fromkeys(self.running, (0.0,) * 4)
        """Of each resource for an iteration, in seconds of all of it."""
        self.floors = {
            i: loads[i].curve.at(loads[i].budget, loads[i].compute).slow for i in self.running
        }
        """With less than all of the engine or the link it is no faster than that."""
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
        """Of the engine, and of the link where the job lacks it most."""
        need = self.needs[i]
        engine = self._could_have(ENGINE, i)
        full = max(need[one] / self.most[one] for one in (COME, LEAVE, BOTH))
        share = 1.0
        for one in (COME, LEAVE, BOTH):
            if need[one] > 0:
                share = min(share, self._could_have(one, i) * full / need[one])
        return engine, share

    def _could_have(self, resource: int, i: int) -> float:
        """What the job would have if it wanted all, at most all of it."""
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
        """No resource is used beyond what there is, whatever is left of the search's error."""
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
    """What a user of this weight can have beside others that want so much, by their weights: all
    share by weight, what one does not want the others share."""
    whole = weight + sum(one[1] for one in others)
    left = most
    for wants, share in sorted(others, key=_until):
        if wants * whole > share * left:
            break
        left -= wants
        whole -= share
    return max(0.0, left) * weight / whole


def _until(other: tuple[float, float]) -> float:
    """The level at which it has what it wants."""
    return other[0] / other[1]
