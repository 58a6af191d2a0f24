"""Reads recorded driver traffic of PyTorch as the shim would have seen it, with the truth.

DESIGN
  A traffic file (data/pytorch_traffic/README.md) has one event a line, in program order. An
  operator is the part between O and E. Operators are not nested, and every launch belongs to
  exactly one. This module derives the shim's reports from the lines A, F, C, M, K, L.

    `range`      A of at least 2 MiB (smaller ones stay device memory), rounded up to 2 MiB.
    `pointer`    An 8-byte word of the parameters, at a multiple of 8, that points into a live
                 range. It is a multiple of 4. Its low 32 bits are in [2^16, 0xffff0000), or it is a
                 range's base.
    `signature`  Hash of function, grid, block and all parameter bytes with pointers masked.

  The truth about a launch, which the learner never sees, comes from the lines E and B. A pointer
  reaches:

    1.  To the end of the operator's tensor that it points into. If there are several, the tensor
        that begins there counts. Convolutions work sample by sample: They reach at most one batch
        stride.
    2.  Else to the end of the allocator's block, if the block was handed out inside the operator
        (work space).
    3.  Else no bytes: the word is an old pointer.

  A reduction's work space has a second truth: only the bytes that the kernel can address, instead
  of all bytes that it was handed (extents_scratch.py).

  In a multi_tensor_apply table, slots that no block of the launch works on are old pointers,
  wherever they point, because one operator makes several such launches.

  An allocator that reports its blocks would have reported the lines B up to a launch. Each pointer
  therefore also has the end of its block, or the information that it points into none.
"""

from __future__ import annotations

import bisect
import gzip
import hashlib
import lzma
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
from study.extents_scratch import scratch

BLOCK_BYTES = 2 << 20
CONVERTED_BYTES = 2 << 20
"""Allocations of at least this size are converted, in whole blocks."""


class Pointer(NamedTuple):
    """A word of a launch that points into a live range; `argument` in bytes. `block_end`: the end
    of the allocator's block that it points into, from the range's base; 0 if there is none."""

    value: int
    argument: int
    slot: int
    generation: int
    offset_bytes: int
    block_end: int


@dataclass(slots=True)
class Launch:
    """A launch as the shim reports it. `truth`: the bytes that each pointer reaches, in order; 0:
    none. `tensor`: whether that is the operator's tensor, or an old pointer; else it is work space.
    `addressed`: like `truth`, but only the part of a reduction's scratch that its kernel can
    address. `scratch`: these buffers as (bytes handed, bytes addressed)."""

    iteration: int
    function: int
    name: str
    grid: tuple[int, int, int]
    threads: int
    parameters: bytes
    pointers: list[Pointer]
    signature: int
    work_space: dict[int, int]
    operator: str = ""
    truth: list[int] = field(default_factory=list)
    tensor: list[bool] = field(default_factory=list)
    addressed: list[int] = field(default_factory=list)
    scratch: list[tuple[int, int]] = field(default_factory=list)


class Range(NamedTuple):
    """A range appears in a slot."""

    slot: int
    generation: int
    base: int
    length_bytes: int


class Gone(NamedTuple):
    """The range in a slot is freed."""

    slot: int


class Name(NamedTuple):
    """A kernel's mangled name."""

    function: int
    name: str


class Bytes(NamedTuple):
    """A copy or memset touches exactly these bytes of a range."""

    slot: int
    generation: int
    offset_bytes: int
    length_bytes: int


Event = Range | Gone | Name | Bytes | Launch


class Live:
    """Live spans by address: ranges, or blocks of an allocator."""

    def __init__(self) -> None:
        self.bases: list[int] = []
        self.spans: dict[int, tuple[int, int]] = {}

    def add(self, base: int, length: int, tag: int) -> None:
        if base not in self.spans:
            bisect.insort(self.bases, base)
        self.spans[base] = (length, tag)

    def remove(self, base: int) -> int | None:
        """Removes the span; returns its tag, or None if there was none."""
        found = self.spans.pop(base, None)
        if found is None:
            return None
        del self.bases[bisect.bisect_left(self.bases, base)]
        return found[1]

    def at(self, address: int) -> tuple[int, int, int] | None:
        """Returns base, length and tag of the span that contains the address, or None."""
        place = bisect.bisect_right(self.bases, address) - 1
        if place < 0:
            return None
        base = self.bases[place]
        length, tag = self.spans[base]
        return (base, length, tag) if address < base + length else None


