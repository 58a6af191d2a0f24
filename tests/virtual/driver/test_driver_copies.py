"""Copies that take the model's time and leave the data in place (copies=modelled)."""

from __future__ import annotations

import pytest
from virtual_driver import GIB, MIB, environment, profile, run

pytest.importorskip("cuda.bindings.nvrtc")

SLOW = {"link.copy_h2d_gbps": "1", "link.copy_d2h_gbps": "2"}
FAST = {"link.copy_h2d_gbps": "100", "link.copy_d2h_gbps": "100"}


def copied(kib: int, copies: str, **changes: str) -> tuple[float, bool]:
    """Returns the wall seconds of a copy to the device and back, and whether data arrived."""
    text = profile("timing", GIB, copies=copies, **changes)
    outcome = run("copy_and_back", str(kib), env={"PUMP_VIRTUAL_PROFILE": text})
    assert outcome.report["copies"] == copies
    return outcome.found["seconds"], outcome.found["arrived"]


@pytest.mark.alone
def test_long_copies_take_the_models_time_and_move_nothing() -> None:
    expected = 2 * 256 * MIB / 100e9  # 5.4 ms, in which no host copies half a gigabyte
    seconds, arrived = copied(256 << 10, "modelled", **FAST)
    assert expected <= seconds < expected + 0.02
    assert not arrived
    seconds, _ = copied(64 << 10, "modelled", **SLOW)
    assert seconds >= 1.5 * 64 * MIB / 1e9


@pytest.mark.parametrize(("kib", "copies"), [(512, "modelled"), (4096, "real")])
def test_short_copies_move_their_data_and_so_do_all_by_default(kib: int, copies: str) -> None:
    assert copied(kib, copies)[1]


def test_modelled_copies_are_refused_where_data_matter() -> None:
    text = environment("compute", GIB)["PUMP_VIRTUAL_PROFILE"] + ";copies=modelled"
    outcome = run("init_only", env={"PUMP_VIRTUAL_PROFILE": text})
    assert outcome.found == 100
    assert "copies=modelled moves no data" in outcome.stderr
