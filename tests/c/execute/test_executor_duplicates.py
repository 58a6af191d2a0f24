"""Duplicates: which blocks get advice, what the page map shows, and which blocks move."""

import pytest
from executor_build import run

SCENARIOS = [
    "what_was_not_written_leaves_without_a_copy",
    "what_the_host_has_no_copy_of_gets_no_advice",
    "memory_whose_owner_changes_unseen_gets_no_advice",
    "a_refusal_of_the_advice_ends_it_and_one_of_its_end_stops_the_departure",
    "a_page_map_that_shows_nothing_ends_it",
    "of_a_slice_the_blocks_that_are_not_clean_are_moved_in_runs",
    "memory_is_read_in_place_only_if_pump_alone_advises_it",
]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_duplicates_keep_their_promises(scenario: str) -> None:
    run("address,undefined", scenario)
