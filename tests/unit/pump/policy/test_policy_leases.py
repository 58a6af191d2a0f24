"""Leases move in the right order: no job gets memory that another still holds.

Jobs of a small simulation adopt late, evict slowly, come, go and hang. The memory of a GPU must
never be promised twice.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from pump.model.bounds import BLOCK_BYTES
from pump.policy.arbiter import LEAST_BLOCKS, Claim, arbitrate
from pump.policy.leases import Lease, step

LEAST = LEAST_BLOCKS * BLOCK_BYTES
MIB = 1 << 20


@dataclass
class Actor:
    """A job of the simulation: acts on a grant some time after it was sent."""

    wanted: int
    adopted: int
    resident: int
    granted: int | None = None
    inbox: list[int] = field(default_factory=list)
    acknowledged: tuple[int, int] = (0, 0)
    """The adopted and resident bytes of its last report."""
    unacknowledged: list[int] = field(default_factory=list)
    said: int = 0
    hangs: bool = False

    def lease(self) -> Lease:
        most = max(self.unacknowledged, default=0)
        return Lease(self.granted, most, *self.acknowledged)

    def live(self, source: random.Random) -> None:
        if self.hangs:
            return
        if self.inbox and source.random() < 0.5:
            self.adopted = self.inbox.pop(0)
            self.said += 1
        if self.resident > self.adopted:  # evicts slowly
            self.resident = max(self.adopted, self.resident - source.randrange(1, 30) * MIB)
        else:
            self.resident = min(self.adopted, self.wanted, self.resident + 20 * MIB)
        if source.random() < 0.6:  # reports
            self.acknowledged = self.adopted, self.resident
            del self.unacknowledged[: self.said]
            self.said = 0


@pytest.mark.parametrize("seed", range(12))
def test_memory_is_never_promised_twice_while_leases_move(seed: int) -> None:
    source = random.Random(seed)
    memory = source.randrange(200, 4000) * BLOCK_BYTES
    actors: dict[int, Actor] = {}
    number = 0
    for turn in range(600):
        if turn < 400 and (not actors or source.random() < 0.05) and len(actors) < 8:
            held = sum(
                max(a.adopted, a.resident, a.granted or 0, *a.inbox, 0) for a in actors.values()
            )
            start = max(0, memory - held) // BLOCK_BYTES * BLOCK_BYTES
            number += 1
            actors[number] = Actor(source.randrange(memory), start, 0, acknowledged=(start, 0))
        elif turn < 400 and actors and source.random() < 0.03:
            del actors[source.choice(list(actors))]
        if turn < 400 and actors and source.random() < 0.1:
            actors[source.choice(list(actors))].wanted = source.randrange(memory)
        claims = [Claim(job, "g", job % 2, a.wanted, 1.0) for job, a in actors.items()]
        targets = {job: b for (job, _), b in arbitrate({"g": memory}, claims).items()}
        leases = {job: a.lease() for job, a in actors.items()}
        for job, granted in step(memory, targets, leases).items():
            before = leases[job].held_bytes
            others = sum(lease.held_bytes for other, lease in leases.items() if other != job)
            assert granted <= max(before, memory - others, LEAST), "given what others hold"
            actors[job].granted = granted
            actors[job].inbox.append(granted)
            actors[job].unacknowledged.append(granted)
            leases[job] = actors[job].lease()
        newcomers = sum(LEAST for a in actors.values())
        there = sum(a.resident for a in actors.values())
        assert there <= memory + newcomers
        assert sum(a.adopted for a in actors.values() if a.granted) <= memory + newcomers
        for actor in actors.values():
            actor.live(source)
    # Without changes every job gets its target, up to the grain.
    for job, actor in actors.items():
        assert abs((actor.granted or 0) - targets[job]) <= memory // 64 * len(actors) + LEAST


def test_one_that_does_not_give_way_keeps_others_from_growing_only() -> None:
    hangs = Lease(100 * MIB, 0, 200 * MIB, 180 * MIB)
    other = Lease(50 * MIB, 0, 50 * MIB, 50 * MIB)
    targets = {1: 100 * MIB, 2: 156 * MIB}
    assert step(256 * MIB, targets, {1: hangs, 2: other}) == {2: 56 * MIB}
    adopted = hangs._replace(adopted_bytes=100 * MIB)
    assert step(256 * MIB, targets, {1: adopted, 2: other}) == {2: 76 * MIB}, "not yet evicted"
    gave = adopted._replace(resident_bytes=90 * MIB)
    assert step(256 * MIB, targets, {1: gave, 2: other}) == {2: 156 * MIB}


def test_a_grant_under_way_is_held_even_when_a_smaller_one_follows() -> None:
    waits = Lease(50 * MIB, 200 * MIB, 40 * MIB, 40 * MIB)  # 200 were granted, then 50
    other = Lease(40 * MIB, 0, 40 * MIB, 40 * MIB)
    assert step(256 * MIB, {1: 50 * MIB, 2: 206 * MIB}, {1: waits, 2: other}) == {2: 56 * MIB}


def test_no_lease_grows_while_it_is_not_known_what_jobs_hold() -> None:
    first = Lease(None, 0, 100 * MIB, 10 * MIB)
    assert step(1000 * MIB, {1: 1000 * MIB}, {1: first}, growing=False) == {1: 100 * MIB}
    known = first._replace(granted_bytes=100 * MIB)
    assert step(1000 * MIB, {1: 1000 * MIB}, {1: known}, growing=False) == {}
    assert step(1000 * MIB, {1: 1000 * MIB}, {1: known}) == {1: 1000 * MIB}


def test_small_changes_are_not_worth_a_message_unless_room_is_short() -> None:
    calm = {1: Lease(500 * MIB, 0, 500 * MIB, 0), 2: Lease(500 * MIB, 0, 500 * MIB, 0)}
    assert step(1000 * MIB, {1: 505 * MIB, 2: 495 * MIB}, calm) == {}
    assert step(998 * MIB, {1: 500 * MIB, 2: 498 * MIB}, calm) == {2: 498 * MIB}


def test_many_that_keep_a_little_more_than_theirs_starve_none_together() -> None:
    """Each has too much by less than is worth a message. A job that lacks this memory gets it."""
    memory, count, more = 64 * 30 * MIB, 30, 4 * BLOCK_BYTES
    targets = dict.fromkeys(range(count), 40 * MIB) | {count: memory - count * 40 * MIB}
    granted = dict.fromkeys(range(count), 40 * MIB + more)
    granted[count] = memory - sum(granted.values())
    for _ in range(2):  # jobs above their targets give way, then it grows
        leases = {job: Lease(has, has, has, has) for job, has in granted.items()}
        granted |= step(memory, targets, leases)
    assert granted[count] >= targets[count] - memory // 64
