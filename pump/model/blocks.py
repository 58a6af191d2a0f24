"""The block table: where every 2 MiB block of a client is believed to be.

Columns live in numpy; libpump_core keeps the window's chains over the same arrays. A
range owns consecutive block numbers for as long as it lives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pump.model.bounds import BLOCK_BYTES, MAX_BLOCKS
from pump.wire.abi import ffi, lib
from pump.wire.mapping import Range

FREE: int = lib.PUMP_BLOCK_FREE
ABSENT: int = lib.PUMP_BLOCK_ABSENT
HOST: int = lib.PUMP_BLOCK_HOST
ARRIVING: int = lib.PUMP_BLOCK_ARRIVING
RESIDENT: int = lib.PUMP_BLOCK_RESIDENT
LEAVING: int = lib.PUMP_BLOCK_LEAVING
DOUBTED: int = lib.PUMP_BLOCK_DOUBTED
NOT_NEEDED: int = lib.PUMP_NOT_NEEDED


@dataclass(frozen=True, slots=True)
class TrackedRange:
    """A live range and the block numbers it owns."""

    record: Range
    first_block: int
    blocks: int
    lead_bytes: int
    """Bytes between the start of the first block and the range's base."""


class BlockTable:
    """Blocks of one client, and the window over them (`pump_window` in C)."""

    def __init__(self, capacity: int = MAX_BLOCKS) -> None:
        self.capacity = capacity
        self.high = 0
        """Block numbers at and above this one were never used."""
        self.state: NDArray[np.uint8] = np.zeros(capacity, np.uint8)
        self.device: NDArray[np.uint8] = np.zeros(capacity, np.uint8)
        self.next_use: NDArray[np.int64] = np.zeros(capacity, np.int64)
        self.last_use: NDArray[np.int64] = np.zeros(capacity, np.int64)
        self.migrated: NDArray[np.int64] = np.zeros(capacity, np.int64)
        self.counts: NDArray[np.int64] = np.zeros((16, lib.PUMP_BLOCK_STATES), np.int64)
        self.slot: NDArray[np.int32] = np.full(capacity, -1, np.int32)
        self.first_block: NDArray[np.int64] = np.full(lib.PUMP_MAX_RANGES, -1, np.int64)
        self.generation: NDArray[np.uint32] = np.zeros(lib.PUMP_MAX_RANGES, np.uint32)
        self.lead_bytes: NDArray[np.int64] = np.zeros(lib.PUMP_MAX_RANGES, np.int64)
        self.length_bytes: NDArray[np.int64] = np.zeros(lib.PUMP_MAX_RANGES, np.int64)
        self.ranges: dict[int, TrackedRange] = {}
        self._gaps: dict[int, list[int]] = {}
        columns = ffi.new("struct pump_columns *")
        columns.capacity = capacity
        for name in ("state", "device", "next_use", "last_use", "migrated", "counts"):
            setattr(columns, name, _pointer(getattr(self, name)))
        window = lib.pump_window_new(columns)
        if window == ffi.NULL:
            raise MemoryError("the window's tables do not fit into memory")
        self.window: Any = ffi.gc(window, lib.pump_window_delete)

    def add(self, record: Range, state: int) -> bool:
        """Track a range; its blocks start in `state`. False when the table is full."""
        if record.slot in self.ranges:
            self.remove(record.slot)
        lead = record.base % BLOCK_BYTES
        blocks = -(-(lead + record.length_bytes) // BLOCK_BYTES)
        first = self._take(blocks)
        if first is None:
            return False
        self.ranges[record.slot] = TrackedRange(record, first, blocks, lead)
        self.first_block[record.slot] = first
        self.generation[record.slot] = record.generation
        self.lead_bytes[record.slot] = lead
        self.length_bytes[record.slot] = record.length_bytes
        self.slot[first : first + blocks] = record.slot
        lib.pump_window_create(self.window, first, blocks, record.device, state)
        return True

    def remove(self, slot: int) -> None:
        """Forget the range in `slot`, and the window's uses of it."""
        tracked = self.ranges.pop(slot, None)
        if tracked is None:
            return
        first, blocks = tracked.first_block, tracked.blocks
        lib.pump_window_destroy(self.window, first, blocks)
        self.first_block[slot] = -1
        self.slot[first : first + blocks] = -1
        self._gaps.setdefault(blocks, []).append(first)

    def _take(self, blocks: int) -> int | None:
        """Return `blocks` consecutive unused numbers: a gap of that size, else new ones."""
        gap = self._gaps.get(blocks)
        if gap:
            return gap.pop()
        if self.high + blocks > self.capacity:
            return self._take_merged(blocks)
        first, self.high = self.high, self.high + blocks
        return first

    def _take_merged(self, blocks: int) -> int | None:
        """Slow path of a full table: join neighbouring gaps, take the first that fits."""
        merged: list[list[int]] = []
        for first, size in sorted((f, n) for n, gaps in self._gaps.items() for f in gaps):
            if merged and merged[-1][0] + merged[-1][1] == first:
                merged[-1][1] += size
            else:
                merged.append([first, size])
        self._gaps = {}
        taken = None
        for first, size in merged:
            if taken is None and size >= blocks:
                taken = first
                first, size = first + blocks, size - blocks  # noqa: PLW2901
            if size:
                self._gaps.setdefault(size, []).append(first)
        return taken

    def set_state(self, blocks: NDArray[np.int64], state: int) -> None:
        """Move `blocks` to `state`; numbers that no range owns are passed over."""
        blocks = np.ascontiguousarray(blocks, np.int64)
        lib.pump_window_set(self.window, ffi.from_buffer("int64_t[]", blocks), len(blocks), state)

    def leavers(self, device: int, by: int, most: int) -> NDArray[np.int64]:
        """Return resident blocks of `device` in the order PUMP_BY_*, at most `most`.

        `most` is cut to 256; callers that need more call again after moving these.
        """
        blocks = np.empty(min(most, 256), np.int64)
        found = lib.pump_window_leavers(
            self.window, device, by, len(blocks), ffi.from_buffer("int64_t[]", blocks)
        )
        return blocks[:found]

    def occupied(self, device: int) -> int:
        """Return how many blocks take room on `device`, those on their way or in doubt included."""
        counts = self.counts[device]
        return int(counts[[ARRIVING, RESIDENT, LEAVING, DOUBTED]].sum())


def _pointer(array: NDArray[Any]) -> Any:
    """Return a C pointer to a contiguous array (kept alive by the caller)."""
    kind = "uint8_t *" if array.dtype == np.uint8 else "int64_t *"
    return ffi.cast(kind, array.ctypes.data)
