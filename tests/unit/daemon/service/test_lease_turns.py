"""How a job waits for its turn, and yields: the requests to its clients, and their duration."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import selectors
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from lease_scene import MIB, Scene, held

from pump.control import ClientState
from pump.wire import control
from pump.wire import service as wire
from pumpd.lease.job_usage import DUTY_LEAST, DUTY_MEMORY_S, Busy, Ceilings, Held, report_of
from pumpd.lease.lease_client import ALONE_S, SILENT_S, JobFacts, LeaseClient
from pumpd.lease.rounds import HELD_MOST_S, HOLD_MS, HOLD_ROUND_S


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Replaces the time that lease clients see."""
    now = [time.monotonic()]
    monkeypatch.setattr(LeaseClient, "_now", property(lambda _self: now[0]))
    return now


@pytest.fixture
def waiting(tmp_path: Path, clock: list[float]) -> Iterator[Scene]:
    """Yields the scene of a job that waits for its turn on GPU a, and not on b."""
    with (
        selectors.DefaultSelector() as selector,
        contextlib.closing(Scene(tmp_path, selector)) as scene,
    ):
        scene.grant(1, granted("a", waits=True), granted("b"))
        yield scene


def granted(gpu: str, *, waits: bool = False, yields: bool = False) -> wire.GpuGrant:
    return wire.GpuGrant(gpu * 32, 1000 * MIB, waits, yields)


BOTH = (held(7, gpus="ab"), held(8, gpus="ba"))
"""Two clients on two GPUs."""
HOLDS = [(7, 0, HOLD_MS), (8, 1, HOLD_MS)]
RELEASES = [(7, 0, 0), (8, 1, 0)]


def test_a_job_that_waits_holds_launches_on_that_gpu_again_and_again(
    waiting: Scene, clock: list[float]
) -> None:
    assert HOLD_ROUND_S * 1e3 < HOLD_MS <= control.HOLD_MS_MOST
    assert waiting.hold_requests(clock[0], *BOTH) == HOLDS
    for _ in range(3):
        assert waiting.holder.due() == clock[0] + HOLD_ROUND_S
        assert waiting.hold_requests(clock[0] + HOLD_ROUND_S / 2, *BOTH) == []
        clock[0] += HOLD_ROUND_S
        assert waiting.hold_requests(clock[0], *BOTH) == HOLDS


def test_a_client_that_comes_while_the_job_waits_is_held_and_one_that_leaves_is_not(
    waiting: Scene, clock: list[float]
) -> None:
    """No process has the number of the first client."""
    assert waiting.hold_requests(clock[0], held(1 << 30, 1000)) == [(1 << 30, 0, HOLD_MS)]
    clock[0] += HOLD_ROUND_S
    assert waiting.hold_requests(clock[0], held(8, 1000)) == [(8, 0, HOLD_MS), (1 << 30, 0, 0)]
    clock[0] += HOLD_ROUND_S
    assert waiting.hold_requests(clock[0], held(8, 1000)) == [(8, 0, HOLD_MS)]


def test_the_jobs_turn_is_told_to_its_clients_once(waiting: Scene, clock: list[float]) -> None:
    assert waiting.hold_requests(clock[0], *BOTH) == HOLDS
    waiting.grant(2, granted("a"), granted("b"))
    assert waiting.hold_requests(clock[0], *BOTH) == RELEASES
    clock[0] += 20
    assert waiting.hold_requests(clock[0], *BOTH) == []
    waiting.grant(3, granted("a"), granted("b", waits=True))
    assert waiting.hold_requests(clock[0], *BOTH) == [(7, 1, HOLD_MS), (8, 0, HOLD_MS)]


def test_a_job_waits_no_longer_once_its_service_has_ended(
    waiting: Scene, clock: list[float]
) -> None:
    assert waiting.hold_requests(clock[0], *BOTH) == HOLDS
    waiting.holds.clear()
    waiting.service.close()
    waiting.handle_events()
    assert "alone" in repr(waiting.holder)
    assert waiting.holds == RELEASES


def test_a_job_waits_for_a_service_no_longer_than_two_rounds_without_an_answer(
    waiting: Scene, clock: list[float]
) -> None:
    waiting.hold_requests(clock[0], *BOTH)
    for _ in range(3):
        clock[0] += HOLD_ROUND_S
        assert waiting.hold_requests(clock[0], *BOTH) == HOLDS
    waiting.answers_beats = False
    begin = clock[0]
    while (due := waiting.holder.due()) is not None and due < begin + HOLD_ROUND_S + SILENT_S:
        clock[0] = due
        assert waiting.hold_requests(clock[0], *BOTH) in (HOLDS, [])
    clock[0] = begin + HOLD_ROUND_S + SILENT_S
    assert waiting.hold_requests(clock[0], *BOTH) == RELEASES
    for _ in range(3):
        clock[0] += HOLD_ROUND_S
        assert waiting.hold_requests(clock[0], *BOTH) == []
    waiting.answers_beats = True  # the service runs again
    waiting.answer_beats()
    assert waiting.hold_requests(clock[0], *BOTH) == HOLDS


