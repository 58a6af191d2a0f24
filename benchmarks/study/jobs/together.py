"""Ours: shares for the most progress of all jobs, from curves that the jobs publish. Pure.

DESIGN
  The curves say how fast each job would be with any budgets beside the others (rates.py). Plans are
  valued by the sum of weight x (progress / progress alone):

  - all jobs run. From what water filling gives on, memory goes in steps from the job that loses
    least to the one that gains most, as long as that helps;
  - turns. Some of the smallest jobs always have their memory; of the others those that fit beside
    them have the rest in turn, less the time that it takes to move it. A job whose turn it is not
    keeps what is left, and has of the engine and the link what the others leave.

  Jobs are taken to pause as they have paused before: what they leave then goes to those that do
  not. A plan in which a job makes less than FLOOR of its progress under equal shares is worth less.
  A job that pauses for longer than it takes to move its memory out and back does not count until
  it runs. Plans change when the jobs that count or their sizes do, so they do not swing.
"""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from study.jobs import rates, ways
from study.jobs.curves import Curve
from study.jobs.world import Card, Seen, Shares

from pump.model.bounds import BLOCK_BYTES

FLOOR: Final = 0.85
PENALTY: Final = 5.0
"""Worth of progress below the floor."""
PARTS: Final = (8, 32)
"""Of the memory that change hands at once."""
GAIN_LEAST: Final = 1e-3
TURNS_GAIN: Final = 0.1
"""By which turns have to be better."""
TURNS_S: Final = (5.0, 10.0, 30.0)
LOST: Final = 0.7
"""Of the time in which memory moves."""
BESIDE: Final = 0.02
"""Weight of jobs whose turn it is not."""
LONG_PAUSE: Final = 2.0
"""Of the time that it takes to move a job's memory both ways."""
PUBLISHED_BUDGETS: Final = (0, 2, 4, 6, 8, 9)
PUBLISHED_RATES: Final = (0, 2, 3, 4, 6)
"""Places of a curve that a job publishes."""
ERROR: Final = 0.1
"""By which each of these is off, at most."""

Budgets = dict[int, int]
"""Bytes by job."""


class Plan(NamedTuple):
    """slots: budgets of the jobs that run, in turn, each for turn_s."""

    slots: tuple[Budgets, ...]
    turn_s: float
    worth: float


class Jobs(NamedTuple):
    """Those that count. alone, calm: iterations a second by job, and of those that never pause
    beside each other. least: progress with equal shares."""

    every: Sequence[Seen]
    alone: Mapping[int, float]
    calm: Mapping[int, float]
    least: dict[int, float]


