"""Computes a program's floor from its recording: what an iteration certainly touches. Pure.

DESIGN
  For each kernel, a recording contains the ranges that its pointers are in. It does not contain
  whether the kernel reads or writes there, and its lengths are estimates. `access` lists the
  kernels whose accesses are known, with a letter for each pointer: r, u (updated) or w (overwritten
  whole). Each access reaches the end of the range, as in programs that allocate each tensor
  separately. For any other kernel only one thing is certain: afterwards each range that it points
  into may have new contents that appeared on the GPU without a transfer (floor.may_appear).
  Recordings contain the accesses of copies and memsets. If these write a part of a range, they
  count as not needing the old contents.

  The iteration is the shortest sequence of operations at the recording's end that repeats: the same
  kernels with the same pointers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from floor import BLOCK_BYTES, Touch, may_appear

from pump.trace import format as form
from pump.trace import records as rec

POINTER_BYTES = 8
POINTER, READ, WRITTEN, OVERWRITTEN = range(4)
"""Values of extent_access in docs/trace-format.md."""


class Place(NamedTuple):
    """The memory that one extent of an operation certainly names.

    `address`, `length_bytes`: the memory that a copy or memset reaches; for a kernel's pointer, the
    memory from there to the end of the range. `base`, `range_bytes`: of the range.
    """

    address: int
    length_bytes: int
    access: int
    argument: int
    base: int
    range_bytes: int


@dataclass(frozen=True)
class Launch:
    """An operation and its places in the address space. Equal launches repeat."""

    name: str
    places: tuple[Place, ...]

    def touches(self, access: Mapping[str, str]) -> list[Touch]:
        """Returns the touches that are certain for the operation."""
        known = access.get(self.name, "")
        parts: dict[str, set[int]] = {"r": set(), "u": set(), "w": set(), "?": set()}
        for place in self.places:
            number = place.argument // POINTER_BYTES
            word = {READ: "r", WRITTEN: "w", OVERWRITTEN: "w"}.get(place.access, "?")
            if place.access == POINTER and number < len(known):
                word = known[number]
            if word == "?":
                blocks = _whole_blocks(place.base, place.range_bytes)
            else:
                blocks = _whole_blocks(place.address, place.length_bytes)
            parts[word].update(blocks)
        updated = parts["u"] | (parts["r"] & parts["w"])
        certain = Touch(tuple(parts["r"] - updated), tuple(updated), tuple(parts["w"] - updated))
        found = [certain] if any((certain.reads, certain.updates, certain.overwrites)) else []
        return found + may_appear(parts["?"])


def touches_of(records: Iterable[rec.Record], access: Mapping[str, str]) -> tuple[list[Touch], int]:
    """Returns the touches and the number of operations of the last repeated iteration.

    Returns ([], 0) if nothing repeats. Operations before a loss of events are ignored.
    """
    launches = list(_launches(records))
    iteration = repeating(launches)
    touches = [touch for launch in iteration for touch in launch.touches(access)]
    return touches, len(iteration)


def repeating(launches: Sequence[Launch]) -> Sequence[Launch]:
    """Returns the iteration or (): the shortest sequence that ends the launches twice in a row, and
    contains every launch that occurs more than once in the later half."""
    numbers: dict[Launch, int] = {}
    words = [numbers.setdefault(launch, len(numbers)) for launch in launches]
    half = len(words) // 2
    often = {word for word, count in Counter(words[half:]).items() if count > 1}
    words.reverse()
    for period in range(1, half + 1):
        again = words[period] == words[0] and words[:period] == words[period : 2 * period]
        if again and often <= set(words[:period]):
            return launches[len(launches) - period :]
    return []


def _launches(records: Iterable[rec.Record]) -> Iterator[Launch]:
    """Returns operations that reach memory, without those before the last loss or resync."""
    found: list[Launch] = []
    live: dict[int, rec.RangeRow] = {}
    names: dict[int, str] = {}
    for record in records:
        match record:
            case rec.Name():
                names[record.function] = record.name
            case rec.Lost() | rec.Resync():
                found.clear()
            case rec.RangeRow():
                live.pop(record.slot, None)
                if record.kind != form.FREE:
                    live[record.slot] = record
            case rec.Operation() if record.kind != form.HINT and record.extents:
                found.append(_launch(record, live, names))
    return iter(found)


def _launch(
    record: rec.Operation, live: Mapping[int, rec.RangeRow], names: Mapping[int, str]
) -> Launch:
    places = []
    for extent in record.extents:
        range_ = live.get(extent.slot)
        if range_ is None or range_.generation != extent.generation:
            continue
        left = max(0, range_.length_bytes - extent.offset_bytes)
        length = left if extent.access == POINTER else min(left, extent.length_bytes)
        address = range_.base + extent.offset_bytes
        own = (extent.access, extent.argument, range_.base, range_.length_bytes)
        places.append(Place(address, length, *own))
    name = names.get(record.function, "") if record.kind == form.KERNEL else ""
    return Launch(name, tuple(places))


def _whole_blocks(address: int, length_bytes: int) -> range:
    """Returns the blocks that a part of the address space covers completely."""
    return range(-(-address // BLOCK_BYTES), (address + length_bytes) // BLOCK_BYTES)
