"""What must stay bounded on both sides of a lease: memory, silence, waits, and one bad round."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import math
import os
import selectors
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec.structs import replace

from pump.control import ClientState, DeviceState
from pump.wire import control
from pump.wire import service as wire
from pumpd.lease.job_usage import (
    ABSENT_S,
    DUTY_LEAST,
    DUTY_MEMORY_S,
    Absent,
    Busy,
    Ceilings,
    Held,
    report_of,
)
from pumpd.lease.lease_client import (
    HELD_MOST_S,
    HOLD_MS,
    HOLD_ROUND_S,
    YOUNG_ROUND_S,
    JobFacts,
    LeaseClient,
)
from pumpd.service import registry as registries
from pumpd.service.cards import Cards
from pumpd.service.owners import Identity
from pumpd.service.registry import Registry
from pumpd.service.sdnotify import Manager
from pumpd.service.service import Service, ServiceSettings
from pumpd.service.surroundings import Process

MIB = 1 << 20
Answer = Callable[[list[ClientState]], None]


def entry(gpu: str, wanted_mib: int = 100, adopted_mib: int = 100) -> wire.GpuReport:
    sizes = (1000, 900, wanted_mib, adopted_mib, adopted_mib)
    return wire.GpuReport(gpu, *(size * MIB for size in sizes), wire.USE_MOST)


# ---- the registry ----


def test_a_job_that_names_ever_new_gpus_leaves_nothing_in_the_registry() -> None:
    registry = Registry()
    job = registry.add(Identity(0, 0, 0), wire.Join(), 10, 0.0)
    for turn in range(300):
        registry.take_report(job, wire.Report(turn, 1, 0, 0, (entry(f"{turn:032x}"),)), turn)
        registry.rearrange(turn)
    assert len(registry.memory_bytes()) == 1
    assert len(job.granted) == 1 and len(registry.patience) == 0


def test_a_user_names_so_many_gpus_first_and_keeps_no_other_from_theirs() -> None:
    registry = Registry()
    for number in range(20):
        job = registry.add(Identity(0, 7000 + number % 3, 7000), wire.Join(), 10, 0.0)
        gpus = tuple(entry(f"{number * 100 + k:032x}") for k in range(wire.GPUS))
        registry.take_report(job, wire.Report(0, 1, 0, 0, gpus), 0.0)
    assert len(registry.memory_bytes()) == registries.GPUS_MOST
    other = registry.add(Identity(0, 1, 1), wire.Join(), 10, 0.0)
    registry.take_report(other, wire.Report(0, 1, 0, 0, (entry("aa" * 16),)), 0.0)
    registry.rearrange(0.0)
    assert other.granted


def test_a_gpu_that_another_job_uses_is_not_forgotten() -> None:
    registry = Registry()
    first, second = (registry.add(Identity(0, 0, 0), wire.Join(), 10, 0.0) for _ in range(2))
    for job in (first, second):
        registry.take_report(job, wire.Report(0, 1, 0, 0, (entry("aa" * 16),)), 0.0)
    registry.take_report(first, wire.Report(0, 1, 0, 0, ()), 1.0)
    assert len(registry.memory_bytes()) == 1


def test_unacknowledged_grants_are_bounded_and_the_greatest_counts() -> None:
    registry, gpu = Registry(), "aa" * 16
    name = registry._name(entry(gpu))
    job = registry.add(Identity(0, 0, 0), wire.Join(), 10, 0.0)
    greatest = 0
    for turn in range(300):  # another comes and goes: half the memory, then all of it
        registry.take_report(job, wire.Report(0, 1, 0, 0, (entry(gpu, 800),)), turn)
        other = registry.add(Identity(0, 0, 0), wire.Join(), 10, turn)
        registry.take_report(other, wire.Report(0, 1, 0, 0, (entry(gpu, 800),)), turn)
        for _ in range(2):
            registry.rearrange(turn)
            greatest = max(greatest, job.granted[name])
            assert len(job.sent) <= registries.SENT_MOST
            held = max(grant[name] for _, grant in job.sent)
            assert held == greatest, "it may still act upon any of them"
            registry.remove(other)
    assert job.grant_number > registries.SENT_MOST, "there were too many to keep"
    registry.take_report(job, wire.Report(job.grant_number, 1, 0, 0, (entry(gpu),)), 300.0)
    assert job.sent == []


def test_a_gpus_size_is_nvmls_word_and_not_the_first_jobs() -> None:
    gpu = "aa" * 16
    registry = Registry({gpu: 1000 * MIB})
    jobs = [registry.add(Identity(0, 0, 0), wire.Join(), 10, 0.0) for _ in range(3)]
    for job, total_mib in zip(jobs, (910, 1000, 800), strict=True):  # CUDA's figure is less
        report = replace(entry(gpu), total_bytes=total_mib * MIB, usable_bytes=2000 * MIB)
        registry.take_report(job, wire.Report(0, 1, 0, 0, (report,)), 0.0)
    assert [bool(job.gpus) for job in jobs] == [True, True, False], "the last one lies"
    assert registry.memory_bytes()[gpu] == 970 * MIB
    registry.take_report(jobs[0], wire.Report(0, 1, 0, 0, (entry("bb" * 16),)), 0.0)
    assert not jobs[0].gpus, "NVML knows no such GPU"


# ---- the job's side ----


class Scene:
    """A lease client attached to a service that the test plays; workers answer when told to."""

    def __init__(self, folder: Path, selector: selectors.BaseSelector) -> None:
        self.selector = selector
        self.answers: list[Answer] = []
        self.holds: list[tuple[int | None, int | None, int]] = []
        """Requests since `held`: process, device, hold_ms."""
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(str(folder / "service"))
        self.listener.listen(1)
        facts = JobFacts(paths=[str(folder / "service")])
        self.holder = LeaseClient(selector, self.inquire, facts)
        self.holder.on_time(time.monotonic())
        self.listener.settimeout(10)
        self.service, _ = self.listener.accept()
        self.service.settimeout(10)
        self.service.recv(64)
        self.service.send(wire.pack_welcome(wire.OK, wire.VERSION))
        self.listen()
        assert isinstance(self.said(), wire.Join)

    def inquire(self, request: control.Request, answer: Answer) -> None:
        if request.hold_ms is None:
            self.answers.append(answer)
            return
        assert request == control.Request(
            control.SET, request.client_pid, device=request.device, hold_ms=request.hold_ms
        )
        self.holds.append((request.client_pid, request.device, request.hold_ms))
        answer([])

    def listen(self) -> None:
        for key, _ in self.selector.select(10):
            key.data()

    def grant(self, number: int, *gpus: wire.GpuGrant) -> None:
        self.service.send(wire.encode(wire.Grant(number, 20_000, gpus)))
        self.listen()

    def held(self, now: float, *clients: ClientState) -> list[tuple[int | None, int | None, int]]:
        """What is asked for in the rounds that are due, at which the workers tell that."""
        self.holds.clear()
        self.holder.on_time(now)
        while self.answers:
            self.answers.pop()(list(clients))
            self.holder.on_time(now)
        return list(self.holds)

    def said(self) -> object:
        return wire.decode(self.service.recv(wire.FRAME_BYTES), wire.FROM_CLIENTS)

    def close(self) -> None:
        self.holder.close()
        self.service.close()
        self.listener.close()


def test_a_connection_lost_earlier_in_a_round_is_not_heard_in_it(tmp_path: Path) -> None:
    with (
        selectors.DefaultSelector() as selector,
        contextlib.closing(Scene(tmp_path, selector)) as scene,
    ):
        scene.holder.on_time(time.monotonic())
        scene.service.close()
        ready = selector.select(10)
        assert len(ready) == 1, "the end of the service is there to be heard"
        scene.answers.pop()([])  # a worker answers first: the report finds no one waiting
        assert "alone" in repr(scene.holder)
        ready[0][0].data()
        assert "alone" in repr(scene.holder)


def test_a_job_whose_worker_does_not_answer_says_that_it_is_there(tmp_path: Path) -> None:
    with (
        selectors.DefaultSelector() as selector,
        contextlib.closing(Scene(tmp_path, selector)) as scene,
    ):
        scene.service.send(wire.encode(wire.Grant(0, 20, ())))
        scene.listen()
        scene.holder.on_time(time.monotonic())
        assert scene.answers, "a round that waits for a worker"
        for _ in range(3):
            due = scene.holder.due()
            assert due is not None
            scene.holder.on_time(due)
            assert isinstance(scene.said(), wire.Beat)


def held(pid: int, budget_mib: int = 500, *, gpus: str = "a", **figures: int) -> ClientState:
    """A client that has devices, as its worker tells. gpus: a letter for each."""
    sizes = (1000 * MIB, 1000 * MIB, budget_mib * MIB)
    moves = (700 * MIB, 0, budget_mib * MIB, 0, 0, 0, 200 * MIB, 0)
    device = DeviceState(0, "aa" * 16, *sizes, True, True, *moves, *(0,) * 7)
    return ClientState(
        pid,
        devices=tuple(
            dataclasses.replace(device, index=index, uuid=gpu * 32, **figures)
            for index, gpu in enumerate(gpus)
        ),
    )


def test_what_a_client_holds_is_told_while_it_has_no_worker_and_lives(tmp_path: Path) -> None:
    with (
        selectors.DefaultSelector() as selector,
        contextlib.closing(Scene(tmp_path, selector)) as scene,
        subprocess.Popen(["sleep", "60"]) as client,
    ):
        try:
            scene.service.send(wire.encode(wire.Grant(0, 20, ())))
            scene.listen()

            def round_of(*clients: ClientState) -> object:
                while not scene.answers:
                    due = scene.holder.due()
                    assert due is not None
                    time.sleep(max(0.0, due - time.monotonic()))
                    scene.holder.on_time(time.monotonic())
                scene.answers.pop()(list(clients))
                return scene.said()

            told = round_of(held(client.pid))
            assert isinstance(told, wire.Report) and told.gpus[0].adopted_bytes == 500 * MIB
            # Its worker was killed; one that hangs says as little.
            young = ClientState(client.pid, worker={"ticks": 0})
            for gone in ((), (young,), (control.failed(client.pid, "it did not answer"),)):
                assert isinstance(round_of(*gone), wire.Beat), "nothing has changed"
            told = round_of(held(client.pid, 400))
            assert isinstance(told, wire.Report) and told.gpus[0].adopted_bytes == 400 * MIB
            client.kill()
            client.wait()
            told = round_of()
            assert isinstance(told, wire.Report) and told.gpus == ()
        finally:
            client.kill()


def test_rounds_of_a_newcomer_come_soon_while_it_wants_more(tmp_path: Path) -> None:
    with (
        selectors.DefaultSelector() as selector,
        contextlib.closing(Scene(tmp_path, selector)) as scene,
    ):
        scene.service.send(wire.encode(wire.Grant(0, 2000, ())))
        scene.listen()
        scene.holder.client_came(time.monotonic())

        def is_next_behind(pause_s: float, client: ClientState) -> bool:
            """Whether the round behind this one, in which the worker tells that, is due then."""
            due = scene.holder.due()
            assert due is not None
            time.sleep(max(0.0, due - time.monotonic()))
            scene.holder.on_time(time.monotonic())
            before = time.monotonic()
            scene.answers.pop()([client])
            due = scene.holder.due()
            return due is not None and before + pause_s <= due <= time.monotonic() + pause_s

        first = held(7)
        grown = dataclasses.replace(first.devices[0], allocated_bytes=800 * MIB)
        more = ClientState(7, devices=(grown,))
        for _ in range(3):
            assert is_next_behind(YOUNG_ROUND_S, ClientState(7)), "it has no device"
        assert is_next_behind(YOUNG_ROUND_S, first)
        assert is_next_behind(2 * YOUNG_ROUND_S, first)
        assert is_next_behind(4 * YOUNG_ROUND_S, first)
        assert is_next_behind(YOUNG_ROUND_S, more)
        assert is_next_behind(2 * YOUNG_ROUND_S, first), "it wants less"


def test_an_absent_client_is_believed_for_a_while_only_and_not_once_it_has_let_go() -> None:
    absent = Absent(lambda _pid: True)
    one = held(7)
    assert absent.among([one], 0.0) == []
    assert absent.among([], ABSENT_S - 1) == [one]
    assert absent.among([], ABSENT_S + 1) == []
    assert absent.among([one], 20.0) == []
    assert absent.among([ClientState(7)], 21.0) == [], "its context is gone, it says"
    (left,) = absent.among([], 22.0)
    assert left.devices == ()


# ---- turns ----


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that lease clients see."""
    now = [time.monotonic()]
    monkeypatch.setattr(LeaseClient, "_now", property(lambda _self: now[0]))
    return now


