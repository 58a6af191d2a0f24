"""What says how far some work is: whole lines anywhere, a passing line on a terminal alone."""

from __future__ import annotations

import io

import pytest

from pump.measure import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


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


def test_a_passing_line_counts_steps_and_is_wiped_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PASSING_S", 0.0)
    out = Terminal()
    with progress.passing(3, out) as step:
        step()
        step()
    shown = out.getvalue().split("\r\x1b[K")
    assert [line[:9] for line in shown] == ["", "  1 of 3,", "  2 of 3,", ""]


def test_without_a_terminal_no_line_passes() -> None:
    out = io.StringIO()
    with progress.passing(1, out) as step:
        step()
    assert out.getvalue() == ""
