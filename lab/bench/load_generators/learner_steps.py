"""Packs the input of a learner of iterations for C: from traffic, from recordings, and made up.

A step is an operation, the data that all launches of a signature share (before the first launch),
an allocation, a free, or a loss. `marks`: the first step and the name of each part that is counted
separately. A part is an iteration of the traffic or a tenth of a recording.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import c_part
import numpy as np
from harness import ROOT, MeasurementError, Tools
from study.extents_traffic import Bytes, Gone, Launch, Range, open_lines, read_traffic

SOURCE = ROOT / "lab" / "bench" / "load_generators" / "learner_generator.c"
KERNEL, COPY = 1, 2
STEP = np.dtype(
    [
        *((name, np.uint64) for name in ("function", "signature", "first_access", "length_bytes")),
        *((name, np.uint32) for name in ("what", "slot", "generation", "stream", "kind", "count")),
        ("grid", np.uint32, 3),
        ("block", np.uint32, 3),
    ],
    align=True,
)
REACH = np.dtype(
    [
        *((name, np.uint32) for name in ("slot", "generation")),
        *((name, np.uint64) for name in ("offset_bytes", "length_bytes")),
        *((name, np.uint32) for name in ("access", "missing")),
    ]
)
OPERATION, SHAPE, ALLOC, FREE, LOST = range(5)
Access = tuple[int, int, int, int, int]
"""slot, generation, offset_bytes, length_bytes, access"""


def generator(tools: Tools, library: Path, *headers: Path) -> tuple[Any, Any]:
    """Returns cffi's view of the load generator, built against the learner's library."""
    ffi, lib = c_part.generator(tools, SOURCE, library, *headers)
    if ffi.sizeof("struct feed_step") != STEP.itemsize:
        raise MeasurementError(
            "learner_steps.STEP differs from struct feed_step: bring it up to date"
        )
    return ffi, lib


@dataclass
class Steps:
    """The steps of one program."""

    name: str
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    accesses: list[tuple[int, ...]] = field(default_factory=list)
    marks: list[tuple[int, str]] = field(default_factory=list)
    shapes: set[int] = field(default_factory=set)

    def operation(
        self, signature: int, accesses: list[Access], *, function: int = 0, stream: int = 0
    ) -> None:
        kind = KERNEL if signature else COPY
        where = function, signature, len(self.accesses), 0
        what = OPERATION, 0, 0, stream, kind, len(accesses)
        self.rows.append((*where, *what, (0, 0, 0), (0, 0, 0)))
        self.accesses += [(*access, 0) for access in accesses]

    def shape(self, signature: int, function: int, grid: Any, block: Any) -> None:
        if signature not in self.shapes:
            self.shapes.add(signature)
            self.rows.append((function, signature, 0, 0, SHAPE, 0, 0, 0, 0, 0, grid, block))

    def range(self, what: int, slot: int, generation: int, length_bytes: int = 0) -> None:
        self.rows.append(
            (0, 0, 0, length_bytes, what, slot, generation, 0, 0, 0, (0, 0, 0), (0, 0, 0))
        )

    def mark(self, name: str) -> None:
        self.marks.append((len(self.rows), name))

    def tables(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        return np.array(self.rows, STEP), np.array(self.accesses or [(0,) * 6], REACH)


def traffic(path: Path) -> Steps:
    """Returns recorded traffic of PyTorch (extents_traffic.py), marked by iteration."""
    steps = Steps(path.name.partition(".")[0])
    with open_lines(path) as lines:
        events = read_traffic(lines)
    generations: dict[int, int] = {}
    iteration = -1
    for event in events:
        if isinstance(event, Range):
            generations[event.slot] = event.generation
            steps.range(ALLOC, event.slot, event.generation, event.length_bytes)
        elif isinstance(event, Gone):
            steps.range(FREE, event.slot, generations[event.slot])
        elif isinstance(event, Bytes):
            steps.operation(0, [(*event, 2)])
        elif isinstance(event, Launch):
            if event.iteration != iteration:
                iteration = event.iteration
                steps.mark(f"iteration {iteration}" if iteration >= 0 else "start")
            steps.shape(event.signature, event.function, event.grid, (event.threads, 1, 1))
            pointers: list[Access] = [
                (p.slot, p.generation, p.offset_bytes, 0, 0) for p in event.pointers
            ]
            steps.operation(event.signature, pointers, function=event.function)
    return steps


def recording(path: Path) -> Steps:
    """Returns a recording of `pump-run --record`, marked by tenths of its operations."""
    from pump.trace import format as trace
    from pump.trace import records as rec
    from pump.trace.reader import Reader

    steps = Steps(path.name.partition(".")[0])
    live: set[tuple[int, int]] = set()
    with path.open("rb") as file:
        for record in Reader(file).records():
            match record:
                case rec.Operation() if record.kind in (trace.KERNEL, trace.COPY, trace.MEMSET):
                    accesses: list[Access] = [e[:5] for e in record.extents if e.length_bytes]
                    steps.operation(
                        record.signature, accesses, function=record.function, stream=record.stream
                    )
                case rec.Params():
                    steps.shape(record.signature, record.function, record.grid, record.block)
                case rec.RangeRow():
                    key = record.slot, record.generation
                    if record.kind == trace.FREE:
                        live.discard(key)
                        steps.range(FREE, *key)
                    elif key not in live:
                        live.add(key)
                        steps.range(ALLOC, *key, record.length_bytes)
                case rec.Lost():
                    steps.range(LOST, 0, 0)
    operations = [i for i, row in enumerate(steps.rows) if row[4] == OPERATION]
    if not operations:
        raise MeasurementError(f"{path} holds no operation")
    steps.marks = [(operations[len(operations) * k // 10], f"tenth {k + 1}") for k in range(10)]
    return steps


def made_up(name: str, signatures: list[int], *, accesses: int = 8, streams: int = 1) -> Steps:
    """Returns a program of these launches; each accesses `accesses` pieces of memory."""
    steps = Steps(name, marks=[(0, "all")])
    dice = random.Random(1)
    places = [[(slot, 1, dice.randrange(1 << 20) << 9, 1 << 20, 0) for slot in range(accesses)]
              for _ in range(1000)]  # fmt: skip
    for i, signature in enumerate(signatures):
        steps.operation(signature, list(places[signature % 1000]), stream=1 + i % streams)
    return steps
