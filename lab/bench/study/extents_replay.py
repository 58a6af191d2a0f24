"""Replays recorded traffic to the extents learner and compares its beliefs with the truth.

A launch's score counts 2 MiB blocks: the blocks of all its believed extents against the blocks of
all its true extents. Scores of several launches are added up (micro average), so a launch counts in
proportion to the memory it touches.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from c_part import load
from study.extents_traffic import BLOCK_BYTES, Bytes, Event, Gone, Launch, Name, Pointer, Range

STEADY_FROM = 2
"""First iteration of the steady state: the third."""


def installed() -> tuple[Any, Any]:
    """Returns the learner of the pump that is installed here. Raises MissingFileError."""
    from pump.base import paths

    return load(Path(paths.library("libpump_core.so")), Path(paths.library("include/extents.h")))


@dataclass
class Score:
    """Number of blocks that were believed, true, and both; number of launches."""

    both: int = 0
    believed: int = 0
    true: int = 0
    launches: int = 0

    @property
    def precision(self) -> float:
        return self.both / self.believed if self.believed else 1.0

    @property
    def recall(self) -> float:
        return self.both / self.true if self.true else 1.0

    def __add__(self, other: Score) -> Score:
        return Score(
            self.both + other.both,
            self.believed + other.believed,
            self.true + other.true,
            self.launches + other.launches,
        )

    def __repr__(self) -> str:
        return f"{self.precision:.3f}/{self.recall:.3f}"


@dataclass
class Result:
    """Scores by iteration; blocks believed wrongly and blocks missed, by (name, argument)."""

    iterations: dict[int, Score] = field(default_factory=lambda: defaultdict(Score))
    wrong: Counter[tuple[str, int]] = field(default_factory=Counter)
    missed: Counter[tuple[str, int]] = field(default_factory=Counter)

    @property
    def first(self) -> Score:
        return self.iterations.get(0, Score())

    @property
    def steady(self) -> Score:
        scores = [s for i, s in self.iterations.items() if i >= STEADY_FROM]
        return sum(scores, Score())


def blocks(address: int, length: int) -> range:
    """Returns the numbers of the 2 MiB blocks that [address, address + length) touches."""
    if length <= 0:
        return range(0)
    return range(address // BLOCK_BYTES, (address + length - 1) // BLOCK_BYTES + 1)


UNIT_BYTES = 512
"""Unit in which the shim reports an allocator's blocks (PUMP_UNIT_BYTES)."""


class Learner:
    """One learner, which gets events as from a worker. `blocks`: the allocator reports its blocks,
    so the shim leaves out old pointers and reports where the other pointers' blocks end."""

    def __init__(self, ffi: Any, lib: Any, *, blocks: bool = False) -> None:
        self.ffi, self.lib, self.blocks = ffi, lib, blocks
        self.learner = ffi.gc(lib.pump_extents_new(), lib.pump_extents_delete)
        if not self.learner:
            raise MemoryError("no memory for a learner of extents")
        self.told: set[int] = set()

    def tell(self, event: Event) -> list[int]:
        """Feeds one event; returns a launch's believed lengths in bytes, else an empty list."""
        lib, learner = self.lib, self.learner
        if isinstance(event, Launch):
            return self.launch(event)
        if isinstance(event, Range):
            lib.pump_extents_segment(learner, *event)
        elif isinstance(event, Gone):
            lib.pump_extents_segment_gone(learner, event.slot)
        elif isinstance(event, Name):
            name = event.name.encode()
            lib.pump_extents_name(learner, event.function, name, len(name))
        elif isinstance(event, Bytes):
            lib.pump_extents_bytes(learner, *event)
        return []

    def launch(self, event: Launch) -> list[int]:
        if not event.pointers:
            return []
        if event.signature not in self.told:
            self.told.add(event.signature)
            self.lib.pump_extents_params(
                self.learner,
                event.function,
                event.signature,
                event.grid,
                (event.threads, 1, 1),
                event.parameters,
                len(event.parameters),
            )
        told = [p for p in event.pointers if p.block_end or not self.blocks]
        pointers = self.ffi.new(
            "struct pump_pointer[]",
            [
                (p.slot, p.generation, p.argument, self.units_to_end(p), p.offset_bytes)
                for p in told
            ],
        )
        lengths = self.ffi.new("uint64_t[]", len(told))
        self.lib.pump_extents_kernel(
            self.learner, event.function, event.signature, len(told), pointers, lengths
        )
        believed = {p.value: int(length) for p, length in zip(told, lengths, strict=True)}
        return [believed.get(p.value, 0) for p in event.pointers]

    def units_to_end(self, pointer: Pointer) -> int:
        """Returns the units to the end of the pointer's block, including its own unit."""
        if not self.blocks:
            return 0
        return pointer.block_end // UNIT_BYTES - pointer.offset_bytes // UNIT_BYTES


TENSORS, ADDRESSED, HANDED = "tensors", "addressed", "handed"
"""Kinds of truth. TENSORS: only operators' tensors. ADDRESSED: also operators' work space, but only
the part of a reduction's scratch that its kernel can address. HANDED: also all work space that an
operator was handed."""


def replay(events: Iterable[Event], learner: Learner, against: str = HANDED) -> Result:
    """Feeds all events and scores every launch against its truth."""
    result = Result()
    for event in events:
        lengths = learner.tell(event)
        if not isinstance(event, Launch):
            continue
        believed: set[int] = set()
        true: set[int] = set()
        truths = event.addressed if against == ADDRESSED else event.truth
        for pointer, length, truth, tensor in zip(
            event.pointers, lengths, truths, event.tensor, strict=True
        ):
            if against == TENSORS and not tensor:
                continue
            here, there = set(blocks(pointer.value, length)), set(blocks(pointer.value, truth))
            believed |= here
            true |= there
            key = (event.name, pointer.argument)
            if here - there:
                result.wrong[key] += len(here - there)
            if there - here:
                result.missed[key] += len(there - here)
        result.iterations[event.iteration] += Score(
            len(believed & true), len(believed), len(true), 1
        )
    return result
