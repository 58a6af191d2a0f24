"""Several processes on one virtual GPU: together they get what one gets."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from shared_card import MIB, OUT_OF_MEMORY, Clients, clients

GIB = 1 << 30
NOT_READY, NOT_SUPPORTED = 600, 801


@pytest.fixture
def card(tmp_path: Path) -> Iterator[Clients]:
    yield from clients(tmp_path)


def timed(client: object, *work: object) -> None:
    """Makes the client do the work between two marks, without waiting."""
    for words in (("mark", 0), work, ("mark", 1)):
        client.tell(*words)  # type: ignore[attr-defined]


def seconds(client: object) -> float:
    """Returns the time of the work that timed() began, by the model's clock."""
    for _ in range(3):
        assert client.hear() == [0]  # type: ignore[attr-defined]
    client.must("sync")  # type: ignore[attr-defined]
    return client.ask("elapsed", 0, 1)[0] / 1000  # type: ignore[attr-defined,no-any-return]


@pytest.mark.parametrize("work", [("copy", GIB // 2, 24), ("touch", 0, 40)], ids=lambda w: w[0])
def test_two_processes_share_link_and_compute_engine(card: Clients, work: tuple[str, int]) -> None:
    settings = {"copies": "modelled", "kernel.touch.min_us": "15000"}
    first, second = card(**settings), card(**settings)
    for client in (first, second):
        client.must("plain", 300 * MIB if work[0] == "touch" else GIB // 2 - 8 * MIB)
    if work[0] == "copy":
        work = ("copy", GIB // 2 - 8 * MIB, 24)
    timed(first, *work)
    alone = seconds(first)
    for client in (first, second):
        timed(client, *work)
    together = [seconds(client) for client in (first, second)]
    # 2 + 2 if they begin at once, 1 + 1 if the second began after the first had ended
    assert sum(together) > 2.8 * alone
    assert max(together) < 2.05 * alone
    busy = "h2d_busy_ns" if work[0] == "copy" else "compute_busy_ns"
    reports = [first.leave(), second.leave()]
    whole = reports[1]["card"]["counters"][busy]
    assert whole == pytest.approx(3 * alone * 1e9, rel=0.02)
    assert sum(report["counters"][busy] for report in reports) == pytest.approx(whole, rel=0.01)


def test_plain_memory_of_all_processes_counts(card: Clients) -> None:
    first, second = card(), card()
    (slot,) = first.must("plain", 600 * MIB)
    assert second.free_mib() == 424
    assert second.ask("plain", 600 * MIB)[0] == OUT_OF_MEMORY
    second.must("plain", 424 * MIB)
    assert first.free_mib() == 0
    first.must("free", int(slot))
    assert second.free_mib() == first.free_mib() == 600
    second.must("plain", 600 * MIB)
    report = second.leave()
    assert report["card"]["plain_bytes"] == report["peak_resident_bytes"] == GIB
    assert first.free_mib() == 1024, "what a process had is free when it has left"
    assert card.cards()
    first.leave()
    assert card.cards() == [], "the last one removes the card"


def test_one_process_evicts_the_blocks_of_another_in_order_of_migration(card: Clients) -> None:
    first, second = card(), card()
    (old,) = first.must("managed", 300 * MIB)
    (new,) = first.must("managed", 300 * MIB)
    for slot in (old, new):
        first.must("touch", int(slot), 1)
    first.must("sync")
    (other,) = second.must("managed", 600 * MIB)
    second.must("touch", int(other), 1)
    second.must("sync")
    assert second.free_mib() == 0
    # 176 MiB had to leave: the oldest blocks of the first process.
    first.must("touch", int(new), 1)
    first.must("sync")
    report, others = first.leave(), second.leave()
    assert report["counters"]["fault_blocks"] == 300, "the newer half is still there"
    assert others["counters"]["fault_blocks"] == 300
    assert others["counters"]["evictions_used"] == 88
    assert others["card"]["counters"]["evictions_used"] == 88
    assert others["card"]["counters"]["fault_blocks"] == 600
    assert others["card"]["check"] == report["card"]["check"] == 0
    assert report["violations"] == others["violations"] == 0


def test_effects_of_a_process_happen_in_it_whichever_process_advances_time(card: Clients) -> None:
    settings = {"kernel.touch.min_us": "300"}
    first, second = card(**settings), card(**settings)
    for client in (first, second):
        (slot,) = client.must("managed", 4 * MIB)
        client.tell("random", 5, 4000)
        client.tell("touch", int(slot), 50)
        client.tell("call", 300)
    for client in (first, second):
        assert client.hear() == client.hear() == [0]
        code, calls = client.hear()
        assert code == 0
        assert calls >= 300
        assert client.ask("call", 0) == [0, calls], "each ran once"
    assert first.leave()["violations"] == second.leave()["violations"] == 0


@pytest.mark.parametrize("how", ["kill", "vanish", "exec"])
def test_a_killed_process_leaves_nothing_behind(card: Clients, how: str) -> None:
    settings = {"kernel.touch.min_us": "1000000"}
    survivor, victim = card(**settings), card(**settings)
    victim.must("plain", 500 * MIB)
    (slot,) = victim.must("managed", 500 * MIB)
    victim.must("touch", int(slot), 200)  # minutes of work
    if how == "kill":
        victim.kill()
    else:
        victim.tell(how)
        if how == "vanish":
            victim.process.wait()
    if how == "exec":
        while b"sleep" not in Path(f"/proc/{victim.process.pid}/comm").read_bytes():
            os.sched_yield()
    assert survivor.free_mib() == 1024
    (own,) = survivor.must("plain", 1000 * MIB)
    survivor.must("touch", int(own), 1)
    survivor.must("sync")
    newcomer = card(**settings)
    assert newcomer.code == 0
    newcomer.leave()
    report = survivor.leave()
    assert report["card"]["died"] == 1
    assert report["card"]["joined"] == 3
    assert report["card"]["check"] == 0
    assert card.cards() == []


def test_a_process_whose_first_thread_has_ended_keeps_its_memory(card: Clients) -> None:
    first = card(words=("thread",))
    first.must("plain", 600 * MIB)
    while " Z " not in Path(f"/proc/{first.process.pid}/stat").read_text():
        os.sched_yield()
    second = card()
    assert second.free_mib() == 424
    first.leave()
    assert second.free_mib() == 1024
    assert second.leave()["card"]["died"] == 0


def test_a_forked_child_takes_nothing_with_it(card: Clients) -> None:
    parent, other = card(), card()
    parent.must("plain", 100 * MIB)
    assert parent.ask("fork") == [7], "the driver is unusable there"
    assert other.free_mib() == 924, "the child's end is not the parent's"
    parent.must("plain", 100 * MIB)
    assert parent.leave()["card"]["died"] == 0


def test_another_profile_under_the_same_name_is_refused(card: Clients) -> None:
    first = card()
    other = card(memory_mib=512)
    assert other.code != 0
    other.leave()
    text = card.made[1].report_path
    assert not text.exists()
    fresh = card(memory_mib=512, name="another")
    assert fresh.code == 0
    first.leave()
    assert card(memory_mib=512).code == 0, "no process uses the first card: another is made"


def test_a_card_that_no_process_could_remove_is_removed_by_the_next(card: Clients) -> None:
    first, second = card(), card()
    first.kill()
    second.kill()
    assert len(card.cards()) == 1
    third = card(name="other")
    assert [name.rpartition("-")[2] for name in card.cards()] == ["other"]
    assert third.free_mib() == 1024


def test_files_that_others_could_have_made_are_refused(card: Clients, tmp_path: Path) -> None:
    path = tmp_path / f"pump-card-{os.geteuid()}-card"
    target = tmp_path / "target"
    target.write_bytes(b"")
    path.symlink_to(target)
    assert card().code != 0
    path.unlink()
    path.write_bytes(b"")
    path.chmod(0o666)
    assert card().code != 0
    assert path.stat().st_size == target.stat().st_size == 0
    path.chmod(0o600)
    os.link(path, tmp_path / "second-name")
    assert card().code != 0


def test_the_seventeenth_process_is_told_that_there_are_too_many(card: Clients) -> None:
    made = [card() for _ in range(16)]
    assert [client.code for client in made] == [0] * 16
    assert card().code != 0
    made[3].kill()
    assert card().code == 0


def test_without_a_name_nothing_is_shared_and_no_file_made(tmp_path: Path) -> None:
    import virtual_driver as virtual

    outcome = virtual.run("memory_limit", env={"PUMP_VIRTUAL_CARDS": str(tmp_path)})
    assert "card" not in outcome.report
    assert list(tmp_path.iterdir()) == []


def test_an_event_of_two_processes_is_one_event(card: Clients) -> None:
    settings = {"kernel.touch.min_us": "300000"}
    maker, opener = card(**settings), card(**settings)
    handle = maker.share(0)
    opener.must("open", 3, handle)
    assert opener.ask("query", 3) == [0], "it was never recorded"
    (slot,) = maker.must("plain", MIB)
    maker.must("touch", int(slot), 1)
    maker.must("mark", 0)
    assert maker.ask("query", 0) == opener.ask("query", 3) == [NOT_READY]
    opener.must("mark", 3)
    assert opener.ask("query", 3) == [0], "its newest record is on an idle stream"
    assert maker.ask("query", 0) == [0]
    maker.must("mark", 0)
    opener.must("await", 3)
    opener.must("mark", 4)
    assert opener.ask("query", 4) == [NOT_READY], "the stream waits for the other process"
    maker.must("sync")
    opener.must("sync")
    assert opener.ask("query", 4) == [0]
    opener.must("drop", 3)
    assert maker.ask("query", 0) == [0], "a process that opened it destroys its own handle alone"
    assert maker.leave()["card"]["check"] == opener.leave()["card"]["check"] == 0


@pytest.mark.parametrize("gone", ["maker", "recorder"])
def test_a_wait_for_an_event_of_an_ended_process_ends(card: Clients, gone: str) -> None:
    settings = {"kernel.touch.min_us": "1000000"}
    maker, opener = card(**settings), card(**settings)
    opener.must("open", 3, maker.share(0))
    victim, place = (maker, 0) if gone == "maker" else (opener, 3)
    waiter, other = (opener, 3) if gone == "maker" else (maker, 0)
    (slot,) = victim.must("plain", MIB)
    victim.must("touch", int(slot), 200)  # minutes of work
    victim.must("mark", place)
    waiter.must("await", other)
    waiter.must("mark", 5)
    assert waiter.ask("query", 5) == [NOT_READY]
    victim.kill()
    card()  # the next process detects it
    waiter.must("sync")
    assert waiter.ask("query", other) == [0]
    assert waiter.leave()["card"]["check"] == 0


def test_an_event_of_another_card_cannot_be_opened(card: Clients) -> None:
    maker, stranger = card(), card(name="another")
    assert stranger.ask("open", 3, maker.share(0)) == [NOT_SUPPORTED]
