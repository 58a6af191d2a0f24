"""Arrays keep copied contents, and texture objects refer to memory."""

from __future__ import annotations

import pytest
from virtual_driver import run

pytest.importorskip("cuda.bindings.nvrtc")

INVALID_VALUE, INVALID_HANDLE = 1, 400


def test_arrays_keep_their_contents_and_their_handles_are_no_addresses() -> None:
    assert run("arrays").found == {
        "whole": True,
        "part": True,
        "row": True,
        "shape": [50, 6, 4, 2],
        "past": INVALID_VALUE,
        "half": INVALID_VALUE,
        "no array": INVALID_HANDLE,
        "no address": INVALID_VALUE,
    }


def test_levels_of_a_mipmapped_array_are_arrays() -> None:
    sums = [[16, 8, 256.0], [8, 4, 128.0], [4, 2, 48.0]]
    assert run("levels").found == [sums, INVALID_HANDLE, [INVALID_HANDLE, 0]]


def test_a_kernel_reads_what_a_texture_object_stands_for() -> None:
    assert run("textures", mode="compute").found == {
        "read": [True, True],
        "too long": INVALID_VALUE,
        "ends": [0, INVALID_VALUE],
        "a surface": [INVALID_VALUE, 0],
    }
