"""The worker's recorder: the file has what the client did, and errors end only the recording."""

from __future__ import annotations

import errno
import io
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_client import BLOCK, FakeClient, ffi, lib

from pump.trace import format as form
from pump.trace import records as rec
from pump.trace.reader import Reader
from pump.trace.writer import TraceWriter
from pumpd.common.settings import WorkerSettings
from pumpd.worker import recorder as recording
from pumpd.worker.recorder import Recorder


@pytest.fixture
def client() -> Iterator[FakeClient]:
    fake = FakeClient(64)
    yield fake
    fake.close()


def start(settings: WorkerSettings) -> tuple[Recorder | None, Any]:
    """Returns the recorder, and the counters that the shim can read."""
    counters = ffi.new("struct pump_worker_counters *")
    return recording.start(settings, counters), counters


def settings(path: Path, **more: Any) -> WorkerSettings:
    return WorkerSettings("window", "info", None, os.getpid(), record=str(path), **more)


def read(path: Path) -> tuple[Reader, list[rec.Record]]:
    """Returns a reader and its records, without those about the waits of events."""
    reader = Reader(io.BytesIO(path.read_bytes()))
    return reader, [r for r in reader.records() if not isinstance(r, rec.Read)]


def draft(path: Path) -> Path:
    """Returns the unfinished file of the recording to `path`."""
    (part,) = path.parent.glob(f"{path.name}.part-*")
    return part