@pytest.fixture
def waiting(tmp_path: Path, clock: list[float]) -> Iterator[Scene]:
    """Of a job that waits for its turn on GPU a, and not on b."""
    with (
        selectors.DefaultSelector() as selector,
        contextlib.closing(Scene(tmp_path, selector)) as scene,
    ):
        scene.grant(1, granted("a", waits=True), granted("b"))
        yield scene


def granted(gpu: str, *, waits: bool = False) -> wire.GpuGrant:
    return wire.GpuGrant(gpu * 32, 1000 * MIB, waits)


BOTH = (held(7, gpus="ab"), held(8, gpus="ba"))
"""Two clients on two GPUs."""
HOLDS = [(7, 0, HOLD_MS), (8, 1, HOLD_MS)]
RELEASES = [(7, 0, 0), (8, 1, 0)]


def test_a_job_that_waits_holds_launches_on_that_gpu_again_and_again(
    waiting: Scene, clock: list[float]
) -> None:
    assert HOLD_ROUND_S * 1e3 < HOLD_MS <= control.HOLD_MS_MOST
    assert waiting.held(clock[0], *BOTH) == HOLDS
    for _ in range(3):
        assert waiting.holder.due() == clock[0] + HOLD_ROUND_S
        assert waiting.held(clock[0] + HOLD_ROUND_S / 2, *BOTH) == []
        clock[0] += HOLD_ROUND_S
        assert waiting.held(clock[0], *BOTH) == HOLDS


