"""What the planned policy decides, from views made by hand."""

from __future__ import annotations

import numpy as np
from test_policy_window import make_view

from pump.model.view import NOT_NEEDED, View
from pump.policy.planned import Planned
from pump.policy.window import Window


def short_view(needs: list[int], surplus: int = 0, **more: object) -> View:
    """A full device whose blocks 10 ... are needed at 90, 80, 70 and so on."""
    return make_view(
        budget=8,
        resident={10 + i: 90 - 10 * i for i in range(8)},
        expected=100,
        shortfalls_need=np.array(needs, np.int64),
        surplus=surplus,
        **more,
    )


def left(view: View) -> list[int]:
    return Planned().decide(view).to_host.tolist()


def test_nothing_leaves_for_room_that_comes_by_itself() -> None:
    view = short_view([], missing={1: 30, 2: 31, 3: 32, 4: 33})
    assert left(view) == []
    assert Window().decide(view).to_host.tolist() == [10, 11, 12, 13], "the window does not know"


def test_a_block_that_cannot_stay_anyway_leaves_at_once() -> None:
    assert left(short_view([], 3)) == [10, 11, 12]
    assert left(short_view([85, 86], 2)) == [10, 11], "needed before what is short, and yet"


def test_for_what_is_short_soon_the_rule_is_that_of_the_window() -> None:
    assert left(short_view([61, 62, 75, 85])) == [10, 11, 12]
    assert left(short_view([85, 86, 87, 88])) == [10]
    assert left(short_view([95, 96])) == []


def test_a_shortage_soon_that_no_candidate_outlasts_is_reported() -> None:
    assert Planned().decide(short_view([40, 85, 95])).short_of_room
    assert not Planned().decide(short_view([40, 41])).short_of_room


def test_while_nothing_is_expected_it_is_the_window() -> None:
    view = short_view([40], missing={1: 30, 2: 31, 3: 32, 4: 33})._replace(expected=0)
    planned, window = Planned().decide(view), Window().decide(view)
    assert planned.to_host.tolist() == window.to_host.tolist() != []


def test_blocks_that_nothing_needs_make_a_little_room_for_unpredicted_ones() -> None:
    view = make_view(
        budget=200, resident={i: NOT_NEEDED if i < 3 else 90 for i in range(200)}, expected=9
    )
    assert left(view) == [0, 1, 2]


def test_as_many_leave_as_can_be_given_a_shortage_that_they_outlast() -> None:
    random = np.random.default_rng(5)
    for _ in range(200):
        needs = np.sort(random.integers(1, 100, random.integers(1, 9))).tolist()
        view = short_view(needs)
        uses = view.candidates_next_use.tolist()
        most = 0
        for count in range(1, min(len(needs), len(uses)) + 1):
            pairs = zip(reversed(uses[:count]), needs[:count], strict=True)
            most = count if all(use > need for use, need in pairs) else most
        assert left(view) == view.eviction_candidates[:most].tolist()
