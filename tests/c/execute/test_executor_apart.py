"""Evictions that delay the program's calls use contexts of their own, if that helps."""

import pytest
from c_build import SANITIZERS
from executor_build import run

SCENARIOS = [
    "evictions_that_hold_nothing_up_stay_in_the_program_s_context",
    "evictions_that_hold_calls_up_get_contexts_of_their_own_and_keep_them",
    "evictions_come_back_where_contexts_of_their_own_change_nothing",
    "where_no_context_can_be_made_evictions_go_on_in_the_program_s",
]


@pytest.mark.parametrize("sanitizer", SANITIZERS)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_evictions_get_contexts_of_their_own_only_where_that_helps(
    scenario: str, sanitizer: str
) -> None:
    run(sanitizer, scenario)
