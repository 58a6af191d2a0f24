"""Reports of progress."""

from __future__ import annotations

import io

import pytest

from pump.measure import progress


def test_each_step_has_its_line_and_the_time_that_is_left_until_the_last() -> None:
    out = io.StringIO()
    steps = progress.Progress(2, out)
    with steps.step("first"):
        pass
    with pytest.raises(KeyError), steps.step("second"):
        raise KeyError
    first, second = out.getvalue().splitlines()
    assert first.startswith("[1/2] first ... 0.0 s, about ") and first.endswith(" left")
    assert second == "[2/2] second ... failed"