class Together:
    """Ours. turns: False: memory alone. error: of the published curves."""

    name = "ours"

    def __init__(self, *, turns: bool = True, error: float = ERROR, seed: int = 0) -> None:
        self.turns, self.error = turns, error
        self.random = random.Random(seed)
        self.curves: dict[int, Curve] = {}
        self.plans: dict[object, Plan] = {}
        """By the jobs that count and their sizes."""
        self.plan = Plan(({},), 0.0, 0.0)
        self.slot, self.until = 0, 0.0
        self.ran: dict[int, float] = {}
        """When each job last had its turn."""

    def look(self, now: float, jobs: Sequence[Seen], card: Card) -> Shares:
        count = [one for one in jobs if counts(one, card)]
        key = tuple((one.number, one.wanted_bytes, one.worked > 0) for one in count)
        if key not in self.plans:
            self.plans[key] = self._best(count, card) if count else Plan(({},), 0.0, 0.0)
        if self.plans[key] is not self.plan:
            self.plan, self.until = self.plans[key], now
        running = {one.number for one in jobs if one.runs}
        slots = self.plan.slots
        if now >= self.until or not running & slots[self.slot].keys():
            # Next are those that have waited for longest.
            self.slot = min(range(len(slots)), key=lambda i: self._last(slots[i].keys() & running))
            self.until = now + self.plan.turn_s
        self.ran |= dict.fromkeys(slots[self.slot], now)
        return self._shares(jobs, card)

    def _last(self, jobs: Collection[int]) -> float:
        return min((self.ran.get(number, -1.0) for number in jobs), default=math.inf)

    def _shares(self, jobs: Sequence[Seen], card: Card) -> Shares:
        """The slot's budgets, and what is left to the others, the next ones first."""
        slots = self.plan.slots
        budgets = dict(slots[self.slot])
        left = card.memory_bytes - sum(budgets.values())
        seen = {one.number: one for one in jobs}
        later = [n for i in range(1, len(slots)) for n in slots[(self.slot + i) % len(slots)]]
        waiting = [n for n in dict.fromkeys(later) if n not in budgets]
        rest = sorted(seen.keys() - {*waiting, *budgets}, key=lambda n: -seen[n].held_bytes)
        for number in (*waiting, *rest):
            budgets[number] = min(seen[number].wanted_bytes, left) // BLOCK_BYTES * BLOCK_BYTES
            left -= budgets[number]
        beside = dict.fromkeys(waiting, BESIDE)
        return Shares(budgets, beside, beside)

    # ---- plans ----

    def _best(self, every: Sequence[Seen], card: Card) -> Plan:
        whole = card.memory_bytes
        alone = {one.number: self._rates([one], {one.number: whole}, card)[one.number]
                 for one in every}  # fmt: skip
        steady = [one for one in every if not one.worked]
        calm = self._rates(steady, filled_with_water(steady, card), card) if steady else {}
        jobs = Jobs(every, alone, calm, {})
        equal = self._rates(every, ways.Equal().look(0.0, every, card).targets, card)
        jobs.least.update(progress_of(jobs, equal))
        budgets = self._filled(jobs, every, card)
        worth = worth_of(jobs, progress_of(jobs, self._rates(every, budgets, card)))
        best = Plan((budgets,), 0.0, worth)
        if not self.turns or sum(one.wanted_bytes for one in every) <= whole:
            return best
        turns = max(self._turns(jobs, card), key=lambda plan: plan.worth, default=best)
        return turns if turns.worth > worth * (1 + TURNS_GAIN) else best

    def _turns(self, jobs: Jobs, card: Card) -> Iterator[Plan]:
        order = sorted(jobs.every, key=lambda one: (one.wanted_bytes, one.number))
        for always in range(len(order) - 1):
            staying, others = order[:always], order[always:]
            room = card.memory_bytes - sum(one.wanted_bytes for one in staying)
            if room < card.memory_bytes // 2:
                return
            groups = packed(others, room)
            slots = [self._filled(jobs, [*staying, *group], card) for group in groups]
            found: dict[int, list[float]] = {}
            for group, budgets in zip(groups, slots, strict=True):
                for number, rate in self._rates([*staying, *group], budgets, card).items():
                    found.setdefault(number, []).append(rate)
            mean = {number: sum(of) / len(of) for number, of in found.items()}
            taken = sorted(
                (sum(slot[one.number] for one in group)
                 for slot, group in zip(slots, groups, strict=True)), reverse=True
            )  # fmt: skip
            moved = max(0, sum(taken[:2]) - room)
            move_s = 2 * moved / card.link.come / card.link.both
            turning = {one.number for one in others}
            for turn_s in TURNS_S:
                kept = max(0.0, 1 - LOST * move_s / turn_s)
                slowed = {number: rate * kept for number, rate in mean.items()}
                progress = progress_of(jobs, slowed, turning, len(groups), turn_s)
                yield Plan(tuple(slots), turn_s, worth_of(jobs, progress))

    def _filled(self, jobs: Jobs, some: Sequence[Seen], card: Card) -> Budgets:
        """Budgets for these, if they run at the same time."""
        room = card.memory_bytes
        budgets = filled_with_water(some, card)
        if sum(one.wanted_bytes for one in some) <= room:
            return budgets
        part_of = jobs._replace(every=some)

        def worth(of: Budgets) -> float:
            return worth_of(part_of, progress_of(part_of, self._rates(some, of, card)))

        best = worth(budgets)
        for parts in PARTS:
            part = room // parts // BLOCK_BYTES * BLOCK_BYTES
            while True:
                more = {one.number: worth(changed(budgets, one.number, part)) for one in some
                        if budgets[one.number] + part <= one.wanted_bytes}  # fmt: skip
                less = {one.number: worth(changed(budgets, one.number, -part)) for one in some
                        if budgets[one.number] > part}  # fmt: skip
                pairs = [(more[i] + less[k], i, k) for i in more for k in less if i != k]
                if not pairs:
                    break
                _, taker, giver = max(pairs)
                moved = changed(changed(budgets, taker, part), giver, -part)
                found = worth(moved)
                if found < best + GAIN_LEAST:
                    break
                budgets, best = moved, found
        return budgets

    def _rates(
        self, jobs: Sequence[Seen], budgets: Mapping[int, int], card: Card
    ) -> dict[int, float]:
        """Iterations a second, if all of them run."""
        loads = [
            one.load(min(budgets[one.number], one.wanted_bytes))._replace(
                curve=self._published(one)
            )
            for one in jobs
        ]
        found = rates.flows(loads, card.link)
        return {one.number: flow.iterations for one, flow in zip(jobs, found, strict=True)}

    def _published(self, one: Seen) -> Curve:
        if one.number not in self.curves:
            errors = tuple(
                tuple(1 + self.random.uniform(-self.error, self.error) for _ in PUBLISHED_RATES)
                for _ in PUBLISHED_BUDGETS
            )
            curve = one.job.curve
            self.curves[one.number] = curve.coarser(PUBLISHED_BUDGETS, PUBLISHED_RATES, errors)
        return self.curves[one.number]


