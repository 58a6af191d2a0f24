"""Turns: which jobs may use a GPU that cannot hold all of their memory. Without I/O, with state.

A kernel that waits for its memory occupies the GPU. So jobs that run together, each with a part of
its memory, delay each other. Jobs that run one after the other, with all of it, do more work:
nvshare's time slices serve this purpose (Alexopoulos and Mitropoulos, 2024). A turn is longer if
more memory has to move for it.

The next turn goes to the user with the least accumulated time, and to that user's job with the
least. Jobs that fit into the remaining memory run alongside. Priorities are weights: a job of lower
priority has fewer turns. A job that arrives, or returns from a pause, starts with the least time of
the present ones. So a pause earns nothing.

A job that runs alongside is charged for its part of the memory, and the user of the turn for the
rest. If the job's user has already had more time than a waiting user, the user of the turn is also
charged for that part. So no number of jobs or users makes a turn cheaper. A user that lacks LACKS_S
of its share ends another user's turn. So in any period, a user with something to run gets its share
by weight, less 30 s (docs/decisions/0075-shares-by-users.md).

Two kinds of jobs do not wait. Jobs of a priority above NO_WAIT have their memory first. Part-time
jobs report that they run only part of the time, like jobs that answer requests; they are charged
for running in others' turns. Once a user has had FREE_S more than its share in that way, its
part-time jobs take turns, too, until it pauses without a debt.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from pump.policy.arbiter import FLOORS_SHARE

NO_WAIT: Final = 0
"""Jobs of a greater priority also run in the turns of others [derived]."""
LAST: Final = -11
"""Priority for the arbiter, below the priorities of all jobs [derived]."""
CROWDED: Final = 1.65
"""Turns begin if jobs want this multiple of the memory, where each job counts up to all of it.
Below that, moving memory costs as much as turns gain [measured: 0070]."""
MOVES: Final = 10.0
"""A turn lasts this multiple of the time in which its memory arrives [guessed]."""
TURN_S: Final = (8.0, 30.0)
"""Shortest and longest turn, in seconds [guessed]."""
LACKS_S: Final = 27.0
"""A waiting user that lacks this many seconds of its share ends the turn of a user that lacks less
[guessed]."""
LEAD_S: Final = 1.0
"""Least difference of the two users' lacks in seconds, so that turns do not end at each update
[guessed]."""
FREE_S: Final = 30.0
"""How many seconds more of GPU time a user may have had than others before its part-time jobs wait,
too. A job that starts is part-time, too [guessed]."""
PRIORITY_STEP: Final = 1.25
"""Ratio of the times of two jobs with adjacent priorities, as for Linux's nice levels
[published: kernel/sched/core.c, sched_prio_to_weight]."""
LINK_BYTES_S: Final = 20e9
"""Assumed link speed in bytes per second, PCIe 4, for the length of a job's turn. Faster links need
shorter turns [guessed]."""


class Ready(NamedTuple):
    """A job that has something to run. `user`: its user. `weight`: the user's, above 0, shared by
    its jobs. `steady`: whether it has something to run most of the time; else it is part-time."""

    job: int
    wanted_bytes: int
    held_bytes: int
    user: int = 0
    weight: float = 1.0
    priority: int = 0
    steady: bool = True

    @property
    def above(self) -> bool:
        """Returns whether the job also runs in the turns of others, and has its memory first."""
        return self.priority > NO_WAIT

    @property
    def share(self) -> float:
        """Returns the user's weight, multiplied for the job's priority."""
        return self.weight * PRIORITY_STEP**self.priority


class Account:
    """The accumulated time of members (users or jobs). A newcomer starts with the least time of the
    present members of its group."""

    def __init__(self) -> None:
        self._had: dict[int, float] = {}
        self._groups: dict[int, int] = {}

    def set_members(self, groups: Mapping[int, int]) -> None:
        """Sets the present members, each with its group. Forgets an absent member once all present
        ones have had as much time."""
        least: dict[int, float] = {}
        for one, group in groups.items():
            if one in self._groups:
                least[group] = min(least.get(group, self._had[one]), self._had[one])
        most = max(self._had.values(), default=0.0)
        for one, group in groups.items():
            if one not in self._groups:
                self._had[one] = max(self._had.get(one, 0.0), least.get(group, most))
        if least:
            all_least = min(least.values())
            self._had = {
                one: had for one, had in self._had.items() if one in groups or had > all_least
            }
        self._groups = dict(groups)

    def add(self, one: int, seconds: float) -> None:
        """Adds to the time of a member, unless it is forgotten."""
        if one in self._had:
            self._had[one] += seconds

    def of(self, one: int) -> float:
        """Returns the time that a member has had."""
        return self._had[one]

    def knows(self, one: int) -> bool:
        """Returns whether a member is present, or has had more than the least present one."""
        return one in self._had

    def forget(self, one: int) -> None:
        """Forgets a member that does not come back."""
        self._had.pop(one, None)
        self._groups.pop(one, None)


class Turns:
    """The turns on one GPU. All seconds are of one clock."""

    def __init__(self) -> None:
        self._users, self._jobs = Account(), Account()
        """Seconds of turns, divided by weights and priorities."""
        self._shares: dict[int, float] = {}
        """Shares of the users that were present at the last update."""
        self._lacks: dict[int, float] = {}
        """By user, the most seconds of its share that it lacks over any period until now in which
        it was present."""
        self._bound = set[int]()
        """Users whose part-time jobs take turns, too."""
        self._leads: Ready | None = None
        """The job that has the turn."""
        self._beside: dict[int, float] = {}
        """Jobs that run alongside in this turn, with their parts of the memory."""
        self._waits_s = 0.0
        """The least time of a waiting user when the turn began."""
        self._running: dict[int, Ready] = {}
        self._free: list[Ready] = []
        """Part-time jobs that run without waiting, and are charged for it."""
        self._crowded = False
        self._now_s = self._until_s = 0.0

    def __repr__(self) -> str:
        return f"<turn of {self._turn} until {self._until_s:.1f} s>"

    @property
    def _turn(self) -> set[int]:
        """Returns the jobs that run in this turn."""
        return {*self._beside, *(one.job for one in (self._leads,) if one is not None)}

    @property
    def crowded(self) -> bool:
        """Returns whether jobs took turns at the last update."""
        return self._crowded

    @property
    def pending(self) -> bool:
        """Returns whether the running jobs may change by time: jobs take turns, or may have to."""
        return self._crowded or bool(self._free)

    def update(self, now_s: float, memory_bytes: int, ready: Sequence[Ready]) -> frozenset[int]:
        """Returns the jobs that may run now: all, if no turns are needed. ready: each job once.
        Callers update when `ready` or the memory changes, and a few times within a turn."""
        self._charge(now_s - self._now_s)
        self._now_s = now_s
        counted = [one for one in ready if one.steady or not one.above]
        self._set_members(counted)
        wants = _wanted(ready, memory_bytes) > CROWDED * memory_bytes
        if wants:
            self._make_take_turns(counted)
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
        """Charges the time since the last update to the users and jobs that could run in it."""
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
        for user in self._shares:  # all are charged alike, so the debt of an absent user shrinks
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

    def _set_members(self, counted: Sequence[Ready]) -> None:
        self._shares = {}
        for one in counted:
            self._shares[one.user] = max(self._shares.get(one.user, 0.0), one.share)
        self._users.set_members(dict.fromkeys(self._shares, 0))
        self._jobs.set_members({one.job: one.user for one in counted})
        self._lacks = {user: self._lacks.get(user, 0.0) for user in self._shares}
        self._bound = {
            user for user in self._bound if user in self._shares or self._users.knows(user)
        }

    def _make_take_turns(self, counted: Sequence[Ready]) -> None:
        """Makes users take turns whose part-time jobs have had too much time."""
        had = sorted((self._users.of(user), user) for user in {one.user for one in counted})
        for one in counted:
            others = [least_s for least_s, user in had[:2] if user != one.user]
            if not one.steady and others and self._users.of(one.user) > others[0] + FREE_S:
                self._bound.add(one.user)

    def _take_turn(self, now_s: float, memory_bytes: int, waiting: Mapping[int, Ready]) -> None:
        """Continues this turn, or begins another one. memory_bytes: without the memory of jobs that
        have theirs first."""
        if self._leads is not None and self._leads.job in waiting and not self._is_over(waiting):
            self._leads = waiting[self._leads.job]
            self._fill_turn(memory_bytes, [waiting[job] for job in self._beside if job in waiting])
            return
        order = sorted(waiting.values(), key=self._order)
        self._leads = order[0]
        self._fill_turn(memory_bytes, order[1:])
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
        return most >= max(LACKS_S, self._lacks[self._leads.user] + LEAD_S)

    def _order(self, one: Ready) -> tuple[float, float, float, bool, int]:
        lacks_s = self._lacks[one.user]
        had_s = self._users.of(one.user), self._jobs.of(one.job)
        urgent_s = -lacks_s if lacks_s >= LACKS_S else 0.0
        return urgent_s, *had_s, one.job in self._turn, one.job

    def _fill_turn(self, memory_bytes: int, order: Iterable[Ready]) -> None:
        """Lets the jobs of `order` that fit run alongside the job that has the turn."""
        assert self._leads is not None
        left = memory_bytes - (0 if self._leads.above else self._leads.wanted_bytes)
        self._beside = {}
        for one in order:
            if one.wanted_bytes <= left:
                self._beside[one.job] = 0.0 if one.above else one.wanted_bytes / memory_bytes
                left -= 0 if one.above else one.wanted_bytes

    def level(self, priority: int, runs: bool) -> int:
        """Returns a job's priority for the arbiter. runs: False if it waits or is idle."""
        if not self._crowded or priority > NO_WAIT:
            return priority
        return NO_WAIT if runs else LAST

    def forget(self, job: int) -> None:
        """Forgets a job that has ended."""
        self._jobs.forget(job)
        self._beside.pop(job, None)


def _wanted(jobs: Iterable[Ready], memory_bytes: int) -> int:
    return sum(min(one.wanted_bytes, memory_bytes) for one in jobs)
