"""The time that a run lost against another one of the same program."""

from __future__ import annotations

from typing import Any

import pytest
from test_report_page import made

from pump.report.advice import advise, time_lost
from pump.report.compare import OtherProgramError, compared
from pump.report.page import page
from pump.report.text import text


def run(each_s: float, operations: int = 100, *, peak: int = 1 << 30, **more: Any) -> Any:
    """A report on a run of which each operation takes so long; it fits unless `peak` says not."""
    points = [1.0, *(float(n) for n in range(10, operations + 1, 10))]
    pace = {"operations": points, "seconds": [each_s * n for n in points]}
    return made({"allocated_bytes_peak": peak}, pace=pace, **more)


def kernels(*names: str) -> list[dict[str, Any]]:
    made_up = {"count": 10, "estimated_seconds": 1.0, "estimated_missed_blocks": 0.0}
    return [{"name": name, **made_up} for name in names]


def test_the_time_lost_is_the_difference() -> None:
    found = compared(run(0.02), run(0.01, file="room"))
    assert found["operations"] == 100 and found["file"] == "room"
    assert found["lost_seconds"] == pytest.approx(1.0)
    assert found["lost_share"] == pytest.approx(0.5)
    assert found["error_seconds"] == 0 and found["other_fits"]


def test_a_run_that_was_cut_off_is_compared_up_to_its_end() -> None:
    """Between two points of the longer one the pace is taken as even, and half the distance is
    the error."""
    cut = run(0.02, 30)
    cut["pace"]["operations"].append(37.0)
    cut["pace"]["seconds"].append(0.74)
    for first, second, lost in ((cut, run(0.01), 0.37), (run(0.01), cut, -0.37)):
        found = compared(first, second)
        assert found["operations"] == 37
        assert found["lost_seconds"] == pytest.approx(lost)
        assert found["error_seconds"] == pytest.approx(0.05)


def test_another_program_or_one_that_executed_nothing_is_refused() -> None:
    mine = run(0.02, kernel_list=kernels("a", "b", "(copies)"))
    with pytest.raises(OtherProgramError, match="other kernels than f"):
        compared(mine, run(0.01, kernel_list=kernels("a", "x", "(copies)")))
    nothing = {"operations": [], "seconds": []}
    with pytest.raises(OtherProgramError, match="no operation"):
        compared(mine, {**mine, "pace": nothing})


def with_other(each_s: float, other: Any) -> Any:
    report = run(each_s)
    report["compared"] = compared(report, other)
    return report


def test_the_time_lost_is_the_first_thing_that_a_report_says() -> None:
    report = with_other(0.02, run(0.01))
    item = advise(report)[0]
    assert item.key == "time-lost" and "1.00 s (50%) lost" in item.found
    assert "pump simulate" in item.advice
    for shown in (text(report), page(report)):
        assert "1.00 s, 50.0% of 2.00 s for 100 operations" in shown


def test_a_run_that_lost_nothing_is_told_to_look_elsewhere() -> None:
    for each_s in (0.01, 0.00999):
        report = with_other(each_s, run(0.01))
        assert "no time that can be measured" in advise(report)[0].found
    assert time_lost(report["compared"]).startswith("none")


def test_a_run_against_one_that_lacked_memory_too_is_told_a_lower_bound() -> None:
    report = with_other(0.02, run(0.01, peak=9 << 30))
    assert time_lost(report["compared"]).startswith("at least 1.00 s")
    assert "short of memory itself" in advise(report)[0].advice


def test_a_report_on_one_run_says_how_to_learn_the_time_lost() -> None:
    for shown in (text(run(0.01)), page(run(0.01))):
        assert "not known from one recording" in shown and "--with OTHER" in shown