def test_a_client_that_comes_while_the_job_waits_is_held_and_one_that_leaves_is_not(
    waiting: Scene, clock: list[float]
) -> None:
    """There is no process of the first one's number."""
    assert waiting.held(clock[0], held(1 << 30, 1000)) == [(1 << 30, 0, HOLD_MS)]
    clock[0] += HOLD_ROUND_S
    assert waiting.held(clock[0], held(8, 1000)) == [(8, 0, HOLD_MS), (1 << 30, 0, 0)]
    clock[0] += HOLD_ROUND_S
    assert waiting.held(clock[0], held(8, 1000)) == [(8, 0, HOLD_MS)]


def test_the_jobs_turn_is_told_to_its_clients_once(waiting: Scene, clock: list[float]) -> None:
    assert waiting.held(clock[0], *BOTH) == HOLDS
    waiting.grant(2, granted("a"), granted("b"))
    assert waiting.held(clock[0], *BOTH) == RELEASES
    clock[0] += 20
    assert waiting.held(clock[0], *BOTH) == []
    waiting.grant(3, granted("a"), granted("b", waits=True))
    assert waiting.held(clock[0], *BOTH) == [(7, 1, HOLD_MS), (8, 0, HOLD_MS)]


def test_a_job_waits_no_longer_once_its_service_has_ended(
    waiting: Scene, clock: list[float]
) -> None:
    assert waiting.held(clock[0], *BOTH) == HOLDS
    waiting.holds.clear()
    waiting.service.close()
    waiting.listen()
    assert "alone" in repr(waiting.holder)
    assert waiting.holds == RELEASES


