"""What may be exchanged once an operation has waited for what was held back."""

from __future__ import annotations

from model_batch import Script, lib
from test_model_expect import discard, expect

from pump.model.client import HOST, RESIDENT
from pump.model.view import View

MOST = 2048
PER_MISSED = 8


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
        discard(self.script, (1, self.at, 4), self.seq, ended=True)
        self.script.set_state(self.row[self.at + 4 : self.at + 8], RESIDENT)
        discard(self.script, (1, self.at + 4, 4), behind)
        self.script.execute(behind)
        discard(self.script, (1, self.at + 4, 4), behind, ended=True)
        self.at = (self.at + 8) % 400
        self.script.set_state(self.row[self.at : self.at + 4], RESIDENT)

    def offered(self) -> int:
        """What views offer until nothing is left."""
        views = [self.hold()]
        while views[-1].exchange and len(views) <= MOST:
            assert views[-1].exchange <= views[-1].to_host_credit
            views.append(self.script.model.view(0))
        return sum(view.exchange for view in views)


def test_nothing_is_exchanged_before_an_operation_has_waited() -> None:
    rounds = Rounds()
    view = rounds.hold()
    assert (len(view.arrivals_need), view.free, view.exchange) == (4, 0, 0)
    assert (len(view.shortfalls_need), view.surplus) == (0, 0)


def test_a_wait_for_what_was_held_back_allows_an_exchange_where_nothing_moves() -> None:
    rounds = Rounds()
    rounds.hold()
    rounds.wait()
    assert rounds.hold().exchange > 0
    rounds.script.start(lib.PUMP_TO_HOST, list(rounds.kept))
    assert rounds.script.model.view(0).exchange == 0, "something is under way"


def test_many_times_as_many_blocks_as_the_operation_waited_for_are_offered_once() -> None:
    rounds = Rounds()
    rounds.hold()
    rounds.wait()
    assert rounds.offered() == PER_MISSED * 4
    assert rounds.offered() == 0


def test_waits_add_up_to_a_bound() -> None:
    rounds = Rounds()
    for _ in range(90):
        held = rounds.hold()
        rounds.wait()
    assert MOST - held.exchange <= rounds.offered() <= MOST


def test_a_wait_counts_only_where_the_last_view_held_something_back() -> None:
    rounds = Rounds()
    rounds.hold()
    rounds.script.set_state(rounds.kept[:1], HOST)
    assert rounds.script.model.view(0).free == 1
    rounds.script.set_state(rounds.kept[:1], RESIDENT)
    rounds.wait()
    assert rounds.offered() == 0
