"""Samples for a recording: the worker's estimate of the devices' memory, and the client's threads.

Unchanged values are not written. When values change, the earlier values are first written again
with the last time when they were valid, so that lines drawn between samples are correct.
"""

from __future__ import annotations

from typing import Final

from pump.model.bounds import BLOCK_BYTES
from pump.model.client import (
    ABSENT,
    ARRIVING,
    DISCARDING,
    HOST,
    LEAVING,
    MAYBE_EVICTED,
    RESIDENT,
    ClientModel,
)
from pump.trace.records import Sample
from pump.wire.mapping import Mapping
from pumpd.worker.recorder import Recorder
from pumpd.worker.run_delay import RunDelay

SAMPLE_NS: Final = 50_000_000
"""Least time between two samples, while the worker is awake."""


class Sampler:
    """Takes samples of one client for its recording."""

    def __init__(
        self, recorder: Recorder, mapping: Mapping, model: ClientModel, client_pid: int = 0
    ) -> None:
        """`client_pid`: 0 if the client's threads are not visible."""
        self._recorder = recorder
        self._delays = RunDelay(client_pid)
        self._shim = mapping.shm.shim_counters
        self._model = model
        self._written: list[tuple[int, ...]] = []
        self._taken_ns = 0
        self._same_ns = 0
        """When the last written values were last found unchanged; 0: not since then."""

    def tick(self, now_ns: int) -> None:
        """Takes a sample, unless the last one was taken within SAMPLE_NS."""
        if now_ns - self._taken_ns >= SAMPLE_NS:
            self.take(now_ns)

    def take(self, now_ns: int, *, last: bool = False) -> None:
        """Writes the current values, if they have changed. `last`: at the recording's end."""
        self._taken_ns = now_ns
        values = [self._device(index) for index in self._model.devices]
        self._recorder.threads(self._delays, last=last)
        if values == self._written:
            self._same_ns = now_ns
            return
        if self._same_ns:
            self._write(self._same_ns)
            self._same_ns = 0
        self._written = values
        self._write(now_ns)

    def _write(self, time_ns: int) -> None:
        self._recorder.sample([Sample(time_ns, *values) for values in self._written])

    def _device(self, index: int) -> tuple[int, ...]:
        """Returns a sample without its time."""
        tally, shim = self._model.tally(index), self._shim
        there = [int(count) * BLOCK_BYTES for count in self._model.counts(index)]
        resident = there[RESIDENT] + there[MAYBE_EVICTED]
        leaving, on_host = there[LEAVING] + there[DISCARDING], there[HOST] + there[ABSENT]
        return (
            index,
            # By the model and not by the client's count: events may be unread.
            resident + there[ARRIVING] + leaving + on_host,
            resident,
            there[MAYBE_EVICTED],
            there[ARRIVING],
            leaving,
            on_host,
            *(tally.blocks, tally.hit, tally.late, tally.unseen, tally.no_room),
            *(shim.moved_to_gpu_bytes, shim.moved_to_host_bytes),
            self._model.totals().window_depth,
        )
