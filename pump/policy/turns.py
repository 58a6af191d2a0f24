"""Turns: which jobs may use a GPU that does not hold all of their memory. Pure, but it remembers.

A kernel that waits for its memory holds the GPU's engine. So jobs that run together with a part of
their memory each keep each other waiting, and one after the other with all of it they do more: that
is what nvshare's time slices are for (Alexopoulos and Mitropoulos, 2024). A turn is longer the more
memory has to move for it.

Users that have had least come first, of their jobs those that have run least, and beside these what
fits into the memory that is left. Priorities are weights: a job of a lower one has turns less
often. A job that comes, or comes back from a pause, counts as one that has had as little as the
least: a pause earns nothing, so it cannot be used to have more.

What runs beside is charged for its part of the memory, and the user whose turn it is for the rest;
for all of it, if those beside have had more than one that waits. So no number of jobs or of users
makes a turn cheaper. A user that lacks LACKS_S of its share of the time ends the turn of any other.
So in any time a user with something to run has its weight's share of it, less 30 s
(docs/decisions/0075-shares-by-users.md).

Some do not wait: jobs of a priority above NO_WAIT, which have their memory first, and jobs that say
that they run for a part of the time only, as those that answer requests do. The latter are charged
for the time of others' turns. A user that has had FREE_S more than its share in that way takes
turns like all others, until it pauses without a debt.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from pump.policy.arbiter import FLOORS_SHARE

NO_WAIT: Final = 0
"""Jobs of a greater priority run in the turns of others, too."""
LAST: Final = -11
"""For the arbiter, below all priorities that jobs have."""
CROWDED: Final = 1.65
"""Turns begin where jobs want so many times the memory, each at most all of it: below, the moves
cost what turns gain."""
MOVES: Final = 10.0
"""A turn lasts so many times as long as its memory takes to come."""
TURN_S: Final = (8.0, 30.0)
"""Least and most of that."""
LACKS_S: Final = 27.0
"""A user that waits and lacks so much of its share ends the turn of one that lacks less."""
LOOK_S: Final = 1.0
"""By how much less: a turn is not ended at each look."""
FREE_S: Final = 30.0
"""What a user may have had more than others before its jobs that do not wait do: a job that
starts is not steady, either."""
PRIORITY_STEP: Final = 1.25
"""Time of a job / of one of the next lower priority: that of Linux's nice levels
(kernel/sched/core.c, sched_prio_to_weight)."""
LINK_BYTES_S: Final = 20e9
"""At which memory is taken to come: PCIe 4. A turn on a faster link is longer than it need be."""


class Ready(NamedTuple):
    """A job that has something to run. user, weight: whose it is, and the user's weight, above 0;
    a user with many jobs has no more than one with one. steady: it has for most of the time."""

    job: int
    wanted_bytes: int
    held_bytes: int
    user: int = 0
    weight: float = 1.0
    priority: int = 0
    steady: bool = True

    @property
    def above(self) -> bool:
        """It runs in the turns of others, too, and has its memory first."""
        return self.priority > NO_WAIT

    @property
    def share(self) -> float:
        """Its user's weight, as it counts with the job's priority."""
        return self.weight * PRIORITY_STEP**self.priority


class Account:
    """What each of some has had, since they came: of those that are there the least is a
    newcomer's. Each belongs to a group, within which they are compared."""

    def __init__(self) -> None:
        self._had: dict[int, float] = {}
        self._there: dict[int, int] = {}

    def come_in(self, there: Mapping[int, int]) -> None:
        """These are there from now on, with their groups. One that is away is forgotten once the
        least has had as much."""
        least: dict[int, float] = {}
        for one, group in there.items():
            if one in self._there:
                least[group] = min(least.get(group, self._had[one]), self._had[one])
        most = max(self._had.values(), default=0.0)
        for one, group in there.items():
            if one not in self._there:
                self._had[one] = max(self._had.get(one, 0.0), least.get(group, most))
        if least:
            all_least = min(least.values())
            self._had = {
                one: had for one, had in self._had.items() if one in there or had > all_least
            }
        self._there = dict(there)

    def add(self, one: int, seconds: float) -> None:
        """It has had so much more, unless it is forgotten."""
        if one in self._had:
            self._had[one] += seconds

    def of(self, one: int) -> float:
        """What it has had."""
        return self._had[one]

    def knows(self, one: int) -> bool:
        """Whether it is there, or has had more than the least that is."""
        return one in self._had

    def forget(self, one: int) -> None:
        """It does not come back."""
        self._had.pop(one, None)
        self._there.pop(one, None)


