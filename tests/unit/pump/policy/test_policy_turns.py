"""Turns: which jobs run when they want much more than a GPU has."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import pytest

from pump.policy.arbiter import FLOORS_SHARE
from pump.policy.turns import (
    CROWDED,
    LAST,
    LINK_BYTES_S,
    MOVES,
    NO_WAIT,
    PRIORITY_STEP,
    TURN_S,
    Ready,
    Turns,
)
from pump.wire import service as wire

GIB = 1 << 30
MEMORY = 40 * GIB


def ready(*wanted_gib: float, held_gib: float = 0.0) -> list[Ready]:
    held = int(held_gib * GIB)
    return [Ready(job, int(gib * GIB), held, job) for job, gib in enumerate(wanted_gib)]


def seconds(
    turns: Turns, jobs: Sequence[Ready], span_s: float, from_s: float = 0.0
) -> dict[int, float]:
    """Returns how long each job may run in that time, with two polls per second."""
    found = {one.job: 0.0 for one in jobs}
    for look in range(int(2 * span_s)):
        for job in turns.update(from_s + look / 2, MEMORY, jobs):
            found[job] += 0.5
    return found


@pytest.mark.parametrize("wanted", [(), (80.0,), (30.0, 30.0), (20.0, 20.0, 26.0), (18.0, 56.0)])
def test_all_run_where_they_do_not_want_much_more_than_there_is(wanted: tuple[float, ...]) -> None:
    turns = Turns()
    most = sum(min(gib * GIB, MEMORY) for gib in wanted)  # no job can get more than all memory
    assert most <= CROWDED * MEMORY or len(wanted) < 2
    assert turns.update(0.0, MEMORY, ready(*wanted)) == frozenset(range(len(wanted)))
    assert not turns.crowded


def test_each_has_the_same_time_and_only_one_at_once_runs_where_no_two_fit() -> None:
    turns, jobs = Turns(), ready(30, 35, 40)
    for look in range(100):
        assert len(turns.update(look / 2, MEMORY, jobs)) == 1
    assert turns.crowded
    had = seconds(turns, jobs, 600, 50.0)
    assert min(had.values()) >= 0.9 * max(had.values()) and sum(had.values()) == 600


def test_those_that_fit_beside_run_as_well_and_are_charged_for_their_part() -> None:
    turns, jobs = Turns(), ready(40, 20, 20)
    had = seconds(turns, jobs, 800)
    assert abs(had[1] - had[2]) <= 20
    assert had[1] == pytest.approx(2 * had[0], rel=0.15)  # half of the engine, for twice as long


def test_a_turn_lasts_as_long_as_its_memory_takes_to_come_many_times() -> None:
    least_s, most_s = TURN_S
    for memory_gib, held_gib in ((1, 0), (40, 0), (40, 38), (400, 0)):
        memory = memory_gib * GIB
        jobs = ready(memory_gib, memory_gib, held_gib=held_gib)
        turns = Turns()
        first = turns.update(0.0, memory, jobs)
        come_s = (memory_gib - held_gib) * GIB / LINK_BYTES_S
        turn_s = min(most_s, max(least_s, MOVES * come_s))
        assert turns.update(turn_s - 0.01, memory, jobs) == first
        assert turns.update(turn_s + 0.01, memory, jobs) != first


def test_a_turn_ends_with_the_job_s_work() -> None:
    turns, jobs = Turns(), ready(40, 40)
    (first,) = turns.update(0.0, MEMORY, jobs)
    assert turns.update(1.0, MEMORY, [one for one in jobs if one.job != first]) == {1 - first}
    assert turns.update(2.0, MEMORY, []) == frozenset()


def test_a_pause_earns_nothing() -> None:
    """A job that returns from a long pause gets no more than its share afterwards."""
    turns, jobs = Turns(), ready(40, 40, 40)
    seconds(turns, jobs, 100)
    seconds(turns, jobs[:2], 1000, 100.0)
    had = seconds(turns, jobs, 300, 1100.0)
    assert had[2] <= 1.2 * 300 / 3


def test_a_newcomer_has_no_more_than_the_others_from_then_on() -> None:
    turns, jobs = Turns(), ready(40, 40, 40)
    seconds(turns, jobs[:2], 500)
    had = seconds(turns, jobs, 300, 500.0)
    assert had[2] <= 1.2 * 300 / 3


def test_time_goes_by_weight() -> None:
    turns = Turns()
    jobs = [Ready(0, MEMORY, 0, 0, weight=3.0), Ready(1, MEMORY, 0, 1, weight=1.0)]
    had = seconds(turns, jobs, 800)
    assert had[0] == pytest.approx(3 * had[1], rel=0.15)


@pytest.mark.parametrize("other_user", [0, 1])
def test_a_lower_priority_has_less_of_the_time(other_user: int) -> None:
    turns = Turns()
    jobs = [Ready(0, MEMORY, 0, 0, priority=-2), Ready(1, MEMORY, 0, other_user, priority=-7)]
    had = seconds(turns, jobs, 1600)
    assert had[0] == pytest.approx(PRIORITY_STEP**5 * had[1], rel=0.15)


@pytest.mark.parametrize("steady", [True, False])
def test_a_priority_above_the_default_never_waits_and_has_its_memory_first(steady: bool) -> None:
    turns = Turns()
    above = Ready(5, MEMORY // 2, 0, 5, priority=5, steady=steady)
    assert turns.update(0.0, MEMORY, [*ready(20, 20), above]) == {0, 1, 5}
    assert not turns.crowded and turns.level(-3, True) == -3
    jobs = [*ready(25, 25), above]
    assert 5 in turns.update(1.0, MEMORY, jobs) and turns.crowded
    levels = [turns.level(1, True), turns.level(-3, True), turns.level(-3, False)]
    assert levels == [1, NO_WAIT, LAST] and LAST < -wire.PRIORITY_MOST
    had = seconds(turns, jobs, 1600, 2.0)
    assert had[5] == 1600
    others = 1600 * (2 / (2 + PRIORITY_STEP**5) if steady else 1)
    assert had[0] + had[1] == pytest.approx(others, rel=0.2)
    assert had[0] == pytest.approx(had[1], rel=0.2)


def test_what_fits_into_the_floors_runs_beside_one_that_has_all_else() -> None:
    above = Ready(5, 2 * MEMORY, 0, 5, priority=5)
    assert 2 * GIB < MEMORY // FLOORS_SHARE
    assert Turns().update(0.0, MEMORY, [*ready(1, 1), above]) == {0, 1, 5}


def test_one_that_has_something_to_run_for_a_part_of_the_time_never_waits() -> None:
    turns = Turns()
    answers = Ready(5, MEMORY, 0, 5, priority=-9, steady=False)
    assert turns.update(0.0, MEMORY, [*ready(30), answers]) == {0, 5}
    running = turns.update(1.0, MEMORY, [*ready(40, 40), answers])
    assert len(running) == 2 and 5 in running


def test_a_user_with_many_jobs_has_no_more_than_one_with_one_nor_sooner() -> None:
    turns = Turns()
    jobs = [Ready(job, MEMORY, 0, min(job, 1)) for job in range(200)]
    had = seconds(turns, jobs, 100)
    assert had[0] >= 40
    had = seconds(turns, jobs, 1000, 100.0)
    assert had[0] == pytest.approx(500, rel=0.1)


@pytest.mark.parametrize("seed", range(3))
def test_whatever_comes_and_goes_some_job_runs_and_none_waits_for_long(seed: int) -> None:
    source = random.Random(seed)
    turns, waited = Turns(), Counter[int]()
    jobs = {job: Ready(job, source.randrange(1, 80) * GIB, 0, job % 4) for job in range(6)}
    for look in range(4000):
        if source.random() < 0.02:
            job = source.randrange(6)
            jobs[job] = jobs[job]._replace(wanted_bytes=source.randrange(1, 80) * GIB)
        here = [one for job, one in jobs.items() if (look // 97 + job) % 5]
        running = turns.update(look / 2, MEMORY, here)
        assert running <= {one.job for one in here} and bool(running) == bool(here)
        for one in here:
            waited[one.job] = 0 if one.job in running else waited[one.job] + 1
            assert waited[one.job] / 2 <= 3 * len(jobs) * TURN_S[1]


def test_a_job_that_has_ended_is_forgotten() -> None:
    turns = Turns()
    turns.update(0.0, MEMORY, ready(40, 40))
    turns.forget(0)
    assert turns.update(1.0, MEMORY, ready(40, 40)[1:]) == {1}
    turns.update(2.0, MEMORY, ready(40, 40))
