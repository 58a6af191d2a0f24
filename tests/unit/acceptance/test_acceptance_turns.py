"""The case that fits: two running programs take turns, and only report how long they took."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from acceptance import running, stage_speed
from acceptance.contract import FAIL, INFO, LATE, NO_MEMORY, PASS, UNAVAILABLE, Context, Item
from acceptance.speed.turns import Player
from acceptance_fakes import GIB, make_machine

FAKE = """
import json, sys, time
name, lines, log, warm, pace, turns = sys.argv[1:]
def say(**line):
    with open(lines, "a") as file: file.write(json.dumps(line) + "\\n")
def note(text):
    with open(log, "a") as file: file.write(f"{text}{name}\\n")
note("start ")
say(kind="ready", seconds_per_iteration=float(warm))
for number, line in enumerate(sys.stdin):
    if number == int(turns): sys.exit("broke down")
    note("+")
    time.sleep(0.01)
    note("-")
    say(kind="loop", iterations=int(line), seconds=float(pace) * int(line))
"""
PACES = {"plain": 0.001, "pumped": 0.001005}


class Fits:
    """Makes the item of the case that fits from two such programs, and reads their notes."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        (folder / "fake.py").write_text(FAKE)
        self.context = Context(folder, folder, folder, make_machine())
        self.log = folder / "log"
        self.turns = {"plain": 99, "pumped": 99}
        self.paces = dict(PACES)
        self.warm_s = 0.001
        patch.setattr(stage_speed, "_player", self._player)

    def _player(self, context: Context, _model: str, pump: bool) -> Player:
        name = "pumped" if pump else "plain"
        lines = context.work / f"{name}.lines"
        words = [sys.executable, str(context.root / "fake.py"), name, str(lines), str(self.log)]
        words += [str(self.warm_s), str(self.paces[name]), str(self.turns[name])]
        lines.unlink(missing_ok=True)
        return Player(running.Program(context, words, dict(os.environ), subprocess.PIPE), lines)

    def items(self, limit_s: float = 60.0) -> list[Item]:
        return list(stage_speed._fits(self.context, "mlp", limit_s))

    def noted(self) -> list[str]:
        return self.log.read_text().splitlines()


@pytest.fixture
def fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fits:
    return Fits(tmp_path, monkeypatch)


def test_two_processes_decide_it_in_turns_that_never_overlap(fits: Fits) -> None:
    (item,) = fits.items()
    assert (item.name, item.status, item.reason) == ("mlp.fits", PASS, "")
    assert item.values["pairs"] == stage_speed.FITS_PAIRS
    assert item.values["pumped_over_plain"] == pytest.approx(1.005)
    noted = fits.noted()
    assert sorted(noted[:2]) == ["start plain", "start pumped"]
    order = [line[1:] for line in noted[2:] if line[0] == "+"]
    assert order == ["plain", "pumped", "pumped", "plain"] * (stage_speed.FITS_PAIRS // 2)
    assert noted[2:] == [sign + name for name in order for sign in "+-"]


def test_a_program_that_breaks_down_is_a_failed_item_with_its_word(fits: Fits) -> None:
    fits.turns["pumped"] = 2
    (item,) = fits.items()
    assert (item.name, item.status) == ("mlp.fits.run", FAIL)
    assert "broke down" in item.reason


def test_what_the_time_cuts_off_has_the_figures_of_its_pairs_and_is_late(fits: Fits) -> None:
    fits.warm_s = 1.0  # five iterations take 5 s
    (item,) = fits.items(limit_s=3.0)
    assert (item.name, item.status, item.reason) == ("mlp.fits", UNAVAILABLE, LATE)
    fits.warm_s, fits.paces["pumped"] = 0.001, 1.0  # known only after the first pair
    (item,) = fits.items(limit_s=3.0)
    assert (item.status, item.reason, item.values["pairs"]) == (INFO, LATE, 1)


def test_a_card_with_no_place_for_both_processes_is_no_failure(fits: Fits) -> None:
    machine = make_machine(total_bytes=8 * GIB, free_bytes=6 * GIB)
    fits.context = Context(fits.context.root, Path(), fits.context.work, machine)
    (item,) = fits.items()
    assert item.status == UNAVAILABLE and NO_MEMORY in item.reason
    assert not fits.log.exists()


def test_a_program_that_never_gets_ready_is_not_waited_for(fits: Fits, tmp_path: Path) -> None:
    program = running.Program(fits.context, ["sleep", "60"], dict(os.environ), subprocess.PIPE)
    player = Player(program, tmp_path / "none")
    began = time.monotonic()
    assert player.ready(began + 0.2) is None
    assert player.loop(3, began + 0.4) is None
    program.kill()
    assert player.end().returncode == -9
    assert time.monotonic() - began < 10


@pytest.mark.parametrize(
    ("asked", "iterations"),
    [
        ({"iteration_s": 0.045, "left_s": 600.0, "pairs_left": 6}, 67),  # three seconds
        ({"iteration_s": 0.045, "left_s": 22.0, "pairs_left": 6}, 35),  # as many as fit
        ({"iteration_s": 2.0, "left_s": 22.0, "pairs_left": 6}, 5),
        ({"iteration_s": 0.0, "left_s": 600.0, "pairs_left": 6}, 400),
    ],
)
def test_loops_are_as_long_as_the_time_allows_for_all_pairs(
    asked: dict[str, Any], iterations: int
) -> None:
    assert stage_speed.loop_iterations(**asked) == iterations
