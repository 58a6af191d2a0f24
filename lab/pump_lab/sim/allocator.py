"""A best-fit caching allocator in one arena: addresses as a framework would hand them out.

Gaps are split and joined; a request that fits into no gap extends the arena. Pure.
"""

from __future__ import annotations

from bisect import bisect_left, insort

ROUND_BYTES = 512
"""As in PyTorch's caching allocator (c10/cuda, kMinBlockSize). Its segments may grow here
("expandable")."""


class BestFit:
    """Manages offsets in an arena that only grows."""

    def __init__(self) -> None:
        self._by_size: list[tuple[int, int]] = []  # (bytes, offset) of gaps
        self._by_offset: dict[int, int] = {}
        self._by_end: dict[int, int] = {}
        self.end = 0

    def allocate(self, length_bytes: int) -> int:
        """Returns the offset of the smallest gap that fits, the lowest among equal ones."""
        need = -(-length_bytes // ROUND_BYTES) * ROUND_BYTES
        place = bisect_left(self._by_size, (need, -1))
        if place < len(self._by_size):
            size, offset = self._by_size[place]
            self._take(offset)
            if size > need:
                self._keep(offset + need, size - need)
            return offset
        size = self._by_offset.get(self._by_end.get(self.end, -1), 0)
        offset = self.end - size
        if size:
            self._take(offset)
        self.end = offset + need
        return offset

    def free(self, offset: int, length_bytes: int) -> None:
        """Frees the space that `allocate(length_bytes)` returned."""
        size = -(-length_bytes // ROUND_BYTES) * ROUND_BYTES
        before = self._by_end.get(offset)
        after = self._by_offset.get(offset + size)
        if after is not None:
            self._take(offset + size)
            size += after
        if before is not None:
            size += self._by_offset[before]
            self._take(before)
            offset = before
        self._keep(offset, size)

    def gap(self, offset: int) -> tuple[int, int]:
        """Returns (offset, bytes) of the gap with `offset`. Raises KeyError outside gaps."""
        for size, first in self._by_size:
            if first <= offset < first + size:
                return first, size
        raise KeyError(offset)

    def _keep(self, offset: int, size: int) -> None:
        insort(self._by_size, (size, offset))
        self._by_offset[offset] = size
        self._by_end[offset + size] = offset

    def _take(self, offset: int) -> None:
        size = self._by_offset.pop(offset)
        del self._by_end[offset + size]
        del self._by_size[bisect_left(self._by_size, (size, offset))]
