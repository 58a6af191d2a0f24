"""Compares pump's extents with the memory that the virtual GPU's kernels touch, by kernel.

DESIGN
  One run yields two independent records. The virtual driver writes the blocks of 2 MiB that each
  launch touches (gpu_events.py). Pump's recording contains the extents of each operation. The n-th
  launch of a kernel is the same launch in both records: threads may interleave launches differently
  in the two records, but rarely launches of one kernel.

  A block use is one block that one launch touches, or is predicted to touch. Only memory that pump
  converts counts; the driver logs only that memory.

  Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from gpu_events import BLOCK_BYTES, Event, Launch

from pump.trace import format as form
from pump.trace import records as rec

Launches = dict[str, list[frozenset[int]]]
"""The blocks of each launch, in order, by kernel."""


class Uses(NamedTuple):
    """Block uses of a kernel. `told`: in an extent of pump. `missed`: touched, but in no extent.
    `idle`: in an extent, but not touched."""

    launches: int = 0
    touched: int = 0
    told: int = 0
    missed: int = 0
    idle: int = 0

    @property
    def different(self) -> int:
        return self.missed + self.idle


def read_touches(events: Iterable[Event]) -> Launches:
    """Returns the blocks that each launch touched."""
    found: Launches = {}
    for event in events:
        if isinstance(event, Launch):
            found.setdefault(event.kernel, []).append(event.blocks)
    return found


def read_extents(rows: Iterable[rec.Record]) -> Launches:
    """Returns the blocks of recorded kernels' extents. Raises ValueError if events were lost."""
    names: dict[int, str] = {}
    bases: dict[tuple[int, int], int] = {}
    found: Launches = {}
    for row in rows:
        if isinstance(row, rec.Name):
            names[row.function] = row.name
        elif isinstance(row, rec.RangeRow):
            bases[row.slot, row.generation] = row.base
        elif isinstance(row, rec.Lost):
            raise ValueError(f"the recording lost {row.events} events")
        elif isinstance(row, rec.Operation) and row.kind == form.KERNEL:
            kernel = names.get(row.function, hex(row.function))
            found.setdefault(kernel, []).append(frozenset(_blocks(row, bases)))
    return found


def _blocks(row: rec.Operation, bases: Mapping[tuple[int, int], int]) -> Iterator[int]:
    for extent in row.extents:
        begin = bases[extent.slot, extent.generation] + extent.offset_bytes
        end = begin + extent.length_bytes
        if end > begin:  # else pump believes that the argument is unused
            yield from range(begin // BLOCK_BYTES, -(-end // BLOCK_BYTES))


def compare(touches: Launches, extents: Launches) -> dict[str, Uses]:
    """Returns the block uses of each kernel. Raises ValueError if the records are of two runs."""
    found = {}
    for kernel in sorted(touches.keys() | extents.keys()):
        launches = touches.get(kernel, []), extents.get(kernel, [])
        if len(launches[0]) != len(launches[1]):
            counts = f"{len(launches[0])} launches touch memory, {len(launches[1])} are recorded"
            raise ValueError(f"{kernel}: {counts}")
        pairs = list(zip(*launches, strict=True))
        found[kernel] = Uses(
            len(pairs),
            sum(len(touched) for touched, _ in pairs),
            sum(len(told) for _, told in pairs),
            sum(len(touched - told) for touched, told in pairs),
            sum(len(told - touched) for touched, told in pairs),
        )
    return found


def together(uses: Iterable[Uses]) -> Uses:
    """Returns the sums over several kernels."""
    return Uses(*map(sum, zip(Uses(), *uses, strict=True)))
