"""Turns: each user gets its share of the time whatever others' jobs report, and no claim pays."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from pump.policy.turns import FREE_S, TURN_S, Ready, Turns

GIB = 1 << 30
MEMORY = 80 * GIB
LOOK_S = 0.5
WINDOW_S = 600.0
SHORT_S = 30.0
HONEST = Ready(0, MEMORY, 0, 0)
Others = Callable[[float, bool], list[Ready]]
"""Returns the others' jobs at a time. The flag is set while the honest user's job runs."""


def time_of(job: int, others: Others, span_s: float, honest: list[Ready]) -> list[float]:
    """Returns how long a job has run up to each poll."""
    turns, had, running = Turns(), [0.0], frozenset[int]()
    for look in range(int(span_s / LOOK_S)):
        now_s = look * LOOK_S
        running = turns.update(now_s, MEMORY, [*honest, *others(now_s, 0 in running)])
        if look % 3 == 0:  # some change their reports within a moment
            running = turns.update(now_s + 0.01, MEMORY, [*honest, *others(now_s, 0 in running)])
        had.append(had[-1] + LOOK_S * (job in running))
    return had


def least_in_a_window(had: list[float]) -> float:
    looks = int(WINDOW_S / LOOK_S)
    return min(late - early for early, late in zip(had, had[looks:], strict=False))


class Crowd:
    """Users whose jobs make random reports, and change them at any moment."""

    def __init__(self, seed: int) -> None:
        dice = self.dice = random.Random(seed)
        self.weights = [
            dice.choice((1.0, 1.0, 1.0, 0.25, 3.0)) for _ in range(dice.randrange(1, 7))
        ]
        self.mood = dice.choice((0.01, 0.1, 0.5))
        self.reacts = dice.random() < 0.7
        self.sizes = dice.choice(((0, 1), (0, 85), (85, 100), (0, 15, 50, 85, 100, 300)))
        count = dice.choice((len(self.weights), 12, 30))
        self.jobs = [self.drawn(1 + job, 1 + job % len(self.weights)) for job in range(count)]
        self.there = [dice.random() < 0.8 for _ in self.jobs]

    def drawn(self, job: int, user: int) -> Ready:
        wanted = self.dice.choice(self.sizes) * MEMORY // 100
        held = self.dice.choice((0, wanted))
        steady = self.dice.random() < 0.8
        return Ready(job, wanted, held, user, self.weights[user - 1], steady=steady)

    def __call__(self, _now_s: float, honest_runs: bool) -> list[Ready]:
        dice = self.dice
        for place, one in enumerate(self.jobs):
            if dice.random() < self.mood:
                self.there[place] = not self.there[place]
                self.jobs[place] = self.drawn(one.job, one.user)
                if dice.random() < 0.1:  # the job leaves, and joins as another
                    self.jobs[place] = self.jobs[place]._replace(job=one.job + 1000)
        if self.reacts and dice.random() < 0.9:
            half = len(self.jobs) // 2
            return self.jobs[:half] if honest_runs else self.jobs
        return [one for one, there in zip(self.jobs, self.there, strict=True) if there]


@pytest.mark.parametrize("first", range(0, 15, 5))
def test_a_user_has_its_weights_share_of_the_time_less_half_a_minute(first: int) -> None:
    for seed in range(first, first + 5):
        crowd = Crowd(seed)
        weight = random.Random(seed).choice((0.5, 1.0, 1.0, 4.0))
        had = time_of(0, crowd, 800.0, [HONEST._replace(weight=weight)])
        share = weight / (weight + sum(crowd.weights))
        assert least_in_a_window(had) >= share * WINDOW_S - SHORT_S, seed


@pytest.mark.parametrize("jobs", [1, 31])
@pytest.mark.parametrize("toggle", [True, False])
def test_jobs_that_want_nothing_make_no_turn_cheaper(jobs: int, toggle: bool) -> None:
    """Another user's many jobs run in all turns of the large job, and leave the honest user's."""
    large = Ready(1, MEMORY * 85 // 100, 0, 1)
    small = [Ready(2 + job, 0, 0, 2) for job in range(jobs)]

    def others(_now_s: float, honest_runs: bool) -> list[Ready]:
        return [large] if honest_runs and toggle else [large, *small]

    whole = HONEST._replace(wanted_bytes=2 * MEMORY)
    had = time_of(0, others, 1200.0, [whole])
    assert had[-1] >= 0.4 * 1200.0, "with one user's jobs less it would be a half"


def test_users_that_run_beside_many_others_make_no_turn_cheaper() -> None:
    """Five users have half of the memory in their turns, and a sixth the rest in all of them."""
    large = [Ready(job, MEMORY * 55 // 100, 0, job) for job in range(1, 6)]
    beside = Ready(6, MEMORY * 45 // 100, 0, 6)

    def others(_now_s: float, honest_runs: bool) -> list[Ready]:
        return large if honest_runs else [*large, beside]

    had = time_of(0, others, 1200.0, [HONEST])
    assert least_in_a_window(had) >= WINDOW_S / 7 - SHORT_S
    assert had[-1] >= 0.9 * 1200.0 / 7


def test_one_that_leaves_just_before_each_look_pays_for_its_turn() -> None:
    other, calls = Ready(1, MEMORY, 0, 1), [0]

    def others(_now_s: float, honest_runs: bool) -> list[Ready]:
        calls[0] += 1
        return [other] if honest_runs or calls[0] % 3 else []

    assert time_of(0, others, 1200.0, [HONEST])[-1] >= 0.45 * 1200.0


def test_one_that_grows_within_anothers_turn_runs_there_no_more() -> None:
    turns = Turns()
    jobs = [Ready(0, MEMORY * 9 // 10, 0, 0), Ready(1, 0, 0, 1), Ready(2, MEMORY, 0, 2)]
    assert turns.update(0.0, MEMORY, jobs) == {0, 1}
    grown = jobs[1]._replace(wanted_bytes=MEMORY)
    assert turns.update(1.0, MEMORY, [jobs[0], grown, jobs[2]]) == {0}


def test_a_weight_that_differs_costs_nothing_later_where_all_have_run() -> None:
    """Minutes without turns leave no debt for users of a lower weight or priority."""
    small = [Ready(0, GIB, 0, 0, 1.0, -5), Ready(1, GIB, 0, 1, 8.0)]
    large = [one._replace(wanted_bytes=MEMORY, priority=0) for one in small]
    turns, had = Turns(), 0.0
    for look in range(2400):
        turns.update(look * LOOK_S, MEMORY, small)
    for look in range(2400, 3600):
        had += LOOK_S * (0 in turns.update(look * LOOK_S, MEMORY, large))
    assert had >= WINDOW_S / 9 - SHORT_S


# ---- jobs that claim to run for a part of the time ----


@pytest.mark.parametrize("liars", [1, 3])
@pytest.mark.parametrize("honest", [1, 2])
def test_one_that_says_that_it_pauses_and_never_does_has_no_more_than_its_turns(
    liars: int, honest: int
) -> None:
    others = [Ready(job, MEMORY, 0, job) for job in range(1, honest)]
    lie = [Ready(10 + job, MEMORY, 0, 10 + job, steady=False) for job in range(liars)]
    had = time_of(10, lambda _now_s, _runs: [*others, *lie], 1500.0, [HONEST])
    assert had[-1] <= 1.1 * 1500.0 / (liars + honest) + 3 * FREE_S
    had = time_of(0, lambda _now_s, _runs: [*others, *lie], 1500.0, [HONEST])
    assert least_in_a_window(had) >= WINDOW_S / (liars + honest) - SHORT_S


def test_pauses_that_only_end_a_debt_earn_no_more_than_the_share() -> None:
    """The job pauses for one poll as soon as it has to wait."""
    lie, steady = Ready(10, MEMORY, 0, 10, steady=False), Ready(1, MEMORY, 0, 1)
    turns, had, running = Turns(), 0.0, frozenset({10})
    for look in range(2400):
        mine = [lie] if 10 in running or look % 5 else []
        running = turns.update(look * LOOK_S, MEMORY, [HONEST, steady, *mine])
        had += LOOK_S * (10 in running)
    assert had <= 0.5 * 1200.0 + FREE_S + TURN_S[1], "beside two that each have half of the time"


def test_a_job_that_answers_for_no_more_than_its_share_of_the_time_never_waits() -> None:
    answers, others = Ready(10, GIB, 0, 10, steady=False), [Ready(1, MEMORY, 0, 1), HONEST]
    turns = Turns()
    for look in range(4800):
        asked = look % 40 < 12
        running = turns.update(look * LOOK_S, MEMORY, [*others, *([answers] if asked else [])])
        assert not asked or 10 in running


def test_a_job_that_starts_does_not_wait() -> None:
    turns, others = Turns(), [Ready(1, MEMORY, 0, 1), HONEST]
    for look in range(200):
        turns.update(look * LOOK_S, MEMORY, others)
    starts = Ready(10, MEMORY, 0, 10, steady=False)
    for look in range(200, 200 + int(FREE_S / LOOK_S)):
        assert 10 in turns.update(look * LOOK_S, MEMORY, [*others, starts])


def test_what_is_known_of_users_that_are_away_is_bounded() -> None:
    turns = Turns()
    for look in range(3000):
        others = [Ready(look, MEMORY, 0, look % 1000 + 1, steady=bool(look % 2))]
        turns.update(look * LOOK_S, MEMORY, [HONEST, *others])
        turns.forget(look)
    turns.update(1e4, MEMORY, [HONEST])
    turns.update(1e4 + 1, MEMORY, [HONEST])
    assert len(turns._users._had) <= 2 and len(turns._jobs._had) <= 2 and not turns._bound


def test_jobs_above_that_pause_alone_run_and_owe_nothing() -> None:
    turns = Turns()
    above = [Ready(1, MEMORY, 0, 1, priority=5, steady=False)]
    assert turns.update(0.0, MEMORY, above) == turns.update(1.0, MEMORY, above) == {1}
