"""The least time of a step whose weights do not fit, computed by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from workloads.formulas import FLIGHT_BYTES, OTHERS, Step, bounds

GB = 10**9
LINK = 20 * GB
TOKEN = Step(
    weights_bytes=16 * GB,
    read_bytes=16 * GB,
    others_bytes=1 * GB,
    largest_bytes=GB // 2,
    layer_bytes=1 * GB,
    compute_seconds=0.016,
    gap_seconds=0.001,
)
ROUNDING = GB // 2 - FLIGHT_BYTES
"""Makes the bytes in flight half a gigabyte."""


def test_a_step_of_inference_streams_what_does_not_fit_each_time() -> None:
    # 10 GB minus 1 for other data, 0.5 for an operation, 0.5 in flight: 8 held, 8 streamed.
    found = bounds(TOKEN, 10 * GB - ROUNDING, LINK)
    assert found["planned"] == pytest.approx(8 / 20)
    assert found["window"] == pytest.approx(8 / 20 + 0.008 + 0.001)


def test_compute_decides_where_it_takes_longer_than_the_link() -> None:
    slow = replace(TOKEN, compute_seconds=2.0)
    found = bounds(slow, 10 * GB - ROUNDING, LINK)
    assert found == {"planned": 2.0, "window": pytest.approx(1.0 + 1.0 + 0.001)}


def test_what_is_read_less_often_streams_less_and_what_is_read_twice_more() -> None:
    experts, back = replace(TOKEN, read_bytes=2 * GB), replace(TOKEN, read_bytes=32 * GB)
    assert bounds(experts, 10 * GB - ROUNDING, LINK)["planned"] == pytest.approx(1 / 20)
    assert bounds(back, 10 * GB - ROUNDING, LINK)["planned"] == pytest.approx(16 / 20)


def test_other_systems_by_their_own_rules() -> None:
    found = {name: seconds(TOKEN, 10 * GB, LINK) for name, seconds in OTHERS.items()}
    # 9 of 16 are on the GPU: 7 are read at the link's rate, the other 9 at full speed.
    assert found["zero_copy"] == pytest.approx(0.016 * 9 / 16 + 7 / 20 + 0.001)
    # 9 minus one layer's reserve: eight whole layers are held. Transfers do not overlap.
    assert found["layer_offload"] == pytest.approx(0.016 + 8 / 20 + 0.001)
    # All weights are streamed, alongside the kernels.
    assert found["zero_inference"] == pytest.approx(16 / 20 + 0.001)


def test_where_everything_fits_nothing_is_streamed_but_by_those_who_hold_nothing() -> None:
    whole = TOKEN.compute_seconds + TOKEN.gap_seconds
    found = {name: seconds(TOKEN, 20 * GB, LINK) for name, seconds in OTHERS.items()}
    assert found["zero_copy"] == found["layer_offload"] == pytest.approx(whole)
    assert found["zero_inference"] > 40 * found["zero_copy"]
    assert bounds(TOKEN, 20 * GB, LINK)["planned"] == TOKEN.compute_seconds


def test_without_room_for_any_layer_everything_is_streamed() -> None:
    assert OTHERS["layer_offload"](TOKEN, GB, LINK) == pytest.approx(0.016 + 16 / 20 + 0.001)
    assert bounds(TOKEN, GB, LINK)["planned"] == pytest.approx(16 / 20)
