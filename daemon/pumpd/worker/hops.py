"""Tracks for a client's recorder how long slices and events were delayed, and where.

The worker's C step appends ended slices to `Hops.slices`; a tick only reads their count and copies
nothing. For reads of the event ring, at most one value per millisecond is kept: the wait of the
oldest record.
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
"""The buffer is handed over once it has this many ended slices. A tick adds at most
PUMP_MAX_IN_FLIGHT, so it cannot overflow."""
MOST_READS: Final = 256
HAND_OVER_NS: Final = 200_000_000
READ_NS: Final = 1_000_000
"""Least time between two noted reads."""

_NAMES: Final = {"time_ns": "ended_ns"}
"""Columns of a TRANSFER row that have another name in `struct pump_slices`."""


class Hops:
    """Ended slices and reads of the ring since the last take()."""

    def __init__(self) -> None:
        self.slices: Any = ffi.new("struct pump_slices *")
        """Filled after `pump_worker_record`; must stay alive while the model uses it."""
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
        """Notes a read of events. `issued_ns`: when the oldest of these events was issued."""
        now_ns = int(lib.pump_core_now_ns())
        if now_ns - self._read_ns >= READ_NS:
            waited_us = max(0, now_ns - issued_ns) // 1000
            self._reads.append(Read(now_ns, min(waited_us, 0xFFFFFFFF)))
            self._read_ns = now_ns

    def due(self) -> bool:
        """Returns whether it is time to call take()."""
        ends, reads = self.slices.count, len(self._reads)
        if ends >= MOST_ENDS or reads >= MOST_READS:
            return True
        return bool(ends or reads) and time.monotonic_ns() - self._taken_ns > HAND_OVER_NS

    def take(self) -> tuple[dict[str, NDArray[Any]], list[Read], int]:
        """Returns and clears: TRANSFER_COLUMNS, shape [n]; reads; the number of lost slice ends."""
        self._taken_ns = time.monotonic_ns()
        count, lost = self.slices.count, self.slices.lost
        ends = {name: column[:count].copy() for name, column in self._columns.items()}
        self.slices.count = self.slices.lost = 0
        reads, self._reads = self._reads, []
        return ends, reads, lost
