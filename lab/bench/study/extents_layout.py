"""Lays out the tensors of recorded traffic as another allocator would.

DESIGN
  The learner must not depend on the one recorded layout. So a model of another allocator hands out
  the blocks again that PyTorch's allocator handed out and took back (lines B), in the same order
  and size. Every address in the traffic is replaced by the new address of its block. That concerns
  copies, tensors, and each word of a launch's parameters that points into a block that is or was
  live. Old pointers are included, as far as the filter of pointers passes them. If tensors are
  separate allocations (no lines B), those are the blocks.

    `native`      PyTorch's own rules. Segments have 2 MiB for blocks up to 1 MiB, 20 MiB for blocks
                  below 10 MiB, else whole 2 MiB. Best fit; blocks above 1 MiB keep remainders up to
                  1 MiB.
    `first_fit`   The same, lowest address first.
    `large`       Segments of at least 64 MiB, best fit.
    `arena`       One segment of 24 GiB for everything, best fit, always split.
"""

from __future__ import annotations

import bisect
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

MIB = 1 << 20
LAYOUTS = ("native", "first_fit", "large", "arena")
ARENA_BYTES = 24 << 30
_FIRST_ADDRESS = 0x7A0000000000


@dataclass(slots=True)
class Block:
    """A piece of a segment. `before`, `after`: addresses of its neighbours, or 0."""

    length: int
    pool: str
    free: bool = True
    before: int = 0
    after: int = 0


class Allocator:
    """Hands out blocks of segments; `segments` collects (base, length) of new ones."""

    def __init__(self, layout: str, seed: int) -> None:
        self.layout = layout
        self.random = random.Random(seed)
        self.blocks: dict[int, Block] = {}
        self.free: set[int] = set()
        self.segments: list[tuple[int, int]] = []
        self.next = _FIRST_ADDRESS + self.random.randrange(1 << 12) * 2 * MIB

    def hand_out(self, length: int) -> int:
        length = max(512, -(-length // 512) * 512)
        pool = "one" if self.layout == "arena" else "small" if length <= MIB else "large"
        fitting = [
            (0 if self.layout == "first_fit" else block.length, address)
            for address in self.free
            if (block := self.blocks[address]).pool == pool and block.length >= length
        ]
        address = min(fitting)[1] if fitting else self.segment(pool, length)
        block = self.blocks[address]
        rest = block.length - length
        if rest > MIB if pool == "large" else rest >= 512:
            behind = address + length
            self.blocks[behind] = Block(rest, pool, True, address, block.after)
            if block.after:
                self.blocks[block.after].before = behind
            block.after, block.length = behind, length
            self.free.add(behind)
        block.free = False
        self.free.discard(address)
        return address

    def segment(self, pool: str, length: int) -> int:
        whole = -(-length // (2 * MIB)) * 2 * MIB
        if pool == "one":
            size = max(ARENA_BYTES, whole)
        elif pool == "small":
            size = 2 * MIB
        elif self.layout == "large":
            size = max(64 * MIB, whole)
        else:
            size = 20 * MIB if length < 10 * MIB else whole
        address = self.next
        self.next += size + self.random.randrange(8) * 2 * MIB
        self.segments.append((address, size))
        self.blocks[address] = Block(size, pool)
        self.free.add(address)
        return address

    def take_back(self, address: int) -> None:
        block = self.blocks[address]
        block.free = True
        self.free.add(address)
        if block.after and self.blocks[block.after].free:
            self.merge(address)
        if block.before and self.blocks[block.before].free:
            self.merge(block.before)

    def merge(self, address: int) -> None:
        """Joins a free block with the free block after it."""
        block = self.blocks[address]
        behind = self.blocks.pop(block.after)
        self.free.discard(block.after)
        block.length += behind.length
        block.after = behind.after
        if behind.after:
            self.blocks[behind.after].before = address


class Moved:
    """The new address of each block that is or was live."""

    def __init__(self) -> None:
        self.olds: list[int] = []
        self.found: dict[int, tuple[int, int, bool]] = {}

    def add(self, old: int, length: int, new: int) -> None:
        """Adds a block, and forgets older blocks at its addresses."""
        place = bisect.bisect_left(self.olds, old)
        while place < len(self.olds) and self.olds[place] < old + length:
            del self.found[self.olds.pop(place)]
        self.olds.insert(place, old)
        self.found[old] = (length, new, True)

    def end(self, old: int) -> tuple[int, int] | None:
        """Marks a block as dead; returns its length and new address, or None if it was not live."""
        length, new, live = self.found.get(old, (0, 0, False))
        if not live:
            return None
        self.found[old] = (length, new, False)
        return length, new

    def at(self, address: int) -> int | None:
        place = bisect.bisect_right(self.olds, address) - 1
        if place < 0:
            return None
        length, new, _ = self.found[self.olds[place]]
        offset = address - self.olds[place]
        return new + offset if offset < length else None


def lay_out(lines: Iterable[str], layout: str, seed: int = 1) -> Iterator[str]:
    """Yields the traffic of `lines` under another allocator. Raises KeyError for a bad layout."""
    if layout not in LAYOUTS:
        raise KeyError(f"no layout {layout!r}; there are {', '.join(LAYOUTS)}")
    kept = list(lines)
    own = not any(line.startswith("B ") for line in kept)  # allocations are the blocks
    give, take = ("A", "F") if own else ("B", "B")
    allocator, moved = Allocator(layout, seed), Moved()
    concatenations: set[str] = set()
    for line in kept:
        words = line.split()
        kind = words[0]
        if kind == give and (own or int(words[2]) > 0):
            old, length = int(words[1], 16), int(words[2])
            new = allocator.hand_out(length)
            while allocator.segments:
                base, size = allocator.segments.pop(0)
                yield f"A {base:x} {size}"
            moved.add(old, length, new)
            yield f"B {new:x} {length}"
        elif kind == take:
            ended = moved.end(int(words[1], 16))
            if ended is not None:
                allocator.take_back(ended[1])
                yield f"B {ended[1]:x} -{ended[0]}"
        elif kind in ("A", "F"):
            continue
        else:
            if kind == "K" and "CatArrayBatchedCopy" in words[2]:
                concatenations.add(words[1])
            yield " ".join(_rewrite(words, moved, concatenations))


def _rewrite(words: list[str], moved: Moved, concatenations: set[str]) -> list[str]:
    kind = words[0]
    if kind in ("C", "M"):
        for place in (1, 2) if kind == "C" else (1,):
            new = moved.at(int(words[place], 16))
            words[place] = words[place] if new is None else f"{new:x}"
    elif kind == "E":
        for place in range(2, len(words)):
            base, _, rest = words[place].partition(",")
            new = moved.at(int(base, 16))
            words[place] = words[place] if new is None else f"{new:x},{rest}"
    elif kind == "L" and len(words) > 6:
        parameters = bytearray.fromhex(words[6])
        # After a concatenation's pointers come pairs of numbers that look like pointers.
        end = 8 + 8 * 128 if words[1] in concatenations else len(parameters) - 7
        for argument in range(0, min(end, len(parameters) - 7), 8):
            value = int.from_bytes(parameters[argument : argument + 8], "little")
            if 1 << 16 <= value & 0xFFFFFFFF < 0xFFFF0000:
                new = moved.at(value)
                if new is not None:
                    parameters[argument : argument + 8] = new.to_bytes(8, "little")
        words[6] = parameters.hex()
    return words