class Reader:
    """Turns lines into events. Raises ValueError for an invalid line."""

    def __init__(self, *, samples: bool = True) -> None:
        self.samples = samples
        self.ranges = Live()
        self.blocks = Live()
        self.generations: dict[int, int] = {}
        self.free_slots: list[int] = []
        self.names: dict[int, str] = {}
        self.iteration = -1
        self.operator = 0
        self.inside = False
        self.launches: list[Launch] = []

    def read(self, lines: Iterator[str]) -> Iterator[Event]:
        for number, line in enumerate(lines, 1):
            words = line.split()
            try:
                yield from self.line(words)
            except (ValueError, IndexError, KeyError) as error:
                raise ValueError(f"line {number} is no traffic: {line[:60]!r} ({error})") from None

    def line(self, words: list[str]) -> Iterator[Event]:
        kind = words[0]
        if kind == "A":
            yield from self.allocate(int(words[1], 16), int(words[2]))
        elif kind == "F":
            slot = self.ranges.remove(int(words[1], 16))
            if slot is not None:
                self.free_slots.append(slot)
                yield Gone(slot)
        elif kind == "C":
            yield from self.touched(int(words[1], 16), int(words[3]))
            yield from self.touched(int(words[2], 16), int(words[3]))
        elif kind == "M":
            yield from self.touched(int(words[1], 16), int(words[2]))
        elif kind == "K":
            self.names[int(words[1])] = words[2]
            yield Name(int(words[1]) + 1, words[2])
        elif kind == "L":
            launch = self.launch(words)
            self.launches.append(launch)
            yield launch
        else:
            self.truth(words)

    def truth(self, words: list[str]) -> None:
        """Reads a line that the shim does not see."""
        kind = words[0]
        if kind == "B":
            base, length = int(words[1], 16), int(words[2])
            if length > 0:
                self.blocks.add(base, length, self.operator if self.inside else 0)
            else:
                self.blocks.remove(base)
        elif kind == "O":
            self.operator += 1
            self.inside = True
        elif kind == "E":
            self.end(words[1], words[2:])
        elif kind == "I":
            self.iteration = int(words[1])
        else:
            raise ValueError(f"unknown kind {kind!r}")

    def allocate(self, base: int, length: int) -> Iterator[Event]:
        if length < CONVERTED_BYTES:
            return
        slot = self.free_slots.pop() if self.free_slots else len(self.generations)
        generation = self.generations[slot] = self.generations.get(slot, 0) + 1
        length = -(-length // BLOCK_BYTES) * BLOCK_BYTES
        self.ranges.add(base, length, slot)
        yield Range(slot, generation, base, length)

    def touched(self, address: int, length: int) -> Iterator[Event]:
        found = self.ranges.at(address)
        if found is not None:
            base, _, slot = found
            yield Bytes(slot, self.generations[slot], address - base, length)

    def launch(self, words: list[str]) -> Launch:
        function = int(words[1])
        grid = (int(words[2]), int(words[3]), int(words[4]))
        parameters = bytes.fromhex(words[6]) if len(words) > 6 else b""
        pointers: dict[int, Pointer] = {}
        masked = bytearray(parameters)
        for argument, value in self.candidates(parameters):
            if value not in pointers:
                found = self.pointer(value, argument)
                if found is None:
                    continue
                pointers[value] = found
            masked[argument : argument + 8] = bytes(8)
        digest = hashlib.blake2b(repr(words[1:6]).encode() + masked, digest_size=8).digest()
        return Launch(
            self.iteration,
            function + 1,
            self.names[function],
            grid,
            int(words[5]),
            parameters,
            list(pointers.values()),
            int.from_bytes(digest, "little"),
            {value: end for value in pointers if (end := self.work_space(value))},
        )

    def work_space(self, value: int) -> int:
        """Returns the end of the block around `value` if this operator was handed it, else 0."""
        block = self.blocks.at(value)
        return block[0] + block[1] if block is not None and block[2] == self.operator else 0

    def candidates(self, parameters: bytes) -> Iterator[tuple[int, int]]:
        """Yields position and value of words between the lowest and the highest live address."""
        if not self.ranges.bases:
            return
        low = self.ranges.bases[0]
        last = self.ranges.bases[-1]
        high = last + self.ranges.spans[last][0]
        values = np.frombuffer(parameters[: len(parameters) // 8 * 8], dtype="<u8")
        for place in np.flatnonzero((values >= low) & (values < high)):
            yield int(place) * 8, int(values[place])

    def pointer(self, value: int, argument: int) -> Pointer | None:
        found = self.ranges.at(value)
        if found is None or value % 4 != 0:
            return None
        base, _, slot = found
        if not 1 << 16 <= value & 0xFFFFFFFF < 0xFFFF0000 and value != base:
            return None
        block = self.blocks.at(value)
        end = block[0] + block[1] - base if block is not None else 0
        return Pointer(value, argument, slot, self.generations[slot], value - base, end)

    def end(self, operator: str, tensors: list[str]) -> None:
        """Ends the operator and sets the truth of its launches."""
        spans = [
            (int(base, 16), int(length), int(stride))
            for base, length, stride in (tensor.split(",") for tensor in tensors)
        ]
        sampled = self.samples and "convolution" in operator
        for launch in self.launches:
            launch.operator = operator
            unused = unused_slots(launch)
            for p in launch.pointers:
                used = reach(p.value, spans, sampled) if p.value not in unused else 0
                taken = max(0, launch.work_space.get(p.value, 0) - p.value)
                tensor = used > 0 or taken == 0 or p.value in unused
                launch.truth.append(used if tensor else taken)
                launch.tensor.append(tensor)
                found = None if tensor else scratch_of(launch, taken)
                launch.addressed.append(found or launch.truth[-1])
                if found:
                    launch.scratch.append((taken, found))
        self.launches = []
        self.inside = False


def scratch_of(launch: Launch, taken_bytes: int) -> int | None:
    """Returns the bytes of such a buffer that a reduction's launch can address, or None."""
    found = scratch(launch.name, launch.parameters, launch.grid, launch.threads, taken_bytes)
    return found.addressed_bytes if found else None


def reach(value: int, spans: list[tuple[int, int, int]], sampled: bool) -> int:
    """Returns the bytes from `value` to the end of the tensor that it points into, or 0."""
    best = (False, 0)
    for base, length, stride in spans:
        if base <= value < base + length:
            end = base + length
            if sampled and stride:
                end = min(end, value + stride)
            best = max(best, (base == value, end))
    return best[1] - value if best[1] else 0


_MULTI = re.compile(
    r"(TensorListMetadata|TensorListScalarListMetadata|FusedOptimizerTensorListMetadata)"
    r"I([a-z]?)Li(\d)E"
)
_SLOTS = {"TensorListScalarListMetadata": (96, 64, 48, 36, 30)}
_SLOTS_ELSE = (110, 64, 48, 36, 30)


def unused_slots(launch: Launch) -> set[int]:
    """Returns the values that are only in slots of a multi-tensor table without work."""
    found = _MULTI.search(launch.name)
    if found is None or "multi_tensor_apply" not in launch.name:
        return set()
    kind, scalar, depth = found[1], found[2], int(found[3])
    slots = _SLOTS.get(kind, _SLOTS_ELSE)[depth - 1]
    addresses = 8 * slots * depth
    extra = {"f": 4, "d": 8, "l": 8}.get(scalar, 0)
    extra = 8 if kind.startswith("Fused") else extra
    blocks = addresses + 8 * slots + extra * slots
    working = set(launch.parameters[blocks : blocks + min(launch.grid[0], 320)])
    table_end = blocks + 320 + 4 * 320 + 4
    used = set()
    for argument in range(0, len(launch.parameters) - 7, 8):
        behind = argument - addresses - 8 * slots
        step = kind.startswith("Fused") and 0 <= behind < 8 * slots and behind // 8 in working
        in_table = argument < addresses and argument // 8 % slots in working
        if in_table or step or argument >= table_end:
            used.add(int.from_bytes(launch.parameters[argument : argument + 8], "little"))
    return {pointer.value for pointer in launch.pointers} - used


def open_lines(path: Path) -> IO[str]:
    """Opens a traffic file: plain, .gz or .xz. Raises OSError."""
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8")
    if path.suffix == ".xz":
        return lzma.open(path, "rt", encoding="utf-8")
    return path.open(encoding="utf-8")


def read_traffic(lines: Iterator[str], *, samples: bool = True) -> list[Event]:
    """Returns all events, launches with their truth. `samples`: a convolution's launch reaches one
    sample of the operator's tensor instead of all of it. Raises ValueError for an invalid line."""
    return list(Reader(samples=samples).read(lines))
