"""What the planned policy decides, from views made by hand."""

from __future__ import annotations

import numpy as np
from test_policy_window import make_view

from pump.model.view import NOT_NEEDED, View
from pump.policy.planned import Planned
from pump.policy.window import Window


def short_view(needs: list[int], ends: list[int], near: int = 0, **more: object) -> View:
    """A full device whose blocks 10 ... are needed at 90, 80, 70 and so on."""
    return make_view(
        budget=8,
        resident={10 + i: 90 - 10 * i for i in range(8)},
        expected=100,
        shortfalls_need=np.array(needs, np.int64),
        shortfalls_end=np.array(ends, np.int64),
        near=near,
        **more,
    )


def left(view: View) -> list[int]:
    return Planned().decide(view).to_host.tolist()


def test_nothing_leaves_for_room_that_comes_by_itself() -> None:
    view = short_view([], [], missing={1: 30, 2: 31, 3: 32, 4: 33})
    assert left(view) == []
    assert Window().decide(view).to_host.tolist() == [10, 11, 12, 13], "the window does not know"


def test_who_stays_away_until_the_shortage_is_over_leaves_at_once() -> None:
    assert left(short_view([40, 41, 42, 43], [60, 60, 60, 60])) == [10, 11, 12]
    assert left(short_view([40, 41, 42, 43], [85, 84, 83, 82])) == [10]


def test_a_shortage_that_nobody_outlasts_leaves_the_others_their_victims() -> None:
    assert left(short_view([40, 41, 42], [95, 75, 65])) == [10, 11]


def test_soon_the_rule_is_that_of_the_window() -> None:
    needs, ends = [40, 41, 42, 65], [95, 95, 95, 95]
    assert left(short_view(needs, ends)) == []
    assert left(short_view(needs, ends, near=50)) == [10, 11, 12]
    assert left(short_view([85, 86, 87, 88], ends, near=100)) == [10]


def test_while_nothing_is_expected_it_is_the_window() -> None:
    view = short_view([40], [95], missing={1: 30, 2: 31, 3: 32, 4: 33})._replace(expected=0)
    planned, window = Planned().decide(view), Window().decide(view)
    assert planned.to_host.tolist() == window.to_host.tolist() != []


def test_what_nothing_needs_makes_a_little_room_for_what_nobody_foresees() -> None:
    view = make_view(
        budget=200, resident={i: NOT_NEEDED if i < 3 else 90 for i in range(200)}, expected=9
    )
    assert left(view) == [0, 1, 2]


def test_as_many_leave_as_can_be_given_a_shortage_that_they_outlast() -> None:
    random = np.random.default_rng(5)
    for _ in range(200):
        needs = np.sort(random.integers(1, 60, random.integers(1, 9)))
        ends = needs + random.integers(1, 60, len(needs))
        near = int(random.integers(0, 60))
        view = short_view(needs.tolist(), ends.tolist(), near)
        bounds = sorted(np.where(needs <= near, needs, ends).tolist())
        uses = view.leavers_next_use.tolist()
        most = 0
        for count in range(1, min(len(bounds), len(uses)) + 1):
            pairs = zip(reversed(uses[:count]), bounds[:count], strict=True)
            most = count if all(use > bound for use, bound in pairs) else most
        assert left(view) == view.leavers[:most].tolist()