def counts(one: Seen, card: Card) -> bool:
    """Whether its memory is not better used by others until it runs."""
    both_s = one.wanted_bytes / card.link.come + one.wanted_bytes / card.link.leave
    return one.runs or one.paused_s < LONG_PAUSE * both_s


def changed(budgets: Budgets, number: int, bytes_: int) -> Budgets:
    """With one budget changed by so many bytes."""
    return {**budgets, number: budgets[number] + bytes_}


def packed(jobs: Sequence[Seen], room: int) -> list[list[Seen]]:
    """Groups that fit into the room together, the largest jobs first, each into the first group
    that has place; a job larger than the room is a group of its own."""
    groups: list[list[Seen]] = []
    for one in sorted(jobs, key=lambda one: (-one.wanted_bytes, one.number)):
        for group in groups:
            if sum(other.wanted_bytes for other in (*group, one)) <= room:
                group.append(one)
                break
        else:
            groups.append([one])
    return groups


def filled_with_water(jobs: Sequence[Seen], card: Card) -> Budgets:
    """What today's arbiter would give to jobs that all run, and no more than they want."""
    always = [one._replace(use=1.0) for one in jobs]
    found = ways.Arbiter().look(0.0, always, card).targets
    return {one.number: min(found[one.number], one.wanted_bytes) for one in jobs}


def progress_of(
    jobs: Jobs,
    found: Mapping[int, float],
    turning: Collection[int] = (),
    turns: int = 1,
    turn_s: float = 0.0,
) -> dict[int, float]:
    """By job. found: iterations a second while it runs. turning: those that run in one of so many
    turns. What the others that pause leave goes to those that do not."""
    progress, duties = {}, []
    for one in jobs.every:
        if not one.worked:
            continue
        count = turns if one.number in turning else 1
        waits_s = (count - 1) ** 2 * turn_s / (2 * count)
        busy_s = one.worked / max(found[one.number], 1e-9)
        busy_s = max(busy_s + waits_s, count * busy_s if busy_s > turn_s else 0.0)
        whole_s = busy_s + one.paused_s
        duties.append(busy_s / whole_s)
        progress[one.number] = (one.worked / jobs.alone[one.number] + one.paused_s) / whole_s
    contended = sum(duties) / len(duties) if duties else 1.0
    for one in jobs.every:
        if not one.worked:
            rate = found[one.number] / (turns if one.number in turning else 1)
            rate = contended * rate + (1 - contended) * jobs.calm[one.number]
            progress[one.number] = rate / jobs.alone[one.number]
    return progress


def worth_of(jobs: Jobs, progress: Mapping[int, float]) -> float:
    """By weight, less what a job lacks of FLOOR of its progress under equal shares."""
    found = 0.0
    for one in jobs.every:
        share = progress[one.number]
        lacks = max(0.0, FLOOR * jobs.least.get(one.number, 0.0) - share)
        found += one.job.weight * (share - PENALTY * lacks)
    return found
