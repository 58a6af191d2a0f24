"""Processes killed at any moment leave the virtual GPU that they share usable."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from shared_card import Clients, clients, deadly_driver

ROUNDS = 50
QUICK = {"copies": "modelled", "kernel.touch.min_us": "20"}


@pytest.fixture
def card(tmp_path: Path) -> Iterator[Clients]:
    yield from clients(tmp_path)


def killed_from_outside(card: Clients, dice: random.Random) -> bool:
    """Kills a process at a random moment of its work."""
    victim = card(**QUICK)
    assert victim.code == 0
    victim.tell("random", dice.randrange(1 << 30), 1 << 30)
    time.sleep(dice.uniform(0, 0.03))
    victim.kill()
    return True


def killed_within_a_step(card: Clients, dice: random.Random) -> bool:
    """Lets a process die while it changes the card's state with its lock, also while it joins or
    leaves. Returns False if it survived."""
    changes = dice.choice((60, 300, 3000, 30000))
    env = {"PUMP_TEST_DIE": str(dice.randrange(1, changes))}
    victim = card(driver=deadly_driver(), env=env, **QUICK)
    if victim.code == 0:
        victim.tell("random", dice.randrange(1 << 30), 1000)
        victim.tell("leave")
    died = victim.process.wait(120) == -signal.SIGKILL
    assert died or victim.process.returncode == 0
    return died


def campaign(card: Clients, seed: int, rounds: int) -> int:
    """Keeps one process through all rounds; returns how many others died within a step."""
    dice = random.Random(seed)
    survivor, witness = card(**QUICK), card(**QUICK)
    within = 0
    calls = 0
    for number in range(rounds):
        survivor.tell("random", dice.randrange(1 << 30), 200)
        if number % 2:
            killed_from_outside(card, dice)
        else:
            within += killed_within_a_step(card, dice)
        assert survivor.hear() == [0], f"seed {seed}, round {number}"
        code, now = survivor.ask("call", 3)
        assert code == 0
        assert now >= calls + 3, "its own host functions run"
        calls = int(now)
    report = survivor.leave()
    assert report["card"]["check"] == 0
    assert report["card"]["processes"] == 2
    assert report["violations"] == 0
    assert witness.free_mib() == 1024, "all that the others had is free"
    last = witness.leave()
    assert last["card"]["died"] >= rounds // 2
    assert last["card"]["check"] == 0
    assert card.cards() == []
    return within


def test_processes_killed_at_any_moment_leave_a_usable_card(card: Clients) -> None:
    assert campaign(card, 1, ROUNDS) > ROUNDS // 10


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10, 20))
def test_many_processes_killed_at_any_moment_leave_a_usable_card(card: Clients, seed: int) -> None:
    assert campaign(card, seed, 10 * ROUNDS) > ROUNDS
