"""Placement of recorded PyTorch allocations: by learned lifetimes (SmartPool), and as requested.

After Zhang et al. (2019): with the lifetimes of one iteration known, each allocation gets an offset
before the next begins. The largest allocation is first, in the smallest gap between allocations
that live at the same time. The alternatives are best fit in the order of requests
(pump_lab.sim.allocator), PyTorch's own caching allocator as recorded in the traffic, and pump's
pool. The pool is its C code, fed with the same requests by tests/c/pool/pool_stress.c. Sizes are
rounded to 512 bytes for placement by lifetimes and for best fit.

The pool also places by lifetimes (shim/pool/pool_cycle.c). It places the requests that iterations
repeat around lasting allocations, in the segments that exist.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness import ROOT, MeasurementError, Tools, compile_c
from study.extents_traffic import open_lines

TRAFFIC = ROOT / "lab" / "bench" / "data" / "pytorch_traffic"
ROUND_BYTES = 512
REPLAY_SECONDS_MAX = 120
END_OF_ITERATION = "65536 0"
"""A line for pool_stress that ends an iteration."""

Interval = tuple[int, int]
"""Events [first, end)."""


@dataclass(frozen=True)
class Item:
    """An allocation. `lives`: its lifetimes in an iteration, two if it lives across its end."""

    length_bytes: int
    lives: tuple[Interval, ...]

    def meets(self, other: Item) -> bool:
        """Returns whether both live at some common time."""
        return any(a < d and c < b for a, b in self.lives for c, d in other.lives)


@dataclass(frozen=True)
class Traffic:
    """A recording. `requests`: number and bytes, in order; 0 bytes for a free. `marks`: number of
    requests before each iteration. `reserved_bytes`: the most in the allocator's segments; 0 if
    there are none."""

    requests: list[tuple[int, int]]
    marks: list[int]
    reserved_bytes: int

    def peak_bytes(self) -> int:
        """Returns the most bytes requested at once."""
        live: dict[int, int] = {}
        held = most = 0
        for number, length in self.requests:
            held += length - live.pop(number, 0)
            live[number] = length
            most = max(most, held)
        return most


def recorded(path: Path) -> Traffic:
    """Reads the traffic of a file."""
    with open_lines(path) as lines:
        return traffic(lines)


def traffic(lines: Iterable[str]) -> Traffic:
    """Parses blocks of PyTorch's allocator (B), or driver allocations if there are no blocks."""
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
        if address in live:  # freed, or handed out again without a recorded free
            requests.append((live.pop(address)[0], 0))
        if kind != "F" and int(rest[0]) > 0:
            number = len(requests)
            live[address] = number, int(rest[0])
            requests.append((number, int(rest[0])))
    return Traffic(requests, marks, reserved if blocks else 0)


def last_iteration(found: Traffic) -> list[Item]:
    """Returns the allocations that live in the last whole iteration, as it repeats. An allocation
    that lives at its end continues as the one of the same size that lived at its start and was
    freed."""
    begin, end = found.marks[-2:]
    since: dict[int, tuple[int, int]] = {}
    items: list[Item] = []
    freed: dict[int, list[int]] = {}
    for at, (number, length) in enumerate(found.requests[:end]):
        if length:
            since[number] = max(at, begin), rounded(length)
            continue
        first, size = since.pop(number)
        if at < begin:
            continue
        if number < begin:
            freed.setdefault(size, []).append(at)
        else:
            items.append(Item(size, ((first, at),)))
    for number, (first, size) in since.items():
        before = freed.get(size) if number >= begin else None
        lives = ((begin, before.pop(0)), (first, end)) if before else ((first, end),)
        items.append(Item(size, lives))
    items += (Item(size, ((begin, at),)) for size, ends in freed.items() for at in ends)
    return items


def rounded(length_bytes: int) -> int:
    """Rounds up to a multiple of ROUND_BYTES."""
    return -(-length_bytes // ROUND_BYTES) * ROUND_BYTES


def load(items: Iterable[Item]) -> int:
    """Returns the most bytes that live at once: no placement needs less."""
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
    """Returns offsets by learned lifetimes: the largest first, each in the smallest fitting gap."""
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
    """Returns the offset of the smallest fitting gap between (offset, bytes), or the end of all."""
    end, best, least = 0, -1, 0
    for offset, length in taken:
        gap = offset - end
        if gap >= need and (best < 0 or gap < least):
            best, least = end, gap
        end = max(end, offset + length)
    return end if best < 0 else best


def height(items: Sequence[Item], offsets: Sequence[int]) -> int:
    """Returns the bytes that a placement needs."""
    ends = (offset + item.length_bytes for offset, item in zip(offsets, items, strict=True))
    return max(ends, default=0)


def best_fit(found: Traffic) -> int:
    """Returns the bytes that best fit needs for the requests in their order."""
    from pump_lab.sim.allocator import BestFit

    arena = BestFit()
    live: dict[int, tuple[int, int]] = {}
    for number, length in found.requests:
        if length:
            live[number] = arena.allocate(length), length
        else:
            arena.free(*live.pop(number))
    return arena.end


@dataclass(frozen=True)
class PoolBytes:
    """Bytes that pump's pool reserves: at most, and at the peak of the last iteration."""

    most: int
    placed: int


def pool_bytes(found: Traffic, tools: Tools) -> PoolBytes:
    """Returns the pool's bytes for the requests, on one stream, when memory is slightly short.
    Raises compile_c's errors, and MeasurementError if the pool's program fails."""
    lines = [f"{number} {length}" for number, length in found.requests]
    for mark in reversed(found.marks):
        lines.insert(mark, END_OF_ITERATION)
    try:
        done = subprocess.run(
            [pool_program(tools), "replay", "0", "0"],
            input="\n".join(lines),
            capture_output=True,
            text=True,
            timeout=REPLAY_SECONDS_MAX,
            check=True,
        )
    except (subprocess.SubprocessError, OSError) as error:
        raise MeasurementError(f"the pool does not replay the recording: {error}") from None
    *_, placed, most = (int(line.split()[-1]) for line in done.stdout.splitlines())
    return PoolBytes(most, placed)


def pool_program(tools: Tools) -> Path:
    """Builds pool_stress, without sanitizers."""
    shim, tests = tools.root / "shim", tools.root / "tests" / "c"
    names = "bins", "blocks", "dead", "cycle", "places", "segments", "serve", "streams"
    sources = [shim / "pool" / f"pool_{name}.c" for name in names]
    sources += [shim / "pool" / f"{name}.c" for name in ("driver_pools", "stream_ordered")]
    sources += [shim / "memory" / "plain.c", shim / "memory" / "range_table.c"]
    sources += [shim / "hooks" / "pool.c", tests / "pool" / "pool_stress.c"]
    places = (f"-I{place}" for place in (tests, tests / "execute"))
    return compile_c(tools, "pool_stress", sources, *places, "-pthread")
