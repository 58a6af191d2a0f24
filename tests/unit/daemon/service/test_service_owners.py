"""Owners of user ids, the connections that are closed for others, and the time that jobs wait for a
user."""

from __future__ import annotations

from pathlib import Path

import pytest

from pumpd.service.owners import Owners, Range, read_owners
from pumpd.service.quota import Quotas, Seat, Users, admit
from pumpd.service.shrink_budget import GPUS_MOST, SHRINK_S, ShrinkBudget

SMALL = Quotas(connections=10, reserved=2, user_connections=6, handshakes=5, user_handshakes=3)


def test_subordinate_ids_count_to_the_user_that_they_were_given_to(tmp_path: Path) -> None:
    file = tmp_path / "subuid"
    file.write_text(
        "root:100000:65536\n1001:200000:1000\n\nno-such-user:300000:10\n1002:x:10\n1003:1:2:3\n"
        "1004:4294967290:100\n1005:0:5\n1006:400000\n-7:500000:10\n1007:600000:-1\n"
    )
    owners = read_owners(str(file))
    assert [owners.of(user) for user in (100_000, 165_535, 165_536)] == [0, 0, 165_536]
    assert [owners.of(user) for user in (199_999, 200_000, 200_999, 201_000)] == [
        *(199_999, 1001, 1001, 201_000)
    ]
    for user in (0, 1, 5, 1001, 65_534, 300_000, 400_000, 500_000, 600_000, 2**32 - 1):
        assert owners.of(user) == user


def test_a_file_of_subordinate_ids_that_is_missing_or_rubbish_makes_all_users_their_own(
    tmp_path: Path,
) -> None:
    rubbish = tmp_path / "subuid"
    rubbish.write_bytes(b"\xff\0:::\n" * 1000)
    for path in (tmp_path / "none", tmp_path, rubbish):
        assert read_owners(str(path)).of(100_000) == 100_000


def test_of_ranges_that_overlap_the_one_that_begins_last_counts() -> None:
    owners = Owners([Range(100, 1000, 1), Range(500, 10, 2)])
    assert [owners.of(user) for user in (100, 499, 500, 509)] == [1, 1, 2, 2]


def seats(user: int, count: int, *, silent: bool = False, leased: bool = False) -> list[Seat]:
    return [Seat(user, False, silent, leased, float(i), f"{user}-{i}") for i in range(count)]


def test_the_heaviest_users_idlest_connection_goes_first_and_one_with_a_lease_last() -> None:
    full = [*seats(1, 2, leased=True), *seats(2, 3)[::-1], *seats(3, 3, leased=True)]
    taken, goes = admit(4, False, full, SMALL)
    assert taken and goes is not None and goes.peer == "2-0"
    leased = [*seats(1, 5, leased=True), *seats(2, 3)]
    taken, goes = admit(4, False, leased, SMALL)
    assert taken and goes is not None and goes.peer == "1-0", "the heaviest, lease or not"


def test_a_user_that_would_not_have_fewer_takes_no_others_place() -> None:
    full = [*seats(1, 4), *seats(2, 4)]
    assert admit(1, False, full, SMALL) == (False, None)
    assert admit(3, False, full, SMALL)[0]
    alone = [seat for user in range(8) for seat in seats(user, 1)]
    assert admit(9, False, alone, SMALL) == (False, None)


def test_the_privileged_have_places_of_their_own_and_if_they_must_another_ones() -> None:
    alone = [seat for user in range(1, 9) for seat in seats(user, 1)]
    assert admit(0, True, alone, SMALL) == (True, None)
    taken, goes = admit(0, True, [*alone, *seats(9, 1), *seats(10, 1)], SMALL)
    assert taken and goes is not None


def test_there_are_fewer_places_than_descriptors() -> None:
    assert Quotas().within(4096) == Quotas()
    few = Quotas().within(256)
    assert (few.connections, few.reserved) == (192, 32)
    least = Quotas().within(24)
    assert 0 < least.reserved < least.connections


