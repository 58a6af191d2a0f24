"""Ours: memory and turns for the most progress of all jobs, guided by what they have had. Pure.

DESIGN
  What jobs publish: curves (how fast they would be with any budgets beside each other, rates.py),
  seconds of their kernels that have run, their pauses so far.

  Choices. Some of the jobs that run have the memory, as water filling gives it, equally, or one of
  them first; the others keep what is left, and run with a fiftieth of the weight. All sets are
  looked at while at most FEW run; of more all, the first ones, and each alone.

  Worth. The sum of iterations a second x value x lack, less what it costs to move memory.

  - Value: progress for an iteration, by the job's mean pauses. One that has not paused yet might
    still; the longer it has run the less. Work of a job that came lately is more of its progress.
  - Lack: how far the job is behind what it would have had with equal shares (shadow.py). From
    GOAL of that on it is one; below, it rises so steeply that no value is above it. So what a wrong
    curve or a wrong guess costs a job comes back to it.

  A choice in which a job has much less than with equal shares has to be paid back later: it must
  be better by STARVING. A choice stays for as long as its memory took to move, many times, so that
  plans do not swing.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Final, NamedTuple

from study.jobs import rates, ways
from study.jobs.curves import Curve
from study.jobs.shadow import Shadow
from study.jobs.world import Card, Seen, Shares

from pump.model.bounds import BLOCK_BYTES

GOAL: Final = 0.95
"""Of the work under equal shares. Jobs need 0.8; the rest is for what is known too late."""
STEEP: Final = 200.0
"""By which lack rises, for each part below the goal."""
GRACE_S: Final = 5.0
"""Of a job's work alone, which jobs share, that it may lack at first."""
ENOUGH: Final = 0.85
"""Of a job's rate under equal shares. With less it starves."""
STARVING: Final = 0.9
"""Worth of a choice in which a job starves."""
BETTER: Final = 1.1
"""By which another choice has to be better."""
LOST: Final = 0.7
"""Of the time in which memory moves."""
MOVES: Final = 10.0
"""A choice stays for so many times as long as its memory takes to come."""
STAYS_S: Final = (4.0, 30.0)
"""Least and most of that."""
SPAN_S: Final = 12.0
"""Least time over which a move is counted."""
PAUSES_S: Final = 10.0
"""Kernels' time after which a job is half as likely to pause."""
LIFE_S: Final = 150.0
"""For which a newcomer is taken to stay."""
BESIDE: Final = 0.02
"""Weight of jobs whose turn it is not."""
FEW: Final = 4
LEAST_BYTES: Final = 64 * BLOCK_BYTES
"""Kept for each of the others where one job is first."""
LONG_PAUSE: Final = 2.0
"""Of the time that it takes to move a job's memory both ways."""
ERROR: Final = 0.1
"""By which each time and each byte count of a published curve is off, at most."""

Budgets = dict[int, int]
"""Bytes by job."""


class Choice(NamedTuple):
    """chosen: the jobs that have the memory. rates: iterations a second of those that run."""

    chosen: frozenset[int]
    budgets: Budgets
    rates: Mapping[int, float]
    starves: bool


