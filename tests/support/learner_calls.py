"""Calls the learner, which learns the operation sequence that a program repeats.

Not a test. The learner itself is in C (`daemon/core/predict/learner.h`, which defines the words).
The learner gets operations, allocations and frees in issue order, and returns predictions. It makes
no I/O, reads no clock and decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pump.wire.abi import ffi, lib

UNKNOWN: int = lib.PUMP_LEARNER_UNKNOWN
CONFIRMED: int = lib.PUMP_LEARNER_CONFIRMED
DEVIATED: int = lib.PUMP_LEARNER_DEVIATED

CAPACITY = 1 << 17
"""Remembered operations: 28 iterations of a ResNet-50 in PyTorch, hundreds of a transformer."""


class Access(NamedTuple):
    """An extent with its range; `access` as in pump_abi.h. `missing`: predicted in a range that is
    not allocated yet; slot and generation are then its predecessor's."""

    slot: int
    generation: int
    offset_bytes: int
    length_bytes: int
    access: int = 0
    missing: bool = False


@dataclass(frozen=True, slots=True)
class Predicted:
    """A predicted operation. `number`: number of the earlier operation that it repeats."""

    number: int
    signature: int
    stream: int
    kind: int
    accesses: tuple[Access, ...]


class Learner:
    """Learns one client's sequence of operations."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        """Remembers `capacity` operations, a power of two from 2^8 to 2^20.

        Raises ValueError for another capacity, MemoryError if memory is short.
        """
        if not 1 << 8 <= capacity <= 1 << 20 or capacity & (capacity - 1):
            raise ValueError(f"capacity {capacity}; it must be a power of two, 2^8 to 2^20")
        learner = lib.pump_learner_new(capacity)
        if learner == ffi.NULL:
            raise MemoryError("the learner's history does not fit into memory")
        self.raw: Any = ffi.gc(learner, lib.pump_learner_delete)
        self._operation = ffi.new("struct pump_operation *")
        self._accesses = ffi.new("struct pump_access[]", lib.PUMP_MAX_EXTENTS)
        self._operation.accesses = self._accesses
        self._predicted = ffi.new("struct pump_predicted *")
        self._report = ffi.new("struct pump_learner_report *")

    def shape(
        self, signature: int, function: int, grid: Sequence[int], block: Sequence[int]
    ) -> None:
        """Reports the shape of launches with this signature; other scalars do not change it."""
        lib.pump_learner_shape(self.raw, signature, function, tuple(grid), tuple(block))

    def see(
        self,
        signature: int = 0,
        accesses: Sequence[Access] = (),
        *,
        function: int = 0,
        kind: int = lib.PUMP_EVENT_KERNEL,
        stream: int = 0,
    ) -> int:
        """Learns the next operation; returns UNKNOWN, CONFIRMED or DEVIATED.

        Ignores accesses after the first PUMP_MAX_EXTENTS.
        """
        raw = self._operation
        raw.function, raw.signature = function, signature
        raw.stream, raw.kind = stream, kind
        raw.count = min(len(accesses), lib.PUMP_MAX_EXTENTS)
        for to, access in zip(self._accesses, accesses, strict=False):
            to.slot, to.generation, to.offset_bytes, to.length_bytes, to.access = access[:5]
        return int(lib.pump_learner_see(self.raw, raw))

    def alloc(self, slot: int, generation: int, length_bytes: int) -> None:
        """Reports a new range to the learner."""
        lib.pump_learner_alloc(self.raw, slot, generation, length_bytes)

    def free(self, slot: int, generation: int) -> None:
        """Reports to the learner that a range was freed."""
        lib.pump_learner_free(self.raw, slot, generation)

    def lost(self) -> None:
        """Reports to the learner that operations were lost."""
        lib.pump_learner_lost(self.raw)

    def keep(self) -> None:
        """Starts to log the input. Raises MemoryError."""
        if lib.pump_learner_keep(self.raw) != 0:
            raise MemoryError("no memory for what a learner keeps")

    def kept(self) -> Any:
        """Returns the log, `struct pump_learner_log`; its arrays belong to the learner."""
        event_log = ffi.new("struct pump_learner_log *")
        lib.pump_learner_kept(self.raw, event_log)
        return event_log

    def recall(self, event_log: Any) -> None:
        """Replays the log of an earlier run as the history."""
        lib.pump_learner_recall(self.raw, event_log)

    def take_over(self, other: Learner) -> None:
        """Replays the log of another learner and takes it over."""
        lib.pump_learner_take_over(self.raw, other.raw)

    def ahead(self, most: int) -> int:
        """Returns how many operations are predicted with confidence, at most `most`."""
        return int(lib.pump_learner_ahead(self.raw, most))

    def next(self, index: int = 0) -> Predicted | None:
        """Returns the operation expected after `index` others, or None."""
        raw = self._predicted
        if lib.pump_learner_next(self.raw, index, raw) != 0:
            return None
        accesses = tuple(
            Access(r.slot, r.generation, r.offset_bytes, r.length_bytes, r.access, bool(r.missing))
            for r in raw.accesses[0 : raw.count]
        )
        return Predicted(raw.number, raw.signature, raw.stream, raw.kind, accesses)

    def report(self) -> Any:
        """Returns `struct pump_learner_report`, overwritten by the next call."""
        lib.pump_learner_report(self.raw, self._report)
        return self._report
