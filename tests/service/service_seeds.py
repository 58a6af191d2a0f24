"""Makes a scenario from a seed: users of the service, their actions, and the faults."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable
from dataclasses import replace

from service_players import GIB, MIB, Honest
from service_scenario import OBSERVER, ROOT, Scenario

from pump.wire import service as wire
from pumpd.service.owners import Owners, Range

SECONDS = 75.0
HOSTILE = (6001, 6002)
SUBORDINATE = {6001: 200_000, 6002: 300_000}
"""The first of each person's 65536 subordinate user ids."""
LIES = (0, 1, 8 * MIB, GIB, 4 * GIB, 1 << 40, wire.BYTES_MOST)


def drawn(seed: int) -> Scenario:
    """Makes the scenario of a seed, ready to run for SECONDS."""
    dice = random.Random(f"story {seed}")
    total = dice.choice((4, 8, 16, 40)) * GIB
    story = Scenario(seed, total=total, nvml=dice.random() < 0.6, settle_s=dice.choice((1, 2, 5)))
    ranges = [Range(first, 65536, person) for person, first in SUBORDINATE.items()]
    story.settings = replace(story.settings, owners=Owners(ranges))
    for user, every_s in ((ROOT, 5.0), (OBSERVER, 7.0), (5100, 9.0)):
        story.asker(user, every_s)
    if dice.random() < 0.3:
        story.foreign("before", int(total * dice.uniform(0.1, 0.5)))
    _honest(story, dice)
    for person in HOSTILE[: dice.choice((0, 1, 1, 1, 2))]:
        for _ in range(dice.choice((1, 1, 2))):
            what = dice.choice(ATTACKS)
            what(story, dice, person)
    for _ in range(dice.randrange(4)):
        story.world.after(dice.uniform(3, SECONDS - 40), _disturbance(story, dice))
    return story


def _honest(story: Scenario, dice: random.Random) -> None:
    for person in range(dice.choice((1, 2, 2, 3))):
        for _ in range(dice.choice((1, 1, 2))):
            wanted, priority = dice.uniform(0.2, 1.5), dice.choice((0, 0, 0, 3))

            def begin(
                user: int = 5001 + person, share: float = wanted, rank: int = priority
            ) -> None:
                story.job(user, share, priority=rank)

            story.world.after(dice.choice((0.0, dice.uniform(0, 20))), begin)


# ---- attacks of hostile persons ----


def _lies(dice: random.Random) -> dict[str, int]:
    names = ("usable", "wanted", "adopted", "resident")
    said = {name: dice.choice(LIES) for name in names if dice.random() < 0.7}
    return said | ({"acted": dice.choice((0, 1 << 40))} if dice.random() < 0.5 else {})


def _liar(story: Scenario, dice: random.Random, person: int) -> None:
    physical = dice.choice((0, 0, story.card.total // 4))
    every_s = dice.choice((0.0, 1.5, 5.0, 8.0))
    priority = dice.choice((0, 0, -3))
    said = _lies(dice)
    story.world.after(
        dice.uniform(0, 10),
        lambda: story.liar(person, said, physical=physical, every_s=every_s, priority=priority),
    )


def _taking_turns(story: Scenario, dice: random.Random, person: int) -> None:
    """Adds two jobs that claim everything and are never away at the same time."""
    every_s = dice.uniform(3, 9)
    said = dict.fromkeys(("usable", "wanted", "adopted", "resident"), 1 << 40) | {"acted": 0}
    for late in (0.0, every_s / 2):
        story.world.after(late, lambda: story.liar(person, said, every_s=every_s))


def _hides(story: Scenario, dice: random.Random, person: int) -> None:
    """Adds a job that keeps its granted memory and reports that it has none."""
    part = story.card.total // dice.choice((3, 4))
    said = {"wanted": 1 << 40, "resident": dice.choice((0, MIB)), "usable": part}
    story.world.after(dice.uniform(0, 20), lambda: story.liar(person, said, physical=part))


def _many_ids(story: Scenario, dice: random.Random, person: int) -> None:
    first = SUBORDINATE[person] + dice.randrange(60000)
    for number in range(dice.choice((4, 8, 15))):
        said = {"wanted": 1 << 40, "adopted": 8 * MIB, "resident": 0}
        story.liar(first + number, said, person=person)


def _flood(story: Scenario, dice: random.Random, person: int) -> None:
    for _ in range(dice.choice((1, 3))):
        story.flood(person, deaf=dice.random() < 0.5)


def _crowd(story: Scenario, dice: random.Random, person: int) -> None:
    hello, join = wire.pack_hello(), wire.encode(wire.Join("crowd"))
    words = dice.choice(([], [], [hello], [hello, join], [b"x"], [hello, b"{"]))
    users = [person, *range(SUBORDINATE[person], SUBORDINATE[person] + dice.choice((0, 20)))]
    story.crowd(users, words, dice.choice((10, 60)), dice.choice((0.05, 0.3)))


def _names_gpus(story: Scenario, dice: random.Random, person: int) -> None:
    """Adds a peer that reports new GPUs all the time."""
    entries = (
        wire.GpuReport(f"{dice.getrandbits(128):032x}", *[1 << 40] * 5, wire.USE_MOST)
        for _ in range(40)
    )
    story.flood(person, deaf=False, frames=[wire.Report(0, 1, 0, 0, (one,)) for one in entries])


ATTACKS: tuple[Callable[[Scenario, random.Random, int], None], ...] = (
    _liar, _liar, _taking_turns, _hides, _many_ids, _flood, _crowd, _names_gpus,
)  # fmt: skip


# ---- events that affect everyone ----


def _disturbance(story: Scenario, dice: random.Random) -> Callable[[], None]:
    share, seconds = dice.uniform(0.05, 0.4), dice.uniform(0.1, 2.0)
    which = dice.randrange(7)
    weights = dice.choice(({}, {5001: 2.0}, {5001: 1.0, 6001: 0.5}))

    def any_job() -> Honest | None:
        there = [job for job in story.honest if not job.over]
        return dice.choice(there) if there else None

    def happens() -> None:
        if which == 0:
            story.kill(seconds)
        elif which == 1:
            story.world.wall += dice.choice((-1e6, 1e6, 3600))
            story.world.note("the clock on the wall jumps")
        elif which == 2:
            story.settings = replace(
                story.settings, weights=weights, beat_s=dice.choice((1.0, 2.0))
            )
            story.world.signal(signal.SIGHUP)
            story.world.note(f"reload with weights {weights}")
        elif which == 3:
            story.foreign("other", int(story.card.total * share))
            story.world.after(20 * seconds, lambda: story.foreign("other", 0))
        elif (job := any_job()) is None:
            pass
        elif which == 4:
            story.world.note(f"{job!r} is stopped")
            job.stop(5 * seconds)
        elif which == 5:
            story.world.note(f"{job!r} is killed")
            job.crash()
        else:
            story.world.note(f"{job!r} wants {share} of the card")
            job.wanted = int(story.card.total * share)

    return happens