def test_a_job_waits_for_a_bounded_time_and_then_no_more_until_it_has_had_a_turn(
    waiting: Scene, clock: list[float]
) -> None:
    assert waiting.held(clock[0], *BOTH) == HOLDS
    clock[0] += HELD_MOST_S
    waiting.grant(2, granted("a", waits=True), granted("b"))  # it waits on
    assert waiting.held(clock[0], *BOTH) == HOLDS
    clock[0] += HOLD_ROUND_S
    assert waiting.held(clock[0], *BOTH) == RELEASES
    for number in range(3, 6):
        clock[0] += HOLD_ROUND_S
        waiting.grant(number, granted("a", waits=True), granted("b", waits=number > 3))
        held_now = [one for one in waiting.held(clock[0], *BOTH) if one not in HOLDS]
        assert held_now == ([(7, 1, HOLD_MS), (8, 0, HOLD_MS)] if number > 3 else [])
        assert not set(HOLDS) & set(waiting.holds), "it would wait again"
    waiting.grant(6, granted("a"), granted("b"))
    waiting.held(clock[0], *BOTH)
    clock[0] += 1
    waiting.grant(7, granted("a", waits=True), granted("b"))
    assert waiting.held(clock[0], *BOTH) == HOLDS


def looks(busy: Busy, client: ClientState, now: float, depth: int = 0) -> tuple[bool, bool]:
    """Whether one more look finds it used and ready."""
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


