"""The log of a run's first events, for a learner (daemon/core/predict/learner.h)."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pump.wire.abi import ffi, lib

STEP: Final = np.dtype(
    [
        *((name, "<u8") for name in ("key", "signature", "length_bytes")),
        *((name, "<u4") for name in ("slot", "generation")),
        *((name, "<u2") for name in ("what", "stream", "kind", "count")),
    ]
)
"""struct pump_learner_step."""
ACCESS: Final = np.dtype(
    [
        *((name, "<u4") for name in ("slot", "generation")),
        *((name, "<u8") for name in ("offset_bytes", "length_bytes")),
        *((name, "<u4") for name in ("access", "missing")),
    ]
)
"""struct pump_access."""

Keys = NDArray[np.uint64]


class EventLog(NamedTuple):
    """An event log. steps: dtype STEP, shape [n]. accesses: dtype ACCESS, shape [m], of all
    operations in order."""

    steps: NDArray[Any]
    accesses: NDArray[Any]

    def keys(self) -> Keys:
        """Returns the keys of its operations, in order, shape [operations]."""
        found: Keys = self.steps["key"][self.steps["what"] == lib.PUMP_LEARNER_OPERATION]
        return found

    def raw(self) -> Any:
        """Returns a `struct pump_learner_log *` over the arrays, which must outlive it."""
        event_log = ffi.new("struct pump_learner_log *")
        event_log.steps = ffi.cast("struct pump_learner_step *", self.steps.ctypes.data)
        event_log.accesses = ffi.cast("struct pump_access *", self.accesses.ctypes.data)
        event_log.step_count, event_log.access_count = len(self.steps), len(self.accesses)
        event_log.operations = len(self.keys())
        return event_log


def copied(raw: Any) -> EventLog:
    """Returns a copy of a `struct pump_learner_log *`."""
    return EventLog(
        _copied(raw.steps, raw.step_count, STEP), _copied(raw.accesses, raw.access_count, ACCESS)
    )


def _copied(rows: Any, count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    if count == 0:
        return np.zeros(0, dtype)
    return np.frombuffer(ffi.buffer(rows, count * dtype.itemsize), dtype).copy()
