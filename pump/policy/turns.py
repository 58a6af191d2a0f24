"""Turns: which jobs may use a GPU that does not hold all of their memory. Pure, but it remembers.

A kernel that waits for its memory holds the GPU's engine. So jobs that run together with a part of
their memory each keep each other waiting, and one after the other with all of it they do more: that
is what nvshare's time slices are for (Alexopoulos and Mitropoulos, 2024). A turn is longer the more
memory has to move for it.

Users that have had least come first, of their jobs those that have run least, and beside these what
fits into the memory that is left. Priorities are weights: a job of a lower one has turns less
often. A job that comes, or comes back from a pause, counts as one that has had as little as the
least: a pause earns nothing, so it cannot be used to have more.

Some never wait: jobs that run for a part of the time only, as those that answer requests, and jobs
of a priority above NO_WAIT. The latter have their memory first, and others wait for their turns.
"""

from __future__ import annotations

from collections.abc import Sequence
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


class Account:
    """What each of some has had, since they came: of those that are there the least is a
    newcomer's."""

    def __init__(self) -> None:
        self._had: dict[int, float] = {}
        self._there: frozenset[int] = frozenset()

    def come_in(self, there: frozenset[int]) -> None:
        """These are there from now on."""
        stayed = [self._had[one] for one in there & self._there]
        least = min(stayed) if stayed else max(self._had.values(), default=0.0)
        for one in there - self._there:
            self._had[one] = max(self._had.get(one, 0.0), least)
        self._there = there

    def add(self, one: int, seconds: float) -> None:
        """It has had so much more."""
        self._had[one] += seconds

    def of(self, one: int) -> float:
        """What it has had."""
        return self._had[one]

    def forget(self, one: int) -> None:
        """It does not come back."""
        self._had.pop(one, None)
        self._there -= {one}


class Turns:
    """Of one GPU. Seconds are of one clock."""

    def __init__(self) -> None:
        self._users, self._jobs = Account(), Account()
        """Seconds of the engine, by weights and priorities."""
        self._running: frozenset[int] = frozenset()
        self._crowded = False
        self._now_s = self._until_s = 0.0

    def __repr__(self) -> str:
        return f"<turn of {sorted(self._running)} until {self._until_s:.1f} s>"

    @property
    def crowded(self) -> bool:
        """Whether jobs take turns, by the last look."""
        return self._crowded

    def look(self, now_s: float, memory_bytes: int, ready: Sequence[Ready]) -> frozenset[int]:
        """The jobs that may run from now on; all where no turns are needed. ready: each job once;
        call it when these change, and a few times within a turn."""
        span_s, self._now_s = now_s - self._now_s, now_s
        by_job = {one.job: one for one in ready if one.steady}
        running = self._running & by_job.keys()
        for job in running:
            one = by_job[job]
            had_s = span_s / len(running) / PRIORITY_STEP**one.priority
            self._jobs.add(job, had_s)
            self._users.add(one.user, had_s / one.weight)
        self._jobs.come_in(frozenset(by_job))
        self._users.come_in(frozenset(one.user for one in by_job.values()))
        wants = [one.wanted_bytes for one in ready if one.steady or one.above]
        wanted = sum(min(bytes_, memory_bytes) for bytes_ in wants)
        if len(by_job) < 2 or wanted <= CROWDED * memory_bytes:
            self._crowded, self._running = False, frozenset(by_job)
        elif not running or now_s >= self._until_s:
            self._crowded = True
            above = sum(one.wanted_bytes for one in ready if one.above)
            left_bytes = max(memory_bytes - above, memory_bytes // FLOORS_SHARE)
            self._begin(now_s, left_bytes, sorted(by_job.values(), key=self._order))
        else:  # also where jobs come back that have left it alone meanwhile
            self._crowded, self._running = True, running
        return self._running | {one.job for one in ready if one.above or not one.steady}

    def _order(self, one: Ready) -> tuple[float, float, bool, int]:
        had_s = self._users.of(one.user), self._jobs.of(one.job)
        return *had_s, one.job in self._running, one.job

    def _begin(self, now_s: float, memory_bytes: int, order: Sequence[Ready]) -> None:
        """memory_bytes: beside jobs that have theirs first."""
        left, chosen = memory_bytes, list[Ready]()
        for one in order:
            if not chosen or one.wanted_bytes <= left:
                chosen.append(one)
                left -= 0 if one.above else one.wanted_bytes
        self._running = frozenset(one.job for one in chosen)
        missing = (min(one.wanted_bytes, memory_bytes) - one.held_bytes for one in chosen)
        come_s = sum(max(0, bytes_) for bytes_ in missing) / LINK_BYTES_S
        least_s, most_s = TURN_S
        self._until_s = now_s + min(most_s, max(least_s, MOVES * come_s))

    def level(self, priority: int, runs: bool) -> int:
        """For the arbiter, the priority of a job that runs, or waits or has nothing to run."""
        if not self._crowded or priority > NO_WAIT:
            return priority
        return NO_WAIT if runs else LAST

    def forget(self, job: int) -> None:
        """The job has ended."""
        self._jobs.forget(job)
        self._running -= {job}