class Turns:
    """Of one GPU. Seconds are of one clock."""

    def __init__(self) -> None:
        self._users, self._jobs = Account(), Account()
        """Seconds of turns, by weights and priorities."""
        self._shares: dict[int, float] = {}
        """Of the users that were there at the last look."""
        self._lacks: dict[int, float] = {}
        """By user, the most seconds of its share that any time up to now lacks, of those in which
        it has been there."""
        self._bound = set[int]()
        """Users whose jobs wait like others, whatever they say."""
        self._leads: Ready | None = None
        """Whose turn it is."""
        self._beside: dict[int, float] = {}
        """The jobs that run in it, too, with their parts of the memory."""
        self._waits_s = 0.0
        """What the user has had that had least of those that wait."""
        self._running: dict[int, Ready] = {}
        self._free: list[Ready] = []
        """Of those that run, the ones that do not wait and are charged for it."""
        self._crowded = False
        self._now_s = self._until_s = 0.0

    def __repr__(self) -> str:
        return f"<turn of {self._turn} until {self._until_s:.1f} s>"

    @property
    def _turn(self) -> set[int]:
        """The jobs that run in this turn."""
        return {*self._beside, *(one.job for one in (self._leads,) if one is not None)}

    @property
    def crowded(self) -> bool:
        """Whether jobs take turns, by the last look."""
        return self._crowded

    @property
    def pending(self) -> bool:
        """Whether time alone may change who runs: jobs take turns, or will if some go on."""
        return self._crowded or bool(self._free)

    def look(self, now_s: float, memory_bytes: int, ready: Sequence[Ready]) -> frozenset[int]:
        """The jobs that may run from now on; all where no turns are needed. ready: each job once;
        call it when these change, and a few times within a turn."""
        self._charge(now_s - self._now_s)
        self._now_s = now_s
        counted = [one for one in ready if one.steady or not one.above]
        self._come_in(counted)
        wants = _wanted(ready, memory_bytes) > CROWDED * memory_bytes
        if wants:
            self._bind(counted)
        free = [one for one in counted if not (one.steady or one.user in self._bound)]
        waiting = {one.job: one for one in counted if one.steady or one.user in self._bound}
        self._free = free if wants else []
        others = [one for one in ready if one.above or one.job in waiting]
        self._crowded = len(waiting) > 1 and _wanted(others, memory_bytes) > CROWDED * memory_bytes
        if self._crowded:
            above = sum(one.wanted_bytes for one in ready if one.above)
            left_bytes = max(memory_bytes - above, memory_bytes // FLOORS_SHARE)
            self._take_turn(now_s, left_bytes, waiting)
        run = self._turn if self._crowded else waiting.keys()
        self._running = {
            one.job: one
            for one in ready
            if one.job in run or one.above or not (one.steady or one.job in waiting)
        }
        return frozenset(self._running)

    def _charge(self, span_s: float) -> None:
        """Charges the time since the last look to those that were to run in it."""
        if not self._shares:
            return
        whole = sum(self._shares.values())
        served = {one.user for one in self._running.values()}
        for user, share in self._shares.items():
            lacks_s = self._lacks.get(user, 0.0) + span_s * (share / whole - (user in served))
            self._lacks[user] = max(0.0, lacks_s)
        for user, seconds in {one.user: span_s / one.share for one in self._free}.items():
            self._users.add(user, seconds)
        if self._crowded and self._leads is not None:
            self._charge_turn(span_s, self._leads)
            return
        for user in self._shares:  # all go on alike, and the debt of one that is away passes
            self._users.add(user, span_s / whole)
        for job in self._running:
            self._jobs.add(job, span_s / whole)

    def _charge_turn(self, span_s: float, leads: Ready) -> None:
        rest = 1.0
        for job, part in self._beside.items():
            if job in self._running:
                one = self._running[job]
                if one.user == leads.user or self._users.of(one.user) <= self._waits_s:
                    rest -= part
                self._pay(one, part * span_s)
        self._pay(leads, rest * span_s)

    def _pay(self, one: Ready, seconds: float) -> None:
        self._users.add(one.user, seconds / one.share)
        self._jobs.add(one.job, seconds / PRIORITY_STEP**one.priority)

    def _come_in(self, counted: Sequence[Ready]) -> None:
        self._shares = {}
        for one in counted:
            self._shares[one.user] = max(self._shares.get(one.user, 0.0), one.share)
        self._users.come_in(dict.fromkeys(self._shares, 0))
        self._jobs.come_in({one.job: one.user for one in counted})
        self._lacks = {user: self._lacks.get(user, 0.0) for user in self._shares}
        self._bound = {
            user for user in self._bound if user in self._shares or self._users.knows(user)
        }

    def _bind(self, counted: Sequence[Ready]) -> None:
        """From here on users wait that have had too much by jobs that do not."""
        had = sorted((self._users.of(user), user) for user in {one.user for one in counted})
        for one in counted:
            others = [least_s for least_s, user in had[:2] if user != one.user]
            if not one.steady and others and self._users.of(one.user) > others[0] + FREE_S:
                self._bound.add(one.user)

    def _take_turn(self, now_s: float, memory_bytes: int, waiting: Mapping[int, Ready]) -> None:
        """Goes on with this turn, or begins another. memory_bytes: beside jobs that have theirs
        first."""
        if self._leads is not None and self._leads.job in waiting and not self._is_over(waiting):
            self._leads = waiting[self._leads.job]
            self._seat(memory_bytes, [waiting[job] for job in self._beside if job in waiting])
            return
        order = sorted(waiting.values(), key=self._order)
        self._leads = order[0]
        self._seat(memory_bytes, order[1:])
        chosen = self._turn
        self._waits_s = min((self._users.of(one.user) for one in order if one.job not in chosen),
                            default=math.inf)  # fmt: skip
        missing = (min(waiting[job].wanted_bytes, memory_bytes) - waiting[job].held_bytes
                   for job in chosen)  # fmt: skip
        come_s = sum(max(0, bytes_) for bytes_ in missing) / LINK_BYTES_S
        least_s, most_s = TURN_S
        self._until_s = now_s + min(most_s, max(least_s, MOVES * come_s))

    def _is_over(self, waiting: Mapping[int, Ready]) -> bool:
        if self._now_s >= self._until_s or self._leads is None:
            return True
        served = {waiting[job].user for job in self._turn if job in waiting}
        most = max((self._lacks[one.user] for one in waiting.values() if one.user not in served),
                   default=0.0)  # fmt: skip
        return most >= max(LACKS_S, self._lacks[self._leads.user] + LOOK_S)

    def _order(self, one: Ready) -> tuple[float, float, float, bool, int]:
        lacks_s = self._lacks[one.user]
        had_s = self._users.of(one.user), self._jobs.of(one.job)
        urgent_s = -lacks_s if lacks_s >= LACKS_S else 0.0
        return urgent_s, *had_s, one.job in self._turn, one.job

    def _seat(self, memory_bytes: int, order: Iterable[Ready]) -> None:
        """Of these, those run beside the one whose turn it is that fit."""
        assert self._leads is not None
        left = memory_bytes - (0 if self._leads.above else self._leads.wanted_bytes)
        self._beside = {}
        for one in order:
            if one.wanted_bytes <= left:
                self._beside[one.job] = 0.0 if one.above else one.wanted_bytes / memory_bytes
                left -= 0 if one.above else one.wanted_bytes

    def level(self, priority: int, runs: bool) -> int:
        """For the arbiter, the priority of a job that runs, or waits or has nothing to run."""
        if not self._crowded or priority > NO_WAIT:
            return priority
        return NO_WAIT if runs else LAST

    def forget(self, job: int) -> None:
        """The job has ended."""
        self._jobs.forget(job)
        self._beside.pop(job, None)


def _wanted(jobs: Iterable[Ready], memory_bytes: int) -> int:
    return sum(min(one.wanted_bytes, memory_bytes) for one in jobs)
