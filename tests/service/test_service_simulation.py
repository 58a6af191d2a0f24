"""The service in a simulated world: honest jobs get their share, whatever others do.

Production code with its loop runs under virtual time (service_world.py). The first tests are single
attacks that an audit found. Then come scenarios from seeds (service_seeds.py), which combine all
attacks with restarts, reloads, clock jumps and programs without pump. A failure reports its seed
and the last events; `drawn(seed).run(SECONDS)` repeats it.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from service_players import GIB, MIB
from service_scenario import OBSERVER, QUOTAS, ROOT, Scenario
from service_seeds import SECONDS, drawn

from pump.wire import service as wire
from pumpd.service.owners import Owners, Range

EVERYTHING = dict.fromkeys(("usable", "wanted", "adopted", "resident"), 1 << 40)
LIAR, OTHER = 6001, 6002
AT_ONCE = 25
SEEDS, SEEDS_LONG = 200, 10_000
BLOCK_LONG = 200


def test_two_that_take_turns_in_never_giving_way_cost_an_honest_job_seconds_only() -> None:
    story = Scenario(1)
    never_gives_way = EVERYTHING | {"acted": 0}
    story.liar(LIAR, never_gives_way, every_s=8.0)
    story.world.after(4.0, lambda: story.liar(LIAR, never_gives_way, every_s=8.0))
    story.world.after(3.0, lambda: story.job(5001, 0.8))
    story.run(90)
    assert (story.honest[0].granted or 0) > 3 * GIB


@pytest.mark.parametrize("liars", [[LIAR], [LIAR, OTHER]], ids=len)
def test_a_job_that_reports_to_hold_nothing_takes_its_lease_from_itself_alone(
    liars: list[int],
) -> None:
    story = Scenario(2, nvml=True)
    story.job(5001, 1.5)
    says = {"wanted": 1 << 40, "resident": 0}
    for user in liars:
        size = 3 * GIB // len(liars)
        story.world.after(5.0, lambda user=user, size=size: story.liar(user, says, physical=size))
    story.run(90)
    assert (story.honest[0].granted or 0) >= 3 * GIB


@pytest.mark.parametrize(
    "words", [[], [wire.pack_hello()], [wire.pack_hello(), wire.encode(wire.Join())]], ids=len
)
def test_two_users_with_all_the_connections_keep_no_other_out(words: list[bytes]) -> None:
    story = Scenario(3)
    asking = [story.asker(user) for user in (ROOT, OBSERVER, 5100)]
    story.world.after(10.0, lambda: story.job(5001, 0.8))
    for user in (LIAR, OTHER):
        story.crowd([user], words, 60, 0.05)
    story.run(60)
    assert min(asker.answers for asker in asking) >= 8


def test_a_person_with_fifteen_subordinate_ids_has_one_persons_share() -> None:
    story = Scenario(4)
    story.settings = replace(story.settings, owners=Owners([Range(200_000, 65536, LIAR)]))
    for number in range(15):
        story.liar(200_000 + number, {"wanted": 1 << 40, "adopted": 8 * MIB}, person=LIAR)
    story.job(5001, 0.9)
    story.run(60)
    assert (story.honest[0].granted or 0) > 3 * GIB


def test_subordinate_ids_have_one_persons_connections_and_jobs_together() -> None:
    story = Scenario(5)
    story.settings = replace(story.settings, owners=Owners([Range(200_000, 65536, LIAR)]))
    story.crowd(
        list(range(200_000, 200_060)), [wire.pack_hello(), wire.encode(wire.Join())], 60, 0.05
    )

    def few() -> None:
        assert story.service is not None
        assert len(story.service._peers) <= QUOTAS.user_connections
        assert len(story.service._registry.jobs) <= QUOTAS.user_jobs

    story.world.after(20.0, few)
    story.run(30)


def test_what_a_program_without_pump_takes_is_given_out_no_more_and_comes_back() -> None:
    story = Scenario(6, nvml=True)
    for user in (5001, 5002):
        story.job(user, 0.8)
    story.world.after(20.0, lambda: story.foreign("other", 3 * GIB))
    granted = []

    def look() -> None:
        granted.append(sum(job.granted or 0 for job in story.honest) // MIB)

    for time in (19.0, 55.0, 90.0):
        story.world.after(time, look)
    story.world.after(60.0, lambda: story.foreign("other", 0))
    story.run(95)
    assert granted[0] > 7500 and 4400 < granted[1] < 5120 and granted[2] > 7500, granted


def test_a_liar_about_what_is_usable_is_overruled_by_nvml() -> None:
    story = Scenario(7, nvml=True)
    story.foreign("before", 3 * GIB)
    for user in (5001, 5002):
        story.job(user, 0.8)
    story.liar(LIAR, {"usable": 1 << 40, "wanted": 0})
    story.run(60)


@pytest.mark.parametrize("lie", [0, 1 << 40])
def test_without_nvml_a_liar_about_what_is_usable_is_overruled_by_two_others(lie: int) -> None:
    story = Scenario(8)
    story.foreign("before", 3 * GIB)
    story.world.after(3.0, lambda: story.job(5001, 0.8))
    story.world.after(5.0, lambda: story.job(5002, 0.8))
    story.world.after(10.0, lambda: story.liar(LIAR, {"usable": lie, "wanted": 0}))
    shared = []

    def look() -> None:
        assert story.service is not None
        shared.append(story.service._registry.memory_bytes()[story.name])

    story.world.after(50.0, look)
    story.run(60)
    assert 4000 * MIB < shared[0] <= 5 * GIB


@pytest.mark.parametrize("first", range(0, SEEDS, AT_ONCE))
def test_honest_jobs_have_their_due_in_each_story(first: int) -> None:
    for seed in range(first, first + AT_ONCE):
        drawn(seed).run(SECONDS)


@pytest.mark.parametrize("seed", [3824, 4320, 4795, 8934])
def test_stories_that_long_campaigns_have_failed_in_hold(seed: int) -> None:
    drawn(seed).run(SECONDS)


@pytest.mark.long
@pytest.mark.parametrize("first", range(SEEDS, SEEDS_LONG, BLOCK_LONG))
def test_honest_jobs_have_their_due_in_ten_thousand_stories(first: int) -> None:
    for seed in range(first, first + BLOCK_LONG):
        drawn(seed).run(SECONDS)
