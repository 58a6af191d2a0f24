"""The conclusions that pump compare draws from times."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pump.base import outputs, schemas
from pump.config.settings import DEFAULTS
from pump.measure import comparison
from pump.measure.comparison import OUT_OF_MEMORY, Comparison


def compared(**seconds: Sequence[float] | str) -> Comparison:
    """Returns a comparison with these times by variant; a text is a variant's failure."""
    rounds = max(len(times) for times in seconds.values() if not isinstance(times, str))
    found = Comparison(["python", "train.py"], [], "a GPU", "whole runs", rounds)
    for name, times in seconds.items():
        if isinstance(times, str):
            found.variant(name).failure = times
        else:
            found.variant(name).seconds = dict(enumerate(times))
    return found


FAST = [1.0, 1.1, 0.9, 1.0, 1.05, 0.95]
SLOW = [time * 3 for time in FAST]


def test_the_usual_variant_is_the_default_policy() -> None:
    assert DEFAULTS.policy == comparison.USUAL


def test_ratios_are_taken_within_a_round_so_a_slow_machine_does_not_count() -> None:
    machine = [1.0, 9.0, 2.0, 5.0, 1.0, 3.0]
    found = compared(plain=machine, window=[time * 1.5 for time in machine])
    middle, around = found.ratio(found.variant("window"), found.variant("plain")) or (0.0, None)
    assert (middle, around and (around.low, around.high)) == (1.5, (1.5, 1.5))


def test_where_the_command_fits_plain_is_what_the_others_are_compared_with() -> None:
    said = " ".join(comparison.verdict(compared(plain=FAST, demand=SLOW, planned=SLOW)))
    assert "planned took 3.0 times as long as plain" in said
    assert "fits without pump" in said


def test_a_plain_run_out_of_memory_is_a_result_and_demand_is_compared_with() -> None:
    found = compared(plain=OUT_OF_MEMORY, demand=SLOW, planned=FAST, window=FAST)
    said = " ".join(comparison.verdict(found))
    assert said.startswith("Without pump the command runs out of memory.")
    assert "planned was 3.0 times as fast as demand" in said
    assert "Run it with: pump-run -- python train.py" in said


def test_another_policy_is_recommended_only_where_it_is_faster_for_certain() -> None:
    better = [time * 0.8 for time in FAST]
    unsure = [0.8, 1.2, 0.8, 1.2, 0.8, 0.8]
    sure = comparison.verdict(compared(demand=SLOW, planned=FAST, window=better))
    assert "Run it with: pump-run --policy window -- python train.py" in sure
    not_sure = comparison.verdict(compared(demand=SLOW, planned=[1.0] * 6, window=unsure))
    assert "Run it with: pump-run -- python train.py" in not_sure


@pytest.mark.parametrize("rounds", [1, 3])
def test_few_rounds_are_called_too_few(rounds: int) -> None:
    better = [time * 0.8 for time in FAST[:rounds]]
    found = compared(demand=SLOW[:rounds], planned=FAST[:rounds], window=better)
    said = comparison.as_text(found)
    assert "planned was 3.0 times as fast as demand, but " in said
    assert "may be noise; use --rounds 6." in said and "--policy window" not in said
    assert ("sign test" in said) == (rounds > 1), "one run has no range"


@pytest.mark.parametrize(
    ("times", "said"),
    [
        (0.85, "planned was 15 % faster than demand, but 3 rounds may be noise; use --rounds 6."),
        (1.2, "planned was 20 % slower than demand, but 3 rounds may be noise; use --rounds 6."),
    ],
)
def test_the_verdict_is_a_sentence_that_people_say(times: float, said: str) -> None:
    found = compared(demand=FAST[:3], planned=[time * times for time in FAST[:3]])
    assert said in comparison.verdict(found)


def test_times_that_cross_do_not_differ() -> None:
    crossing = [0.9, 1.1, 1.0, 0.9, 1.1, 1.0]
    said = " ".join(comparison.verdict(compared(plain=[1.0] * 6, window=crossing)))
    assert "window took about as long as plain (0.90 to 1.10 times plain's time, 97 % sure)" in said


def test_a_way_that_fails_is_named_with_its_log_and_the_others_count() -> None:
    found = compared(plain=FAST, window=FAST, planned="exit status 3")
    found.variant("planned").log = "runs/planned-1.log"
    said = comparison.verdict(found)
    assert "planned failed: exit status 3; output: runs/planned-1.log" in said


def test_nothing_measured_is_said_and_no_figure_is_made_up() -> None:
    found = compared(plain=OUT_OF_MEMORY, demand=[])
    found.ended_early = True
    assert comparison.verdict(found)[-1] == ("Nothing to compare: no run with pump finished.")
    assert comparison.as_json(found)["baseline"] is None


def test_text_and_markdown_tell_the_confidence_and_one_row_a_way() -> None:
    found = compared(plain=OUT_OF_MEMORY, demand=SLOW, window=FAST, planned=FAST)
    text, page = comparison.as_text(found), comparison.as_markdown(found)
    for whole in (text, page):
        assert "with a confidence of 96.9% (sign test)" in whole
        assert "against demand" in whole
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    assert len({row.count("|") for row in rows}) == 1
    assert [row.split("|")[1].strip() for row in rows[2:]] == list(comparison.VARIANTS)


def test_a_command_cannot_break_the_page_or_the_terminal() -> None:
    found = compared(plain=FAST, window=FAST)
    found.command = ["python", "a\n# b\x1b[2J"]
    assert "\x1b" not in comparison.as_text(found) + comparison.as_markdown(found)
    assert "    python a # b" in comparison.as_markdown(found)


def test_what_is_written_is_known_again_so_that_it_can_be_replaced() -> None:
    found = compared(plain=FAST, window=FAST)
    written = schemas.dump("compare", comparison.as_json(found)).encode()
    assert outputs.COMPARISON.fits(written)
    assert outputs.COMPARISON_PAGE.fits(comparison.as_markdown(found).encode())
