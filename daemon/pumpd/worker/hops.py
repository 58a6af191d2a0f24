"""Where slices and events of a recorded client lose time: notes for its recorder.

The worker's C step leaves the ends of slices in `Hops.slices`; a tick looks how many there are
and copies none. Of reading the event ring one figure a millisecond is kept at most: how long the
oldest record had waited.
"""

from __future__ import annotations

import time
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pump.trace.format import FIELDS
from pump.trace.records import Read
from pump.trace.writer import TRANSFER_COLUMNS
from pump.wire.abi import ffi, lib

MOST_ENDS: Final = 2048
"""Handed over at once. A tick brings PUMP_MAX_UNDER_WAY at most, so that none is lost."""
MOST_READS: Final = 256
HAND_OVER_NS: Final = 200_000_000
READ_NS: Final = 1_000_000
"""Least time between two reads that are noted."""

_NAMES: Final = {"time_ns": "ended_ns"}
"""Columns of a TRANSFER row that `struct pump_slices` calls otherwise."""


class Hops:
    """What has come since it was last taken."""

    def __init__(self) -> None:
        self.slices: Any = ffi.new("struct pump_slices *")
        """For `pump_worker_record`; to live as long as the model has it."""
        self._columns = {
            name: np.frombuffer(
                ffi.buffer(getattr(self.slices, _NAMES.get(name, name))),
                FIELDS[f"transfer_{name}"].dtype,
            )
            for name in TRANSFER_COLUMNS
        }
        self._reads: list[Read] = []
        self._taken_ns = self._read_ns = 0

    def read(self, issued_ns: int) -> None:
        """Events were read, the oldest of which was issued then."""
        now_ns = int(lib.pump_core_now_ns())
        if now_ns - self._read_ns >= READ_NS:
            waited_us = max(0, now_ns - issued_ns) // 1000
            self._reads.append(Read(now_ns, min(waited_us, 0xFFFFFFFF)))
            self._read_ns = now_ns

    def due(self) -> bool:
        """Return whether it is time to take what there is."""
        ends, reads = self.slices.count, len(self._reads)
        if ends >= MOST_ENDS or reads >= MOST_READS:
            return True
        return bool(ends or reads) and time.monotonic_ns() - self._taken_ns > HAND_OVER_NS

    def take(self) -> tuple[dict[str, NDArray[Any]], list[Read], int]:
        """Return and forget: TRANSFER_COLUMNS, shape [n]; reads; ends that found no place."""
        self._taken_ns = time.monotonic_ns()
        count, lost = self.slices.count, self.slices.lost
        ends = {name: column[:count].copy() for name, column in self._columns.items()}
        self.slices.count = self.slices.lost = 0
        reads, self._reads = self._reads, []
        return ends, reads, lost
