"""Where allocations of recorded PyTorch lie: by learned lifetimes (SmartPool), and as they come.

After Zhang et al. (2019): with the lifetimes of one iteration known each allocation gets a place
before the next begins: the largest first, at the best offset, which is the smallest gap between
those that live at the same time. Beside it best fit as requests come (pump/sim/allocator.py),
PyTorch's own caching allocator as the traffic recorded it, and pump's pool: its C code, fed with
the same requests by tests/c/pool/pool_stress.c. Sizes are rounded to 512 bytes for the first two.

Lifetimes are known once iterations repeat, and what lives throughout, such as an optimizer's
state, has its place by then. `learned` is what is left to gain: the last iteration's allocations
placed around it.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness import ROOT, MeasurementError, Tools, compile_c
from study.extents_traffic import open_lines

TRAFFIC = ROOT / "benchmarks" / "data" / "pytorch_traffic"
ROUND_BYTES = 512
LARGE_BYTES = 1 << 20
"""As of the pool (shim/memory/pool_sizes.h)."""
BLOCK_BYTES = 2 << 20
REPLAY_SECONDS_MAX = 120

Interval = tuple[int, int]
"""Events [first, end)."""


@dataclass(frozen=True)
class Item:
    """An allocation. lives: its lifetimes in an iteration, two if it lives across its end. number:
    of the request that made it."""

    length_bytes: int
    lives: tuple[Interval, ...]
    number: int = field(default=-1, compare=False)

    def meets(self, other: Item) -> bool:
        """Whether both live at one time."""
        return any(a < d and c < b for a, b in self.lives for c, d in other.lives)


Placed = list[tuple[int, Item]]
"""Addresses of items."""


@dataclass(frozen=True)
class Traffic:
    """A recording. requests: in order, number and bytes, 0 for its free. marks: requests before
    each iteration. reserved_bytes: most of the allocator's segments; 0: it has none."""

    requests: list[tuple[int, int]]
    marks: list[int]
    reserved_bytes: int

    def peak_bytes(self) -> int:
        """Most bytes requested at once."""
        live: dict[int, int] = {}
        held = most = 0
        for number, length in self.requests:
            held += length - live.pop(number, 0)
            live[number] = length
            most = max(most, held)
        return most


def recorded(path: Path) -> Traffic:
    """The traffic of a file."""
    with open_lines(path) as lines:
        return traffic(lines)


def traffic(lines: Iterable[str]) -> Traffic:
    """Blocks of PyTorch's allocator (B), or driver allocations where it hands out none."""
    rows = [line.split() for line in lines if line[0] in "ABFI"]
    blocks = any(row[0] == "B" for row in rows)
    live: dict[str, tuple[int, int]] = {}
    requests: list[tuple[int, int]] = []
    marks: list[int] = []
    segments: dict[str, int] = {}
    reserved = 0
    for kind, address, *rest in rows:
        if kind == "I":
            marks.append(len(requests))
            continue
        if kind in "AF":
            segments[address] = int(rest[0]) if kind == "A" else 0
            reserved = max(reserved, sum(segments.values()))
        if (kind == "B") != blocks:
            continue
        if address in live:  # freed, or handed out again: the free was not recorded
            requests.append((live.pop(address)[0], 0))
        if kind != "F" and int(rest[0]) > 0:
            number = len(requests)
            live[address] = number, int(rest[0])
            requests.append((number, int(rest[0])))
    return Traffic(requests, marks, reserved if blocks else 0)