class Together:
    """Ours. turns: False: memory alone. error: of the published curves."""

    name = "ours"

    def __init__(self, *, turns: bool = True, error: float = ERROR, seed: int = 0) -> None:
        self.turns, self.error = turns, error
        self.random = random.Random(seed)
        self.curves: dict[int, Curve] = {}
        self.equal = Shadow(ways.Equal())
        self.came_s: dict[int, float] = {}
        self.known: dict[object, dict[int, float]] = {}
        self.choices: dict[object, list[Choice]] = {}
        """By the jobs that are there, those that run and those that count."""
        self.key: object = None
        self.choice = Choice(frozenset(), {}, {}, starves=False)
        self.until_s = 0.0
        self.shares = Shares({})

    def look(self, now: float, jobs: Sequence[Seen], card: Card) -> Shares:
        for one in jobs:
            self.came_s.setdefault(one.number, now)
        self.equal.follow(now, jobs, card, lambda some, of: self._rates(some, of, card))
        running = [one for one in jobs if one.runs]
        if running:
            self._choose(now, jobs, running, card)
            others = (one.number for one in running if one.number not in self.choice.chosen)
            beside = dict.fromkeys(others, BESIDE)
            self.shares = Shares(self.choice.budgets, beside, beside)
        elif self.shares.targets.keys() != {one.number for one in jobs}:
            self.shares = ways.Equal().look(now, jobs, card)
        return self.shares

    def _choose(
        self, now: float, jobs: Sequence[Seen], running: Sequence[Seen], card: Card
    ) -> None:
        count = [one for one in jobs if counts(one, card)]
        key = (
            tuple((one.number, one.wanted_bytes) for one in jobs),
            tuple(one.number for one in running),
            tuple(one.number for one in count),
        )
        if key == self.key and now < self.until_s:
            return
        values = {one.number: self._value(one, now, card) for one in running}
        if key not in self.choices:
            order = sorted(running, key=lambda one: -values[one.number] * self._alone(one, card))
            self.choices[key] = list(self._choices(order, count, jobs, card))
        weights = {one.number: values[one.number] * self._lack(one, jobs, card) for one in running}

        def come_s(choice: Choice) -> float:
            missing = (
                min(choice.budgets[one.number], one.wanted_bytes) - one.held_bytes
                for one in running if one.number in choice.chosen
            )  # fmt: skip
            return sum(max(0.0, bytes_) for bytes_ in missing) / card.link.come

        def worth(choice: Choice) -> float:
            found = sum(weights[number] * rate for number, rate in choice.rates.items())
            moved = LOST * come_s(choice)
            found *= 1 - min(0.9, moved / max(SPAN_S, MOVES * come_s(choice)))
            return found * STARVING if choice.starves else found

        best = max(self.choices[key], key=worth)
        if key == self.key and worth(best) < BETTER * worth(self.choice):
            return
        self.key = key
        if best is not self.choice:
            self.choice = best
            least_s, most_s = STAYS_S
            self.until_s = now + min(most_s, max(least_s, MOVES * come_s(best)))

    # ---- what work is worth ----

    def _value(self, one: Seen, now: float, card: Card) -> float:
        """Progress for an iteration."""
        alone = self._alone(one, card)
        if one.worked and one.paused_s:
            value = (one.worked / alone + one.paused_s) / one.worked
        else:
            value = (1 + PAUSES_S / (PAUSES_S + one.work_s)) / alone
        return value / (LIFE_S + now - self.came_s[one.number])

    def _lack(self, one: Seen, jobs: Sequence[Seen], card: Card) -> float:
        grace_s = GRACE_S * self._alone(one, card) * one.seconds / len(jobs)
        has = (one.work_s + grace_s) / (GOAL * self.equal.work_s(one.number) + grace_s)
        return 1 + STEEP * max(0.0, 1 - has)

    def _alone(self, one: Seen, card: Card) -> float:
        """Iterations a second."""
        return self._rates([one], {one.number: card.memory_bytes}, card)[one.number]

    # ---- choices ----

    def _choices(
        self, order: Sequence[Seen], count: Sequence[Seen], jobs: Sequence[Seen], card: Card
    ) -> Iterator[Choice]:
        """order: the jobs that run, those of most worth first."""
        equal = self._rates(order, ways.Equal().look(0.0, count, card).targets, card)
        known = set()
        for some in self._sets(order):
            chosen = frozenset(one.number for one in some)
            others = [one.number for one in order if one.number not in chosen]
            for budgets in _divided(some, order, count, card):
                _leave(budgets, jobs, count, card)
                key = chosen, tuple(sorted(budgets.items()))
                if key in known:
                    continue
                known.add(key)
                found = self._rates(order, budgets, card, dict.fromkeys(others, BESIDE))
                starves = any(rate < ENOUGH * equal[number] for number, rate in found.items())
                yield Choice(chosen, budgets, found, starves)

    def _sets(self, order: Sequence[Seen]) -> Iterator[Sequence[Seen]]:
        """All first: they stay where nothing is better."""
        yield order
        if not self.turns:
            return
        for size in range(len(order) - 1, 0, -1):
            if len(order) <= FEW:
                yield from combinations(order, size)
            elif size > 1:
                yield order[:size]
            else:
                yield from ((one,) for one in order)

    def _rates(
        self,
        jobs: Sequence[Seen],
        budgets: Mapping[int, int],
        card: Card,
        weights: Mapping[int, float] | None = None,
    ) -> dict[int, float]:
        """Iterations a second, if all of them run."""
        loads = []
        for one in jobs:
            weight = (weights or {}).get(one.number, 1.0)
            load = one.load(min(budgets[one.number], one.wanted_bytes), weight, weight)
            curve = self._published(one)
            loads.append(load._replace(curve=curve, budget=round(load.budget, 3)))
        key = tuple((one.number, *load[1:]) for one, load in zip(jobs, loads, strict=True))
        if key not in self.known:
            found = rates.flows(loads, card.link)
            self.known[key] = {
                one.number: flow.iterations for one, flow in zip(jobs, found, strict=True)
            }
        return self.known[key]

    def _published(self, one: Seen) -> Curve:
        if one.number not in self.curves:
            self.curves[one.number] = one.job.curve.published(self.random, self.error)
        return self.curves[one.number]


