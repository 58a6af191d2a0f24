"""What may be exchanged once an operation has waited for what was held back."""

from __future__ import annotations

from model_batch import Script, lib
from test_model_expect import discard, expect

from pump.model.client import HOST, RESIDENT
from pump.model.view import View

MOST = 2048


class Rounds:
    """Room for 8 blocks: 4 that are needed last, and 4 that each operation of a row has for its
    own and discards, so that what the next one needs finds room in time, and late."""

    def __init__(self) -> None:
        self.script = Script(budget=8)
        self.kept = self.script.alloc(0, 4)
        self.row = self.script.alloc(1, 400)
        self.script.set_state(self.row, HOST)
        self.script.set_state([*self.kept, *self.row[:4]], RESIDENT)
        self.at = 0

    def hold(self) -> View:
        """The next operation is issued and has all it needs; the one behind it finds no room
        before that has executed."""
        lib.pump_model_expect_nothing(self.script.model.raw)
        self.seq = self.script.copy([(1, self.at, 4)])
        discard(self.script, (1, self.at, 4), self.seq)
        expect(self.script, [(1, self.at + 4, 4)])
        expect(self.script, [(0, 0, 4)])
        return self.script.model.view(0)

    def wait(self) -> None:
        """The one behind it is issued, has to wait, and gets what it needs."""
        behind = self.script.copy([(1, self.at + 4, 4)])
        self.script.execute(self.seq)
        self.script.set_state(self.row[self.at + 4 : self.at + 8], RESIDENT)
        discard(self.script, (1, self.at + 4, 4), behind)
        self.script.execute(behind)
        self.at += 8
        self.script.set_state(self.row[self.at : self.at + 4], RESIDENT)


def test_nothing_is_exchanged_where_nobody_has_waited() -> None:
    rounds = Rounds()
    view = rounds.hold()
    assert (len(view.arrivals_need), view.free, view.exchange) == (4, 0, 0)
    assert (len(view.shortfalls_need), view.surplus) == (0, 0)


def test_who_waits_for_what_was_held_back_allows_an_exchange_where_nothing_moves() -> None:
    rounds = Rounds()
    rounds.hold()
    rounds.wait()
    assert rounds.hold().exchange == 2 * 4
    rounds.script.start(lib.PUMP_TO_HOST, list(rounds.kept))
    assert rounds.script.model.view(0).exchange == 0, "something is under way"


def test_who_goes_on_waiting_allows_twice_as_many_each_time_less_what_was_exchanged() -> None:
    rounds = Rounds()
    rounds.hold()
    rounds.wait()
    left = 0
    for times in (2, 4, 8, 16, 32, 64, 64, 64):
        left += times * 4
        assert rounds.hold().exchange == left
        rounds.script.start(lib.PUMP_TO_HOST, list(rounds.kept))
        rounds.wait()
        rounds.script.set_state(rounds.kept, RESIDENT)
        rounds.script.model.forget_window()
        left -= 4


def test_what_leaves_in_a_later_tick_is_no_exchange_whether_a_policy_has_looked_or_not() -> None:
    rounds = Rounds()
    rounds.hold()
    rounds.wait()
    assert rounds.hold().exchange == 2 * 4
    lib.pump_model_turn(rounds.script.model.raw, 0)
    rounds.script.start(lib.PUMP_TO_HOST, list(rounds.kept))
    rounds.wait()
    rounds.script.set_state(rounds.kept, RESIDENT)
    rounds.script.model.forget_window()
    assert rounds.hold().exchange == 0, "it was allowed in vain"


def test_never_more_than_so_many_are_allowed() -> None:
    rounds = Rounds()
    for _ in range(40):
        rounds.hold()
        rounds.script.start(lib.PUMP_TO_HOST, list(rounds.kept))
        rounds.wait()
        rounds.script.set_state(rounds.kept, RESIDENT)
        rounds.script.model.forget_window()
    assert rounds.hold().exchange == MOST


def test_who_waits_although_an_exchange_was_allowed_ends_it_for_longer_each_time() -> None:
    rounds = Rounds()
    allowed = []
    for _ in range(12):
        allowed.append(rounds.hold().exchange)
        rounds.wait()
    assert allowed == [0, 8, *[0] * 3, 8, *[0] * 5, 8]
