"""What a recording tells of the devices' memory: the worker's belief, now and then.

As long as nothing changes nothing is written; with the first change the last moment of the
old figures is, so that lines drawn between samples show what was.
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

SAMPLE_NS: Final = 50_000_000
"""How often the figures are looked at, while the worker is awake."""


class Sampler:
    """Samples of one client for its recording."""

    def __init__(self, recorder: Recorder, mapping: Mapping, model: ClientModel) -> None:
        self._recorder = recorder
        self._shm = mapping.shm
        self._model = model
        self._told: list[tuple[int, ...]] = []
        self._looked_ns = 0
        self._same_ns = 0
        """When the figures told last were seen again unchanged; 0: not since."""

    def tick(self, now_ns: int) -> None:
        """Look, unless that was done within SAMPLE_NS."""
        if now_ns - self._looked_ns >= SAMPLE_NS:
            self.look(now_ns)

    def look(self, now_ns: int) -> None:
        """Tell the figures of this moment, if they are new."""
        self._looked_ns = now_ns
        figures = [self._device(index) for index in self._model.devices]
        if figures == self._told:
            self._same_ns = now_ns
            return
        if self._same_ns:
            self._tell(self._same_ns)
            self._same_ns = 0
        self._told = figures
        self._tell(now_ns)

    def _tell(self, time_ns: int) -> None:
        self._recorder.sample([Sample(time_ns, *figures) for figures in self._told])

    def _device(self, index: int) -> tuple[int, ...]:
        """A sample without its time."""
        tally, shim = self._model.tally(index), self._shm.shim_counters
        there = [int(count) * BLOCK_BYTES for count in self._model.counts(index)]
        return (
            index,
            self._shm.devices[index].allocated_bytes,
            there[RESIDENT] + there[MAYBE_EVICTED],
            there[MAYBE_EVICTED],
            there[ARRIVING],
            there[LEAVING] + there[DISCARDING],
            there[HOST] + there[ABSENT],
            *(tally.blocks, tally.hit, tally.late, tally.unseen, tally.no_room),
            *(shim.moved_to_gpu_bytes, shim.moved_to_host_bytes),
            self._model.totals().window_depth,
        )