def counts(one: Seen, card: Card) -> bool:
    """Whether its memory is not better used by others until it runs."""
    both_s = one.wanted_bytes / card.link.come + one.wanted_bytes / card.link.leave
    return one.runs or one.paused_s < LONG_PAUSE * both_s


def filled_with_water(jobs: Sequence[Seen], card: Card) -> Budgets:
    """What today's arbiter would give to jobs that all run, and no more than they want."""
    always = [one._replace(use=1.0) for one in jobs]
    return _wanted(jobs, ways.Arbiter().look(0.0, always, card).targets)


def _wanted(jobs: Sequence[Seen], targets: Mapping[int, int]) -> Budgets:
    return {one.number: min(targets[one.number], one.wanted_bytes) for one in jobs}


def _divided(
    some: Sequence[Seen], running: Sequence[Seen], count: Sequence[Seen], card: Card
) -> Iterator[Budgets]:
    """The memory among these; if all have it, among those as well that pause for a short time."""
    every = len(some) == len(running)
    pausing = [one for one in count if not one.runs] if every else []
    base = [*some, *pausing]
    yield filled_with_water(base, card)
    if len(base) == 1 or sum(one.wanted_bytes for one in base) <= card.memory_bytes:
        return
    if every:
        yield _wanted(base, ways.Equal().look(0.0, base, card).targets)
        if pausing:
            yield filled_with_water(some, card)
    if not every and len(running) > FEW:
        return
    for first in some:
        rest = [one for one in base if one is not first]
        most = card.memory_bytes - len(rest) * LEAST_BYTES
        bytes_ = min(first.wanted_bytes, most) // BLOCK_BYTES * BLOCK_BYTES
        left = Card(card.memory_bytes - bytes_, card.link)
        yield {first.number: bytes_, **filled_with_water(rest, left)}


def _leave(budgets: Budgets, jobs: Sequence[Seen], count: Sequence[Seen], card: Card) -> None:
    """What is left goes to those that have most of it already, first those that count."""
    left = card.memory_bytes - sum(budgets.values())
    soon = {one.number for one in count}
    rest = [one for one in jobs if one.number not in budgets]
    for one in sorted(rest, key=lambda one: (one.number not in soon, -one.held_bytes)):
        budgets[one.number] = min(one.wanted_bytes, left) // BLOCK_BYTES * BLOCK_BYTES
        left -= budgets[one.number]
