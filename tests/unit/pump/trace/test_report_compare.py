"""The time that a run lost, compared with another run of the same program."""

from __future__ import annotations

from typing import Any

import pytest
from test_report_page import made

from pump.report.advice import advise, time_lost
from pump.report.compare import OtherProgramError, compared
from pump.report.gather import estimate_of
from pump.report.page import page
from pump.report.text import text
from pump.trace.format import DELAYED_TIME, LOST_TIMES


def run(each_s: float, operations: int = 100, *, peak: int = 1 << 30, **more: Any) -> Any:
    """Returns a report on a run with this time for each operation; without `peak`, it fits."""
    points = [1.0, *(float(n) for n in range(10, operations + 1, 10))]
    pace = {"operations": points, "seconds": [each_s * n for n in points]}
    return made({"allocated_bytes_peak": peak}, pace=pace, **more)


def without_fixed_spaces(shown: str) -> str:
    """Returns a page without the spaces that keep numbers and units together."""
    return shown.replace("\N{NO-BREAK SPACE}", " ")


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
    """Between two points of the longer run the pace is assumed to be even, and half the distance is
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
    assert item.key == "time-lost" and item.command == "pump compare -- train"
    assert item.found == "100 operations took 2.00 s in this run and 1.00 s in f."
    for shown in (text(report), without_fixed_spaces(page(report))):
        assert "Time lost to memory: 50 % of 2.00 s (1.00 s), measured against f" in shown


def test_a_run_that_lost_nothing_is_told_to_look_elsewhere() -> None:
    for each_s in (0.01, 0.00999):
        report = with_other(each_s, run(0.01))
        assert "no measurable time" in advise(report)[0].advice
    assert time_lost(report).startswith("Time lost to memory: none, measured")


def test_a_run_against_one_that_lacked_memory_too_is_told_a_lower_bound() -> None:
    report = with_other(0.02, run(0.01, peak=9 << 30))
    assert time_lost(report).startswith("Time lost to memory: at least 50 % of 2.00 s")
    assert "short of memory, too" in advise(report)[0].advice


def test_a_report_without_an_estimate_says_that_the_time_lost_is_not_known() -> None:
    for shown in (text(run(0.01)), page(run(0.01))):
        assert "Time lost to memory: not known from this recording" in shown


def with_estimate(least: float, lost: float, most: float) -> Any:
    told = {"seconds": lost, "least_seconds": least, "most_seconds": most, "of_seconds": 2.0}
    return run(0.02, time_lost=told)


def test_what_the_recording_estimated_is_the_headline_where_nothing_was_measured() -> None:
    report = with_estimate(0.9, 1.0, 1.1)
    for shown in (text(report), without_fixed_spaces(page(report))):
        assert "about 50 % of 2.00 s (900.0 ms to 1.10 s)" in shown
    assert advise(report)[0].command == "pump simulate f --sweep"
    assert "about 1.00 s instead of 2.00 s" in advise(report)[0].found
    assert time_lost(with_estimate(0, 0, 0)).endswith("under 1 % of 2.00 s")
    assert not [item for item in advise(with_estimate(0, 0, 0)) if item.key == "time-lost"]
    vague = with_estimate(0.2, 1.0, 1.8)
    assert time_lost(vague).endswith("10 % to 90 % of 2.00 s (200.0 ms to 1.80 s)")
    assert "200.0 ms to 1.80 s instead of 2.00 s" in advise(vague)[0].found
    report["compared"] = compared(report, run(0.01))
    assert "50 % of 2.00 s (1.00 s), measured" in time_lost(report), "a measurement is better"


@pytest.mark.parametrize(
    "end",
    [None, {}, {"lost_ns": 1}, (2, 1, 3, 0), (5, 1, 3, 9), (1, 1, "3", 9), (-1, -1, 1, 9)],
    ids=str,
)
def test_an_end_without_a_sound_estimate_tells_none(end: Any) -> None:
    if isinstance(end, tuple):
        end = dict(zip(LOST_TIMES, end, strict=True))
    assert estimate_of(end) is None


def test_the_estimate_of_a_recordings_end_is_told_in_seconds() -> None:
    end = dict(zip(LOST_TIMES, (2 * 10**9, 10**9, 3 * 10**9, 9 * 10**9), strict=True))
    told = {"seconds": 2.0, "least_seconds": 1.0, "most_seconds": 3.0, "of_seconds": 9.0}
    assert estimate_of(end) == told | {"core_seconds": 0.0}
    for delayed_ns, core_s in ((10**9, 1.0), (10**11, 2.0), (-1, 0.0), ("1", 0.0)):
        assert estimate_of(end | {DELAYED_TIME: delayed_ns}) == told | {"core_seconds": core_s}