def test_a_service_that_answers_late_holds_a_job_only_while_it_answers(
    waiting: Scene, clock: list[float]
) -> None:
    waiting.answers_beats = False
    held_for = []
    for _ in range(4):
        waiting.answer_beats()
        begin = clock[0]
        assert waiting.hold_requests(clock[0], *BOTH) == HOLDS
        while waiting.hold_requests(clock[0], *BOTH) != RELEASES:
            clock[0] += HOLD_ROUND_S / 4
        held_for.append(clock[0] - begin)
        clock[0] += 4 * HOLD_ROUND_S
        waiting.hold_requests(clock[0], *BOTH)
    assert max(held_for) <= HOLD_ROUND_S + SILENT_S


def test_a_job_keeps_the_leases_of_a_silent_service_for_as_long_as_those_of_one_that_ended(
    waiting: Scene, clock: list[float]
) -> None:
    waiting.answers_beats = False
    for _ in range(4):
        clock[0] += HOLD_ROUND_S
        waiting.hold_requests(clock[0], *BOTH)
    assert "attached, 2 leases" in repr(waiting.holder)
    clock[0] += ALONE_S
    waiting.hold_requests(clock[0], *BOTH)
    assert "alone, 0 leases" in repr(waiting.holder)
    assert waiting.service.recv(1 << 16), "what was said before"
    while waiting.service.recv(1 << 16):
        pass


def test_a_job_passes_over_a_service_that_takes_its_connection_and_is_silent(
    tmp_path: Path, clock: list[float]
) -> None:
    with contextlib.ExitStack() as stack:
        selector = stack.enter_context(selectors.DefaultSelector())
        listeners = []
        for name in ("stopped", "other"):
            one = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
            one.bind(str(tmp_path / name))
            one.listen(4)
            one.settimeout(5)
            listeners.append(one)
        facts = JobFacts(paths=[str(tmp_path / "stopped"), str(tmp_path / "other")])
        holder = stack.enter_context(
            contextlib.closing(LeaseClient(selector, lambda *_: None, facts))
        )
        holder.on_time(clock[0])
        for _ in range(2):  # the connection is lost, and another one is tried
            due = holder.due()
            assert due is not None
            clock[0] = due
            holder.on_time(due)
        peer, _ = listeners[1].accept()
        with peer:
            assert wire.check_hello(peer.recv(64)) == (wire.OK, wire.VERSION)


def test_a_service_of_the_release_before_is_not_silent(tmp_path: Path, clock: list[float]) -> None:
    with (
        selectors.DefaultSelector() as selector,
        contextlib.closing(Scene(tmp_path, selector, version=1)) as scene,
    ):
        scene.answers_beats = False
        scene.grant(1, granted("a"))
        for _ in range(20):
            clock[0] += 20
            scene.hold_requests(clock[0], *BOTH)
        assert "attached, 1 leases" in repr(scene.holder)


def test_a_job_that_yields_asks_so_of_its_clients_until_it_does_no_longer(
    waiting: Scene, clock: list[float]
) -> None:
    both = granted("a", waits=True, yields=True), granted("b", yields=True)
    waiting.grant(2, *both)
    on_a, on_b = [(7, 0), (8, 1)], [(7, 1), (8, 0)]
    assert waiting.hold_requests(clock[0], *BOTH) == sorted(HOLDS + [(*one, 0) for one in on_b])
    assert waiting.yields == {*on_a, *on_b}
    clock[0] += HOLD_ROUND_S
    assert len(waiting.hold_requests(clock[0], *BOTH)) == 4, "again and again"
    waiting.grant(3, granted("a", yields=True), granted("b"))
    waiting.hold_requests(clock[0], *BOTH)
    assert waiting.yields == set(on_a)
    waiting.grant(4, *both)
    waiting.hold_requests(clock[0], *BOTH)
    waiting.service.close()
    waiting.handle_events()
    assert "alone" in repr(waiting.holder) and waiting.yields == set()