def last_iteration(found: Traffic) -> list[Item]:
    """What lives in the last whole iteration, as it repeats: an allocation that lives when it ends
    is the one of the same size that lived when it began and was freed."""
    begin, end = found.marks[-2:]
    since: dict[int, tuple[int, int]] = {}
    items: list[Item] = []
    freed: dict[int, list[tuple[int, int]]] = {}
    for at, (number, length) in enumerate(found.requests[:end]):
        if length:
            since[number] = max(at, begin), rounded(length)
            continue
        first, size = since.pop(number)
        if at < begin:
            continue
        if number < begin:
            freed.setdefault(size, []).append((at, number))
        else:
            items.append(Item(size, ((first, at),), number))
    for number, (first, size) in since.items():
        before = freed.get(size) if number >= begin else None
        lives = ((begin, before.pop(0)[0]), (first, end)) if before else ((first, end),)
        items.append(Item(size, lives, number))
    for size, ends in freed.items():
        items += (Item(size, ((begin, at),), number) for at, number in ends)
    return items


def rounded(length_bytes: int) -> int:
    """In whole multiples of ROUND_BYTES."""
    return -(-length_bytes // ROUND_BYTES) * ROUND_BYTES


def load(items: Iterable[Item]) -> int:
    """Most bytes that live at once: no placement needs less."""
    changes: dict[int, int] = {}
    for item in items:
        for first, end in item.lives:
            changes[first] = changes.get(first, 0) + item.length_bytes
            changes[end] = changes.get(end, 0) - item.length_bytes
    held = most = 0
    for _, change in sorted(changes.items()):
        held += change
        most = max(most, held)
    return most


def placed(items: Sequence[Item]) -> list[int]:
    """Offsets by learned lifetimes: the largest first, each in the smallest gap that suffices."""
    order = sorted(range(len(items)), key=lambda i: (-items[i].length_bytes, items[i].lives))
    offsets = [0] * len(items)
    before: list[int] = []
    for one in order:
        taken = sorted((offsets[i], items[i].length_bytes) for i in before
                       if items[i].meets(items[one]))  # fmt: skip
        offsets[one] = best_offset(taken, items[one].length_bytes)
        before.append(one)
    return offsets


def best_offset(taken: Iterable[Interval], need: int) -> int:
    """In the smallest gap between (offset, bytes) in order, or behind them all."""
    end, best, least = 0, -1, 0
    for offset, length in taken:
        gap = offset - end
        if gap >= need and (best < 0 or gap < least):
            best, least = end, gap
        end = max(end, offset + length)
    return end if best < 0 else best


def height(items: Sequence[Item], offsets: Sequence[int]) -> int:
    """Bytes that a placement needs."""
    ends = (offset + item.length_bytes for offset, item in zip(offsets, items, strict=True))
    return max(ends, default=0)


@dataclass(frozen=True)
class Places:
    """Where an allocator put requests: addresses by number. segments: (address, bytes) of all that
    it reserves."""

    addresses: Mapping[int, int]
    segments: Sequence[Interval]

    def reserved_bytes(self) -> int:
        """Bytes of all segments."""
        return sum(length for _, length in self.segments)


def best_fit(found: Traffic) -> Places:
    """In one segment that only grows, each in the smallest gap as it comes."""
    from pump.sim.allocator import BestFit

    arena = BestFit()
    addresses: dict[int, int] = {}
    live: dict[int, int] = {}
    for number, length in found.requests:
        if length:
            addresses[number], live[number] = arena.allocate(length), length
        else:
            arena.free(addresses[number], live.pop(number))
    return Places(addresses, [(0, arena.end)])


def in_pool(found: Traffic, tools: Tools) -> Places:
    """Of pump's pool, for the requests on one stream. Raises as compile_c does, MeasurementError
    where the pool's program fails."""
    given = "\n".join(f"{number} {length}" for number, length in found.requests)
    try:
        done = subprocess.run(
            [pool_program(tools), "replay", "0", "0"],
            input=given,
            capture_output=True,
            text=True,
            timeout=REPLAY_SECONDS_MAX,
            check=True,
        )
    except (subprocess.SubprocessError, OSError) as error:
        raise MeasurementError(f"the pool does not replay the recording: {error}") from None
    rows = [line.split() for line in done.stdout.splitlines()]
    pairs = [(row[0], int(row[1]), int(row[2])) for row in rows if row[0] in ("at", "segment")]
    return Places(
        {number: address for kind, number, address in pairs if kind == "at"},
        [(address, length) for kind, address, length in pairs if kind == "segment"],
    )


def as_placed(items: Iterable[Item], places: Places) -> Placed:
    """The items where they were."""
    return [(places.addresses[item.number], item) for item in items]


def learned(found: Traffic, places: Places) -> Placed:
    """The last iteration's allocations, where large ones that it makes or frees get places by
    lifetimes among the segments, and all else stays where it is. Segments in which nothing stays
    are left out, the longest first, as far as the others have room. Raises MeasurementError if all
    of them have not."""
    begin, end = found.marks[-2:]
    fixed: list[Item] = []
    moving: list[Item] = []
    for item in sorted(last_iteration(found), key=lambda one: (-one.length_bytes, one.lives)):
        stays = item.length_bytes < LARGE_BYTES or item.lives == ((begin, end),)
        (fixed if stays else moving).append(item)
    stay = as_placed(fixed, places)
    held = {segment: _inside(stay, segment) for segment in places.segments}
    best = _around(held, moving)
    if best is None:
        raise MeasurementError("the segments have no room for all of the iteration")
    for segment in sorted((one for one in held if not held[one]), key=lambda one: -one[1]):
        rest = {one: inside for one, inside in held.items() if one != segment}
        fewer = _around(rest, moving)
        if fewer is not None:
            held, best = rest, fewer
    return best


def _inside(placed: Placed, segment: Interval) -> Placed:
    base, length = segment
    return [one for one in placed if base <= one[0] < base + length]


def _around(held: Mapping[Interval, Placed], moving: Iterable[Item]) -> Placed | None:
    """Places for all that moves around what is held, in that order: the smallest gap of a segment
    in use, or else of another; or None."""
    inside = {segment: list(one) for segment, one in held.items()}
    for item in moving:
        gaps = (
            (not one, *gap, segment)
            for segment, one in inside.items()
            for gap in _gaps(segment, one, item)
        )
        best = min(gaps, default=None)
        if best is None:
            return None
        inside[best[-1]].append((best[-2], item))
    return [one for placed in inside.values() for one in placed]


def _gaps(segment: Interval, placed: Placed, item: Item) -> Iterator[Interval]:
    """Bytes and address of each gap that suffices."""
    start, end = segment[0], sum(segment)
    if segment[1] < item.length_bytes:
        return
    met = sorted((address, one.length_bytes) for address, one in placed if one.meets(item))
    for address, taken in (*met, (end, 0)):
        if address - start >= item.length_bytes:
            yield address - start, start
        start = max(start, address + taken)


def in_use(placed: Placed, places: Places) -> tuple[int, int]:
    """Bytes of the segments that items lie in, and of their 2 MiB blocks."""
    blocks = {
        block
        for address, item in placed
        for block in range(
            address // BLOCK_BYTES, (address + item.length_bytes - 1) // BLOCK_BYTES + 1
        )
    }
    used = (segment[1] for segment in places.segments if _inside(placed, segment))
    return sum(used), len(blocks) * BLOCK_BYTES


def pool_program(tools: Tools) -> Path:
    """pool_stress, without sanitizers."""
    shim, tests = tools.root / "shim", tools.root / "tests" / "c"
    names = "bins", "blocks", "dead", "period", "places", "segments", "serve", "streams"
    sources = [shim / "pool" / f"pool_{name}.c" for name in names]
    sources += [shim / "pool" / f"{name}.c" for name in ("driver_pools", "stream_ordered")]
    sources += [shim / "memory" / "plain.c", shim / "memory" / "range_table.c"]
    sources += [shim / "hooks" / "pool.c", tests / "pool" / "pool_stress.c"]
    places = (f"-I{place}" for place in (tests, tests / "execute"))
    return compile_c(tools, "pool_stress", sources, *places, "-pthread")