@pytest.mark.parametrize("privileged", [False, True])
def test_connections_that_say_nothing_make_room_for_each_other(privileged: bool) -> None:
    full = [*seats(1, 3, silent=True), *seats(2, 2, silent=True)]
    taken, goes = admit(3, privileged, full, SMALL)
    assert taken and goes is not None and goes.peer == "1-0"
    assert admit(1, privileged, full, SMALL) == (False, None), "its own bound"


def test_a_user_that_connects_too_fast_waits_and_is_forgotten_in_time() -> None:
    users = Users(Quotas(user_connect_rate=5.0, connect_rate=8.0))
    assert [users.may_connect(7, False, 0.0) for _ in range(11)] == [True] * 10 + [False]
    assert users.may_connect(8, False, 0.0), "all of them are too fast, but it has none"
    users.connections[9] = 1
    assert [users.may_connect(9, False, 0.0) for _ in range(6)] == [True] * 5 + [False]
    assert users.may_connect(0, True, 0.0)
    users.connections[9] = 0
    users.sweep(100.0)
    counted = (users.connections, users.silent, users.jobs)
    assert not any((*counted, users._frames, users._connects))


def test_a_shrink_budget_is_a_users_and_comes_back_slowly() -> None:
    budget = ShrinkBudget()
    budget.update("gpu", {1}, 0.0)
    budget.update("gpu", set(), SHRINK_S / 2)  # the user leaves, and joins again
    budget.update("gpu", {1}, SHRINK_S / 2)
    assert not budget.is_over(1, "gpu", SHRINK_S - 0.1)
    assert budget.is_over(1, "gpu", SHRINK_S)
    assert not budget.is_over(2, "gpu", SHRINK_S) and not budget.is_over(1, "b", SHRINK_S)
    budget.update("gpu", set(), SHRINK_S)
    budget.update("gpu", {1}, SHRINK_S + 20.0)
    assert not budget.is_over(1, "gpu", SHRINK_S + 21.9)
    assert budget.is_over(1, "gpu", SHRINK_S + 22.1)
    budget.update("gpu", set(), 100.0)
    budget.update("gpu", set(), 100.0 + 10 * SHRINK_S + 0.1)
    assert len(budget) == 0


def test_a_user_on_ever_new_gpus_is_remembered_on_so_many_and_waited_for_on_no_more() -> None:
    budget = ShrinkBudget()
    for number in range(GPUS_MOST + 5):
        budget.update(f"gpu {number}", {1}, 0.0)
    assert len(budget) == GPUS_MOST
    assert budget.is_over(1, "another", 0.0) and not budget.is_over(2, "another", 0.0)


def test_users_that_connect_as_fast_as_they_may_keep_no_user_from_a_second_connection() -> None:
    users, now, refused = Users(Quotas()), 0.0, 0
    for user in (1, *range(10, 18)):
        users.connections[user] += 1
    for step in range(4000):
        now = step / 400
        for user in range(10, 18):
            users.may_connect(user, False, now)
        if step % 400 == 0:
            assert users.may_connect(1, False, now)
        refused += not users.may_connect(10, False, now)
    assert refused > 3000, "those are bounded"


def test_a_place_is_told_by_counts_where_they_suffice() -> None:
    users = Users(Quotas(connections=10, reserved=2, user_connections=6, handshakes=5))
    users.connections.update({1: 3, 2: 3})
    assert users.place(1, False) is users.place(9, False) is True
    users.connections.update({2: 3})
    assert users.place(2, False) is False, "its own bound"
    assert users.place(1, False) is None and users.place(9, False) is None, "the heaviest loses one"
    users.connections.update({1: 3})
    assert users.place(1, True) is False and users.place(9, True) is None
    users.connections.clear()
    users.silent.update({3: 4})
    assert users.place(9, False) is None