def test_a_job_waits_for_a_bounded_time_and_then_no_more_until_it_has_had_a_turn(
    waiting: Scene, clock: list[float]
) -> None:
    assert waiting.hold_requests(clock[0], *BOTH) == HOLDS
    clock[0] += HELD_MOST_S
    waiting.grant(2, granted("a", waits=True), granted("b"))  # the job still waits
    assert waiting.hold_requests(clock[0], *BOTH) == HOLDS
    clock[0] += HOLD_ROUND_S
    assert waiting.hold_requests(clock[0], *BOTH) == RELEASES
    for number in range(3, 6):
        clock[0] += HOLD_ROUND_S
        waiting.grant(number, granted("a", waits=True), granted("b", waits=number > 3))
        held_now = [one for one in waiting.hold_requests(clock[0], *BOTH) if one not in HOLDS]
        assert held_now == ([(7, 1, HOLD_MS), (8, 0, HOLD_MS)] if number > 3 else [])
        assert not set(HOLDS) & set(waiting.holds), "it would wait again"
    waiting.grant(6, granted("a"), granted("b"))
    waiting.hold_requests(clock[0], *BOTH)
    clock[0] += 1
    waiting.grant(7, granted("a", waits=True), granted("b"))
    assert waiting.hold_requests(clock[0], *BOTH) == HOLDS


def looks(busy: Busy, client: ClientState, now: float, depth: int = 0) -> tuple[bool, bool]:
    """Returns whether one more report finds the client used, and ready."""
    told = dataclasses.replace(client, worker={"window_depth": depth})
    (gpu,) = report_of([told], Ceilings(), busy, 1, now).gpus
    one = Held(client.pid, client.devices[0])
    assert (gpu.used, gpu.ready) == (busy.used(one), busy.ready(one))
    return gpu.used, gpu.ready


def test_a_client_that_runs_waits_or_is_dormant_is_ready_and_an_idle_one_is_not() -> None:
    busy, idle = Busy(), held(7)
    assert looks(busy, idle, 0.0) == (False, False), "nothing is known to have run"
    assert looks(busy, idle, 1.0, depth=1) == (True, True)
    assert looks(busy, idle, 2.0) == (False, False)
    assert looks(busy, held(7, blocks_used=5), 3.0) == (True, True)
    assert looks(busy, held(7, blocks_used=5), 4.0) == (False, False)
    assert looks(busy, held(7, blocks_used=5, held_threads=1), 5.0) == (True, True)
    assert looks(busy, held(7, blocks_used=5, active=False), 6.0) == (True, True)
    assert looks(busy, held(7, blocks_used=5), 7.0) == (False, False)


def test_a_client_whose_worker_does_not_answer_keeps_its_share_of_use() -> None:
    """Its last known state has an empty window, as between two iterations."""
    busy = Busy()
    idle = dataclasses.replace(held(7, blocks_used=5), worker={"window_depth": 0})
    at_work = dataclasses.replace(idle, worker={"window_depth": 1})
    before = report_of([at_work], Ceilings(), busy, 1, 0.0).gpus
    for now in (4.0, 4.3, 9.0):
        assert report_of([idle], Ceilings(), busy, 1, now, absent={7}).gpus == before
    assert report_of([idle], Ceilings(), busy, 1, 9.0).gpus[0].use < before[0].use
    unknown = dataclasses.replace(held(8), worker={})
    assert report_of([unknown], Ceilings(), busy, 1, 9.0, absent={8}).gpus


def test_a_client_that_is_ready_makes_its_job_so() -> None:
    clients = [held(7, least_bytes=5 * MIB), held(8, held_threads=1, least_bytes=900 * MIB)]
    report = report_of(clients, Ceilings(), Busy(), 1, 0.0)
    assert report.gpus[0].least_bytes == 905 * MIB
    assert (report.gpus[0].used, report.gpus[0].ready) == (True, True)


def test_a_client_that_has_something_to_run_now_and_then_takes_no_turns() -> None:
    """A client that answers requests has used blocks at each report, but is rarely at work then."""
    busy, steps = Busy(), int(-DUTY_MEMORY_S * math.log(DUTY_LEAST))
    assert looks(busy, held(7), 0) == (False, False)
    for now in range(1, steps + 1):
        assert looks(busy, held(7, blocks_used=now), now) == (True, True)
    for now in range(steps + 1, steps + 3):
        found = looks(busy, held(7, blocks_used=now), now)
    assert found == (True, False)
    last = held(7, blocks_used=now)
    waits = held(7, blocks_used=now, held_threads=1)
    for now in range(100, 200, 2):  # pauses and waits do not count
        assert looks(busy, last, now) == (False, False)
        assert looks(busy, waits, now + 1) == (True, False)
    for now in range(200, 200 + int(DUTY_MEMORY_S)):
        found = looks(busy, last, now, depth=3)
    assert found == (True, True)
