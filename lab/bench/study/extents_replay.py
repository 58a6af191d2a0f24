"""Replays recorded traffic to the learner of extents and compares its beliefs with the truth.

A launch's score is taken by 2 MiB blocks: the blocks of all its believed extents against
those of all its true ones. Scores of several launches are added up (micro average), so a
launch counts with the memory it touches.
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
"""Iterations from this one on (the third) are steady state."""


def installed() -> tuple[Any, Any]:
    """The learner of the pump that is installed here. Raises what pump.paths raises."""
    from pump import paths

    return load(Path(paths.library("libpump_core.so")), Path(paths.library("include/extents.h")))


@dataclass
class Score:
    """Blocks that were believed, true, and both; launches."""

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
    """Scores by iteration; blocks believed wrongly and missed, by (name, argument)."""

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
    """Numbers of the 2 MiB blocks that [address, address + length) touches."""
    if length <= 0:
        return range(0)
    return range(address // BLOCK_BYTES, (address + length - 1) // BLOCK_BYTES + 1)


UNIT_BYTES = 512
"""That the shim tells an allocator's blocks in (PUMP_UNIT_BYTES)."""


class Learner:
    """One learner, told events as the worker tells them. `blocks`: the allocator reports its own
    blocks, so that the shim leaves out old pointers and tells where the others' blocks end."""

    def __init__(self, ffi: Any, lib: Any, *, blocks: bool = False) -> None:
        self.ffi, self.lib, self.blocks = ffi, lib, blocks
        self.learner = ffi.gc(lib.pump_extents_new(), lib.pump_extents_delete)
        if not self.learner:
            raise MemoryError("no memory for a learner of extents")
        self.told: set[int] = set()

    def tell(self, event: Event) -> list[int]:
        """Tells one event; a launch's believed lengths in bytes, else nothing."""
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
            [(p.slot, p.generation, p.argument, self.units(p), p.offset_bytes) for p in told],
        )
        lengths = self.ffi.new("uint64_t[]", len(told))
        self.lib.pump_extents_kernel(
            self.learner, event.function, event.signature, len(told), pointers, lengths
        )
        believed = {p.value: int(length) for p, length in zip(told, lengths, strict=True)}
        return [believed.get(p.value, 0) for p in event.pointers]

    def units(self, pointer: Pointer) -> int:
        """To the end of its block, the unit that it stands in included."""
        if not self.blocks:
            return 0
        return pointer.block_end // UNIT_BYTES - pointer.offset_bytes // UNIT_BYTES


TENSORS, ADDRESSED, HANDED = "tensors", "addressed", "handed"
"""What counts as true: operators' tensors alone; also their work space, of a reduction's scratch
as much as its kernel can address; or all of the work space that an operator was handed."""


def replay(events: Iterable[Event], learner: Learner, against: str = HANDED) -> Result:
    """Tells all events and scores every launch against its truth."""
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
