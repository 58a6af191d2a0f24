"""Multiplied files for whole verbs (verbs.py): all kept inputs, and random ones."""

from __future__ import annotations

import random

import fuzz_targets
import pytest
import verbs
from bounds import bounded

INPUTS_SHORT, INPUTS_LONG = 25, 4000


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets a home without files. Calls each verb once, so that no input pays for imports."""
    monkeypatch.setenv("HOME", str(verbs.FOLDER))
    for verb in range(len(verbs.VERBS)):
        verbs.target(bytes([verb]))


def check(inputs: list[bytes]) -> None:
    for data in inputs:
        try:
            with bounded():
                verbs.target(data)
        except BaseException as error:
            error.add_note(f"input {data.hex()}, {verbs.VERBS[data[0] % len(verbs.VERBS)][0]}")
            raise


def test_no_claim_that_is_kept_harms_a_verb() -> None:
    assert len(fuzz_targets.found("verbs")) >= 6
    check([*verbs.seeds(), *fuzz_targets.found("verbs").values()])


def test_random_claims_harm_no_verb() -> None:
    dice = random.Random(1)
    check([verbs.random_input(dice) for _ in range(INPUTS_SHORT)])


@pytest.mark.long
@pytest.mark.parametrize("seed", [2, 3])
def test_many_random_claims_harm_no_verb(seed: int) -> None:
    dice = random.Random(seed)
    check([verbs.random_input(dice) for _ in range(INPUTS_LONG)])
