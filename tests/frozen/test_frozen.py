"""Moving files must not change the ABI, messages, recordings and the digits of simulations."""

from __future__ import annotations

import freeze
import pytest


@pytest.mark.parametrize("name", freeze.ALL)
def test_what_is_frozen_has_not_changed(name: str) -> None:
    assert freeze.as_kept(freeze.ALL[name]()) == freeze.kept(name)


def test_every_frozen_file_is_compared() -> None:
    assert {path.stem for path in freeze.HERE.glob("*.json")} == set(freeze.ALL)
    assert len(freeze.TRACES) == 10