def test_a_client_that_is_ready_makes_its_job_so() -> None:
    report = report_of([held(7), held(8, held_threads=1)], Ceilings(), Busy(), 1, 0.0)
    assert (report.gpus[0].used, report.gpus[0].ready) == (True, True)


def test_a_client_that_has_something_to_run_now_and_then_takes_no_turns() -> None:
    """It answers requests: each look finds that it has used blocks, few find it at work."""
    busy, steps = Busy(), int(-DUTY_MEMORY_S * math.log(DUTY_LEAST))
    assert looks(busy, held(7), 0) == (False, False)
    for now in range(1, steps + 1):
        assert looks(busy, held(7, blocks_used=now), now) == (True, True)
    for now in range(steps + 1, steps + 3):
        found = looks(busy, held(7, blocks_used=now), now)
    assert found == (True, False)
    last = held(7, blocks_used=now)
    waits = held(7, blocks_used=now, held_threads=1)
    for now in range(100, 200, 2):  # pauses and waits tell nothing of that
        assert looks(busy, last, now) == (False, False)
        assert looks(busy, waits, now + 1) == (True, False)
    for now in range(200, 200 + int(DUTY_MEMORY_S)):
        found = looks(busy, last, now, depth=3)
    assert found == (True, True)


# ---- descriptors ----


class Exhausted:
    """A listener of a process that has no free descriptors."""

    def __init__(self, real: socket.socket) -> None:
        self.real = real

    def fileno(self) -> int:
        return self.real.fileno()

    def accept(self) -> tuple[socket.socket, str]:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    def close(self) -> None:
        self.real.close()


def test_two_listeners_out_of_descriptors_in_one_round_pause_together(tmp_path: Path) -> None:
    listeners = []
    for name in ("one", "two"):
        real = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        real.bind(str(tmp_path / name))
        real.listen(1)
        listeners.append(Exhausted(real))
    service = Service(cast(Any, listeners), ServiceSettings, Cards(), Manager(), Process())
    service._accept_again()
    for one in cast(Any, listeners):
        service._accept(one)
    assert not service._accepting
    service._on_time(time.monotonic() + 10)
    assert service._accepting, "it tries again"
    service._close()