def eventually(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def drain(recorder: Recorder, client: FakeClient) -> None:
    while len(batch := client.mapping.drain()):
        recorder.batch(batch)
    recorder.tick()


def test_what_the_client_did_is_in_the_file_in_its_order(
    tmp_path: Path, client: FakeClient
) -> None:
    path = tmp_path / "t"
    recorder = Recorder(str(path), {})
    before_ns = time.monotonic_ns()
    recorder.device(0, client.shm.devices[0])
    kept = client.alloc(3)
    drain(recorder, client)
    recorder.ranges(client.mapping.read_ranges(), 0)
    recorder.device(0, client.shm.devices[0])  # unchanged: not recorded again
    freed = client.alloc(2)
    client.launch([kept, freed], stream=7)
    client.free(freed)
    client.push(lib.PUMP_EVENT_SYNC, 1, [], stream=7)
    drain(recorder, client)
    recorder.lost(5, form.LOST_RING_FULL)
    recorder.close()
    reader, (device, first, again, live, second, kernel, free, sync, lost) = read(path)
    assert reader.end is not None
    assert reader.end["operations"] == 1
    assert isinstance(device, rec.Device)
    assert device[1:] == (0, bytes(16), 1 << 40, 64 * BLOCK, 64 * BLOCK, 0, 2, 0)
    assert before_ns <= device.time_ns <= time.monotonic_ns()
    base = 1 << 40
    assert first == rec.RangeRow(form.ALLOC, 0, kept, 1, base, 3 * BLOCK, 0, 0, 0)
    assert isinstance(again, rec.Resync)
    assert again.ranges == 1
    assert live == rec.RangeRow(form.RANGE, again.time_ns, kept, 1, base, 3 * BLOCK, 0, 1, 0)
    assert isinstance(second, rec.RangeRow)
    assert (second.slot, second.base) == (freed, base + 3 * BLOCK)
    assert isinstance(kernel, rec.Operation)
    assert (kernel.kind, kernel.seq, kernel.stream) == (form.KERNEL, 1, 7)
    assert kernel.extents == (
        rec.Extent(kept, 1, 0, 3 * BLOCK, lib.PUMP_ACCESS_READ, 0),
        rec.Extent(freed, 1, 0, 2 * BLOCK, lib.PUMP_ACCESS_READ, 0),
    )
    assert isinstance(free, rec.RangeRow)
    assert (free.kind, free.slot) == (form.FREE, freed)
    assert sync == rec.Sync(1, 7, 0, 0)
    assert isinstance(lost, rec.Lost)
    assert lost[1:] == (form.LOST_RING_FULL, 5)


def test_an_idle_programs_last_operations_are_on_disk_within_seconds(
    tmp_path: Path, client: FakeClient
) -> None:
    path = tmp_path / "t"
    recorder = Recorder(str(path), {})
    client.launch([client.alloc(1)])
    drain(recorder, client)

    def seen() -> bool:
        recorder.tick()
        return any(isinstance(record, rec.Operation) for record in read(draft(path))[1])

    eventually(seen)
    reader, _ = read(draft(path))
    assert reader.truncated
    recorder.close()
    assert not read(path)[0].truncated


def test_a_full_disk_ends_the_recording_with_one_warning_and_nothing_else(
    tmp_path: Path,
    client: FakeClient,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    path = tmp_path / "t"
    recorder = Recorder(str(path), {})
    slot = client.alloc(1)

    def full(_fd: int, _data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            for _ in range(recording.HAND_OVER_ROWS + 1):
                client.launch([slot])
            drain(recorder, client)
        recorder.close()
    assert recorder.error == 28
    monkeypatch.undo()
    warnings = [record.getMessage() for record in caplog.records]
    assert len(warnings) == 1
    assert str(path) in warnings[0]
    assert "No space left on device" in warnings[0]
    assert read(path)[0].truncated
    assert recorder._over.is_set()


def test_a_writer_that_cannot_follow_costs_rows_that_are_counted_not_time(
    tmp_path: Path, client: FakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "QUEUE_BYTES", 1 << 20)
    go = threading.Event()
    real = TraceWriter.events
    monkeypatch.setattr(TraceWriter, "events", lambda *words: (go.wait(20), real(*words))[1])
    path = tmp_path / "t"
    recorder = Recorder(str(path), {})
    slot = client.alloc(1)
    launches = 0
    while not recorder._lost_rows:
        for _ in range(1000):
            client.launch([slot])
        launches += 1000
        drain(recorder, client)
        assert launches < 200_000
    go.set()
    recorder.close()
    _, found = read(path)
    kept = sum(isinstance(record, rec.Operation) for record in found)
    lost = [record for record in found if isinstance(record, rec.Lost)]
    assert [record.reason for record in lost] == [form.LOST_RECORDER]
    assert kept > 0
    assert kept + lost[0].events in (launches, launches + 1)  # the allocation may be lost too


def test_records_that_made_no_sense_are_counted_in_the_recording(
    tmp_path: Path, client: FakeClient
) -> None:
    path = tmp_path / "t"
    recorder = Recorder(str(path), {})
    client.push(99, 1, [])
    client.launch([client.alloc(1)])
    drain(recorder, client)
    recorder.close()
    lost = [record for record in read(path)[1] if isinstance(record, rec.Lost)]
    assert [record[1:] for record in lost] == [(form.LOST_MALFORMED, 1)]


def test_the_header_names_the_client_of_the_recording(tmp_path: Path) -> None:
    recorder, counters = start(
        settings(
            tmp_path / "t",
            client_number=3,
            client_command=("python", "x.py"),
            record_job='{"command": ["x"]}',
        )
    )
    assert recorder is not None
    assert (counters.recorded_file, counters.recording_error) == (3, 0)
    recorder.close()
    header = read(tmp_path / "t.3")[0].header
    assert header["job"] == {"command": ["x"]}
    assert header["client_pid"] == os.getpid()
    assert header["policy"] == "window"
    assert header["command"] == ["python", "x.py"]
    apart_ns = header["unix_ns"] - header["monotonic_ns"] - (time.time_ns() - time.monotonic_ns())
    assert abs(apart_ns) < 1_000_000_000


def test_two_recordings_never_share_a_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, _ = start(settings(tmp_path / "t"))
    assert first is not None
    second, counters = start(settings(tmp_path / "t"))
    assert second is None
    assert counters.recording_error == errno.EBUSY
    assert "another job records to it" in caplog.text
    first.close()
    assert not read(tmp_path / "t")[0].truncated


def test_what_is_no_regular_file_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, error in (("pipe", errno.EINVAL), ("missing/t", errno.ENOENT)):
        recorder, counters = start(settings(tmp_path / path))
        assert recorder is None
        assert counters.recording_error == error


def test_without_the_option_there_is_no_recorder() -> None:
    recorder, counters = start(WorkerSettings("window", "info", None, 1))
    assert recorder is None
    assert counters.recorded_file == 0


def test_the_recorder_has_room_for_the_columns_of_a_batch() -> None:
    batch = ffi.new("struct pump_batch *")
    assert len(batch.seq) == recording._BATCH_ROWS
    assert len(batch.slot) == recording._BATCH_USES


@pytest.mark.parametrize("batches", [1, 7, 200])
def test_rows_keep_their_extents_when_many_batches_are_joined(
    tmp_path: Path, client: FakeClient, batches: int
) -> None:
    slots = [client.alloc(1) for _ in range(5)]
    recorder = Recorder(str(tmp_path / "t"), {})
    expected = []
    for number in range(batches):
        for turn in range(number % 4):  # sometimes an empty batch
            used = slots[: (number + turn) % 6]
            client.launch(used)
            expected.append(used)
        drain(recorder, client)
    recorder.close()
    operations = [r for r in read(tmp_path / "t")[1] if isinstance(r, rec.Operation)]
    assert [[extent.slot for extent in one.extents] for one in operations] == expected
