"""Bounds on both sides of a lease: memory, silence, waits, and one bad round."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import select
import selectors
import socket
import subprocess
import time
from pathlib import Path
from typing import Any, cast

from lease_scene import MIB, Scene, held
from msgspec.structs import replace

from pump.control import ClientState
from pump.wire import control
from pump.wire import service as wire
from pumpd.lease.job_usage import (
    ABSENT_S,
    Absent,
)
from pumpd.lease.rounds import YOUNG_ROUND_S
from pumpd.service import registry as registries
from pumpd.service.cards import Cards
from pumpd.service.jobs import SENT_MOST
from pumpd.service.owners import Identity
from pumpd.service.registry import Registry
from pumpd.service.sdnotify import Manager
from pumpd.service.service import Service
from pumpd.service.settings import ServiceSettings
from pumpd.service.surroundings import Process


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
    assert len(job.granted) == 1 and len(registry.shrink_budget) == 0


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
    for turn in range(300):  # another job joins and leaves: half the memory, then all of it
        registry.take_report(job, wire.Report(0, 1, 0, 0, (entry(gpu, 800),)), turn)
        other = registry.add(Identity(0, 0, 0), wire.Join(), 10, turn)
        registry.take_report(other, wire.Report(0, 1, 0, 0, (entry(gpu, 800),)), turn)
        for _ in range(2):
            registry.rearrange(turn)
            greatest = max(greatest, job.granted[name])
            assert len(job.sent) <= SENT_MOST
            held = max(grant[name] for _, grant in job.sent)
            assert held == greatest, "it may still act upon any of them"
            registry.remove(other)
    assert job.grant_number > SENT_MOST, "there were too many to keep"
    registry.take_report(job, wire.Report(job.grant_number, 1, 0, 0, (entry(gpu),)), 300.0)
    assert job.sent == []


def test_a_gpus_size_is_nvmls_word_and_not_the_first_jobs() -> None:
    gpu = "aa" * 16
    registry = Registry({gpu: 1000 * MIB})
    jobs = [registry.add(Identity(0, 0, 0), wire.Join(), 10, 0.0) for _ in range(3)]
    for job, total_mib in zip(jobs, (910, 1000, 800), strict=True):  # CUDA's total is below NVML's
        report = replace(entry(gpu), total_bytes=total_mib * MIB, usable_bytes=2000 * MIB)
        registry.take_report(job, wire.Report(0, 1, 0, 0, (report,)), 0.0)
    assert [bool(job.gpus) for job in jobs] == [True, True, False], "the last one lies"
    assert registry.memory_bytes()[gpu] == 970 * MIB
    registry.take_report(jobs[0], wire.Report(0, 1, 0, 0, (entry("bb" * 16),)), 0.0)
    assert not jobs[0].gpus, "NVML knows no such GPU"


# ---- the job's side ----


def test_a_connection_lost_earlier_in_a_round_is_not_heard_in_it(tmp_path: Path) -> None:
    with (
        selectors.DefaultSelector() as selector,
        contextlib.closing(Scene(tmp_path, selector)) as scene,
    ):
        scene.holder.on_time(time.monotonic())
        scene.service.close()
        ready = selector.select(10)
        assert len(ready) == 1, "the end of the service is there to be heard"
        scene.answers.pop()([])  # a worker answers first: no service is left for the report
        assert "alone" in repr(scene.holder)
        ready[0][0].data()
        assert "alone" in repr(scene.holder)


def test_a_job_whose_worker_does_not_answer_says_that_it_is_there(tmp_path: Path) -> None:
    with (
        selectors.DefaultSelector() as selector,
        contextlib.closing(Scene(tmp_path, selector)) as scene,
    ):
        scene.service.send(wire.encode(wire.Grant(0, 20, ())))
        scene.handle_events()
        scene.holder.on_time(time.monotonic())
        assert scene.answers, "the holder must be waiting for a worker's answer"
        for _ in range(3):
            due = scene.holder.due()
            assert due is not None
            scene.holder.on_time(due)
            assert isinstance(scene.said(), wire.Beat)


def test_what_a_client_holds_is_told_while_it_has_no_worker_and_lives(tmp_path: Path) -> None:
    with (
        selectors.DefaultSelector() as selector,
        contextlib.closing(Scene(tmp_path, selector)) as scene,
        subprocess.Popen(["sleep", "60"]) as client,
    ):
        try:
            scene.service.send(wire.encode(wire.Grant(0, 20, ())))
            scene.handle_events()

            def round_of(*clients: ClientState) -> object:
                while not scene.answers:
                    due = scene.holder.due()
                    assert due is not None
                    time.sleep(max(0.0, due - time.monotonic()))
                    scene.holder.on_time(time.monotonic())
                scene.answers.pop()(list(clients))
                first = scene.said()
                while select.select([scene.service], [], [], 0)[0]:
                    assert isinstance(scene.said(), wire.Beat)
                return first

            told = round_of(held(client.pid))
            assert isinstance(told, wire.Report) and told.gpus[0].adopted_bytes == 500 * MIB
            # Its worker was killed. A worker that hangs reports as little.
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
        scene.handle_events()
        scene.holder.client_came(time.monotonic())

        def is_next_behind(pause_s: float, client: ClientState) -> bool:
            """Returns whether the next round begins `pause_s` after the worker has reported
            `client`."""
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


# ---- descriptors ----


class Exhausted:
    """A listener in a process without free descriptors."""

    def __init__(self, real: socket.socket) -> None:
        self.real = real

    def fileno(self) -> int:
        return self.real.fileno()

    def setblocking(self, _blocking: bool) -> None: ...

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
    service._acceptor.start()
    for one in cast(Any, listeners):
        service._acceptor.accept(one)
    assert service._acceptor.due is not None
    service._on_time(time.monotonic() + 10)
    assert service._acceptor.due is None, "it tries again"
    service._close()
