"""Slices, events and threads of a recorded client: the time that they lost is recorded."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_client import FakeClient, lib

from pump.policy import by_name
from pump.trace import format as form
from pump.trace import records as rec
from pump.trace.reader import Reader
from pumpd.worker.hops import Hops
from pumpd.worker.recorder import Recorder
from pumpd.worker.run_delay import Issuers, RunDelay
from pumpd.worker.worker import DORMANT_S, Worker

HOPS = {"waited_us": 70, "called_us": 2, "driver_us": 30, "link_us": 900}
SCHEDSTAT = Path("/proc/self/schedstat")


@pytest.fixture
def client() -> Iterator[FakeClient]:
    fake = FakeClient(8, emulated=True, capacity=64)
    yield fake
    fake.close()


def taken(client: FakeClient, direction: int) -> list[Any]:
    """Takes all entries scheduled in a direction, whatever they wait for."""
    schedule = client.shm.schedules[0]
    if not schedule.cursor >> 32:
        return []
    at = schedule.cursor >> 16 * direction & 0xFFFF
    entries = [schedule.entries[direction][i].command for i in range(at, schedule.count[direction])]
    schedule.cursor += len(entries) << 16 * direction
    return entries


def end(client: FakeClient, ticket: int, length_bytes: int, direction: int) -> None:
    """Reports that a slice has moved, as a recorded client does."""
    if direction == lib.PUMP_TO_HOST:
        client.shm.schedules[0].left_bytes += length_bytes
    found = client.shm.entry_ends[ticket % lib.PUMP_SCHEDULE_TICKETS]
    for name, value in HOPS.items():
        setattr(found, name, value)
    found.ended_ns = lib.pump_core_now_ns()
    found.result, found.duration_us, found.ticket = lib.PUMP_RESULT_MOVED, 1000, ticket
    client.shm.header.activity += 1


def moved(client: FakeClient, worker: Worker) -> list[tuple[int, int, int, int]]:
    """Runs until slices have moved both ways; returns them as (direction, slot, offset, bytes)."""
    slots = [client.alloc(6) for _ in range(3)]
    found: list[tuple[int, int, int, int]] = []
    for turn in range(40):
        seq = client.launch([slots[turn % 3]])
        worker.tick()
        for direction in (lib.PUMP_TO_HOST, lib.PUMP_TO_GPU):
            for command in taken(client, direction):
                what = int(command.slot), int(command.offset_bytes), int(command.length_bytes)
                found.append((direction, *what))
                end(client, int(command.ticket), what[2], direction)
        worker.tick()
        client.execute(seq)
        worker.tick()
    assert {way for way, *_ in found} == {lib.PUMP_TO_GPU, lib.PUMP_TO_HOST}
    return found


def recorded(path: Path) -> list[rec.Record]:
    with path.open("rb") as file:
        return list(Reader(file).records())


def test_each_slice_that_has_ended_is_a_row(client: FakeClient, tmp_path: Path) -> None:
    worker = Worker(client.mapping, by_name("window"), Recorder(str(tmp_path / "t"), {}))
    before_ns = lib.pump_core_now_ns()
    expected = moved(client, worker)
    worker.last_figures()
    rows = [row for row in recorded(tmp_path / "t") if isinstance(row, rec.Transfer)]
    kept = [(row.direction, row.slot, row.offset_bytes, row.length_bytes) for row in rows]
    assert sorted(kept) == sorted(expected)
    for row in rows:
        assert {name: getattr(row, name) for name in HOPS} == HOPS
        assert (row.device, row.result, row.generation) == (0, lib.PUMP_RESULT_MOVED, 1)
        assert before_ns <= row.time_ns <= row.time_ns + 1000 * row.seen_us
        assert row.time_ns + 1000 * row.seen_us <= lib.pump_core_now_ns()
    assert all(schedule.made_ns >= before_ns for schedule in client.shm.schedules[0:1])


def test_without_a_recording_no_schedule_says_when_it_was_made(client: FakeClient) -> None:
    moved(client, Worker(client.mapping, by_name("window")))
    assert client.shm.schedules[0].made_ns == 0


def test_a_client_that_fits_is_recorded_and_neither_scheduled_nor_learned(
    client: FakeClient, tmp_path: Path
) -> None:
    device = client.shm.devices[0]
    device.device_state = lib.PUMP_DEVICE_DORMANT
    worker = Worker(client.mapping, by_name("planned"), Recorder(str(tmp_path / "t"), {}))
    slots = [client.alloc(6) for _ in range(3)]

    def iterate() -> None:
        for slot in slots * 20:
            seq = client.launch([slot])
            worker.tick()
            client.execute(seq)
            worker.tick()

    iterate()
    totals = worker.model.totals()
    assert (totals.operations, totals.schedules, totals.predicted) == (60, 0, 0)
    before_s = time.monotonic()
    worker.wait(client.mapping.activity())
    assert time.monotonic() - before_s >= DORMANT_S, "it waits although an event has arrived"
    device.device_state = lib.PUMP_DEVICE_ACTIVE
    iterate()
    totals = worker.model.totals()
    assert totals.schedules > 0 < totals.predicted
    worker.last_figures()
    operations = [row for row in recorded(tmp_path / "t") if isinstance(row, rec.Operation)]
    assert len(operations) == 120


def test_slices_that_find_no_place_are_counted_as_lost(
    client: FakeClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder(str(tmp_path / "t"), {})
    worker = Worker(client.mapping, by_name("window"), recorder)
    monkeypatch.setattr(Hops, "due", lambda self: False)
    recorder.hops.slices.count = places = len(recorder.hops.slices.bytes) - 3
    lost = len(moved(client, worker)) - 3
    assert recorder.hops.slices.lost == lost
    recorder.hops.slices.direction[0:places] = [0] * places
    worker.last_figures()
    (row,) = [row for row in recorded(tmp_path / "t") if isinstance(row, rec.Lost)]
    assert (row.reason, row.events) == (form.LOST_RECORDER, lost)


def test_a_client_that_says_nonsense_gets_a_recording_that_can_be_read(
    client: FakeClient, tmp_path: Path
) -> None:
    worker = Worker(client.mapping, by_name("window"), Recorder(str(tmp_path / "t"), {}))
    moved(client, worker)
    slot = client.alloc(2)
    client.launch([slot])
    worker.tick()
    (command, *_) = [c for way in (0, 1) for c in taken(client, way)]
    ending = client.shm.entry_ends[command.ticket % lib.PUMP_SCHEDULE_TICKETS]
    ending.ended_ns, ending.result = 2**64 - 1, 2**32 - 1
    ending.waited_us = ending.link_us = 2**32 - 1
    ending.ticket = command.ticket
    worker.tick()
    worker.last_figures()
    row = [row for row in recorded(tmp_path / "t") if isinstance(row, rec.Transfer)][-1]
    assert (row.time_ns, row.result, row.waited_us, row.seen_us) == (2**64 - 1, 255, 2**32 - 1, 0)


def test_the_oldest_event_of_a_read_says_how_long_it_had_waited(
    client: FakeClient, tmp_path: Path
) -> None:
    worker = Worker(client.mapping, by_name("window"), Recorder(str(tmp_path / "t"), {}))
    header = client.shm.header
    for waited_ns in (5_000_000, 0):
        position = header.event_tail
        client.alloc(1)
        client.alloc(1)
        client.shm.events[position % lib.PUMP_EVENT_SLOTS].time_ns = (
            lib.pump_core_now_ns() - waited_ns
        )
        worker.tick()  # a second wait within one millisecond need not be noted
    worker.last_figures()
    reads = [row for row in recorded(tmp_path / "t") if isinstance(row, rec.Read)]
    assert reads and reads[0].waited_us >= 5000


def test_threads_count_by_their_names_and_after_their_end(monkeypatch: pytest.MonkeyPatch) -> None:
    if not SCHEDSTAT.exists():
        pytest.skip("this kernel does not say how long threads ran")
    delays = RunDelay(os.getpid())
    named, over = threading.Event(), threading.Event()

    def body() -> None:
        Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text("pump-out-3")
        sum(range(200_000))
        named.set()
        over.wait(20)

    thread = threading.Thread(target=body)
    thread.start()
    assert named.wait(20)
    monkeypatch.setattr("pumpd.worker.run_delay.SHARE", 10**9)
    first = {row.group: row for row in delays.sample()}
    assert first[form.THREADS_TO_HOST].ran_ns > 0
    assert first[form.THREADS_PROGRAM].ran_ns >= first[form.THREADS_WORKER].ran_ns > 0
    assert delays.sample() == []  # too soon: each look takes time; only the last one counts anyway
    over.set()
    thread.join()
    deadline = time.monotonic() + 20
    while not (later := {row.group: row for row in delays.sample(last=True)}):
        assert time.monotonic() < deadline
    said = first | later
    assert said[form.THREADS_TO_HOST].ran_ns >= first[form.THREADS_TO_HOST].ran_ns
    assert said[form.THREADS_PROGRAM].ran_ns > first[form.THREADS_PROGRAM].ran_ns


def test_threads_that_issue_wait_where_others_have_their_processor() -> None:
    if not SCHEDSTAT.exists():
        pytest.skip("this kernel does not say how long threads waited")
    processor = min(os.sched_getaffinity(0))
    body = f"import os; os.sched_setaffinity(0, [{processor}]); print(flush=True)\nwhile 1: pass"
    command = [sys.executable, "-c", body]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(2)]
    try:
        for each in both:
            assert each.stdout is not None
            each.stdout.readline()
        issuers = Issuers(both[0].pid)
        issuers.refresh([both[0].pid, 0, 0, 0])
        assert issuers.waited_ns == 0  # earlier waits do not count
        began = time.monotonic()
        while issuers.waited_ns < 100_000_000 or not issuers.share:
            assert time.monotonic() < began + 20
            time.sleep(0.05)
            issuers.refresh([both[0].pid, 2**22 + 1, 0, 0])
        assert issuers.waited_ns <= (time.monotonic() - began) * 1e9
        assert 0 < issuers.share < 0.9
    finally:
        for each in both:
            each.kill()
            each.communicate()


def test_threads_that_cannot_be_seen_are_left_out() -> None:
    issuers = Issuers(0)
    issuers.refresh([os.getpid()])
    assert (issuers.waited_ns, issuers.share) == (0, 0.0)
    for pid in (0, 2**22 + 1):  # above any process id
        assert {row.group for row in RunDelay(pid).sample()} <= {form.THREADS_WORKER}
