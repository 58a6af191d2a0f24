"""Samples in recordings: they follow a device's memory, and an idle program adds none."""

from __future__ import annotations

import time
from pathlib import Path

from fake_client import BLOCK, FakeClient

from pump.policy import by_name
from pump.trace import records as rec
from pump.trace.reader import Reader
from pumpd.worker.recorder import Recorder
from pumpd.worker.sampler import SAMPLE_NS, Sampler
from pumpd.worker.worker import Worker


def samples(path: Path) -> list[rec.Sample]:
    with path.open("rb") as file:
        return [record for record in Reader(file).records() if isinstance(record, rec.Sample)]


def test_samples_follow_memory_and_an_idle_program_adds_none(tmp_path: Path) -> None:
    client = FakeClient(8)
    try:
        recorder = Recorder(str(tmp_path / "t"), {})
        worker = Worker(client.mapping, by_name("demand"))
        sampler = Sampler(recorder, client.mapping, worker.model)
        worker.tick()
        now = 1_000_000_000
        sampler.tick(now)
        client.alloc(3)
        worker.tick()
        sampler.tick(now + SAMPLE_NS - 1)  # too early for a sample
        for step in range(1, 100):
            sampler.tick(now + step * SAMPLE_NS)
        client.alloc(2)
        worker.tick()
        sampler.tick(now + 100 * SAMPLE_NS)
        sampler.take(now + 101 * SAMPLE_NS)
        recorder.close()
    finally:
        client.close()
    told = samples(tmp_path / "t")
    blocks = [(sample.resident_bytes + sample.host_bytes) // BLOCK for sample in told]
    # The state before; the first change; the last moment before the second; the second.
    assert blocks == [0, 3, 3, 5]
    assert [(sample.time_ns - now) // SAMPLE_NS for sample in told] == [0, 1, 99, 100]


def test_a_sample_agrees_with_itself_while_allocations_are_unread(tmp_path: Path) -> None:
    client = FakeClient(8)
    try:
        recorder = Recorder(str(tmp_path / "t"), {})
        worker = Worker(client.mapping, by_name("demand"))
        sampler = Sampler(recorder, client.mapping, worker.model)
        now = 1_000_000_000
        client.alloc(3)
        worker.tick()
        client.alloc(2)
        sampler.take(now)
        worker.tick()
        sampler.take(now + SAMPLE_NS)
        recorder.close()
    finally:
        client.close()
    told = samples(tmp_path / "t")
    assert [sample.allocated_bytes for sample in told] == [3 * BLOCK, 5 * BLOCK]
    assert [sample.resident_bytes + sample.host_bytes for sample in told] == [3 * BLOCK, 5 * BLOCK]


def test_a_worker_that_tells_how_it_is_between_ticks_samples_all_the_same(tmp_path: Path) -> None:
    """The worker also publishes before each long sleep, so a tick rarely has to."""
    client = FakeClient(8)
    try:
        recorder = Recorder(str(tmp_path / "t"), {})
        worker = Worker(client.mapping, by_name("demand"), recorder)
        for blocks in range(1, 6):
            client.alloc(blocks)
            worker.publish()
            time.sleep(1.2 * SAMPLE_NS / 1e9)
            worker.publish()
            worker.tick()
        recorder.close()
    finally:
        client.close()
    allocated = {sample.resident_bytes + sample.host_bytes for sample in samples(tmp_path / "t")}
    assert {1 * BLOCK, 3 * BLOCK, 6 * BLOCK, 10 * BLOCK, 15 * BLOCK} <= allocated
