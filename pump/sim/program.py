"""A program as the simulator takes it: ranges, operations with what they use, waits.

Its tables have the layout of `virtual/simulate/sim.h`, so that C reads them where they lie.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pump.model.bounds import BLOCK_BYTES
from pump.sim.library import ffi, lib

KERNEL: Final[int] = lib.GPU_KERNEL
COPY_H2D: Final[int] = lib.GPU_COPY_H2D
COPY_D2H: Final[int] = lib.GPU_COPY_D2H
COPY_LOCAL: Final[int] = lib.GPU_COPY_LOCAL
MEMSET: Final[int] = lib.GPU_MEMSET
DISCARD: Final[int] = lib.GPU_DISCARD
SYNC: Final[int] = lib.PUMP_SIM_SYNC
ALLOC: Final[int] = lib.PUMP_SIM_ALLOC
FREE: Final[int] = lib.PUMP_SIM_FREE
ALL_STREAMS: Final[int] = lib.PUMP_SIM_ALL
OPERATIONS: Final = (KERNEL, COPY_H2D, COPY_D2H, COPY_LOCAL, MEMSET)

READ: Final[int] = lib.PUMP_ACCESS_READ
WRITE: Final[int] = lib.PUMP_ACCESS_WRITE
OVERWRITE: Final[int] = lib.PUMP_ACCESS_OVERWRITE

STEP: Final = np.dtype(
    [
        *((name, np.uint64) for name in ("host_ns", "duration_ns", "length_bytes", "seq")),
        *((name, np.uint32) for name in ("kind", "stream", "first_use", "uses", "range", "mark")),
        ("signature", np.uint64),
    ]
)
USE: Final = np.dtype(
    [
        ("offset_bytes", np.uint64),
        ("length_bytes", np.uint64),
        ("range", np.uint32),
        ("access", np.uint32),
    ]
)
RANGE: Final = np.dtype(
    [
        ("length_bytes", np.uint64),
        ("first_block", np.uint32),
        ("slot", np.uint32),
        ("generation", np.uint32),
        ("reserved", np.uint32),
    ]
)
for _dtype, _struct in ((STEP, "step"), (USE, "use"), (RANGE, "range")):
    if _dtype.itemsize != ffi.sizeof(f"struct pump_sim_{_struct}"):
        raise ImportError(f"struct pump_sim_{_struct} has another layout than its dtype")

Table = NDArray[Any]
Use = tuple[int, int, int, int]
"""range, offset_bytes, length_bytes, access."""


class ProgramError(ValueError):
    """One line that says what is wrong with a trace."""


BLOCKS_MOST: Final = 1 << 21
"""Of all ranges: 4 TiB."""
OPERATIONS_MOST: Final = 2_000_000
TOUCHES_MOST: Final = 1 << 27
"""Blocks that all operations use together, each counted as often as it is used."""
SECONDS_MOST: Final = 24 * 3600
"""Of operations, and between them, together."""
STEP_NS_MOST: Final = 3600 * 10**9
"""Of an operation, and between two."""


def check_bounds(
    source: str, *, blocks: int = 0, operations: int = 0, touches: int = 0, seconds: float = 0
) -> None:
    """Raises ProgramError for more than is simulated in reasonable time and memory."""
    for what, count, most in (
        ("blocks of 2 MiB", blocks, BLOCKS_MOST),
        ("operations", operations, OPERATIONS_MOST),
        ("uses of blocks", touches, TOUCHES_MOST),
        ("seconds", seconds, SECONDS_MOST),
    ):
        if count > most:
            raise ProgramError(
                f"{source}: more {what} than can be simulated ({most:,}); take a shorter run or a "
                "smaller program"
            )


@dataclass(frozen=True)
class Program:
    """`steps`, `uses`, `ranges`: tables of STEP, USE and RANGE. The last step waits for all."""

    name: str
    steps: Table
    uses: Table
    ranges: Table
    blocks: int
    streams: int
    peak_bytes: int
    """Most bytes that live at once: what an oversubscription is counted against."""
    facts: dict[str, Any] = field(default_factory=dict)
    """What a report has to say beside its figures, such as the address mapping."""

    @property
    def operations(self) -> int:
        return int(np.count_nonzero(self.steps["seq"]))

    @property
    def compute_seconds(self) -> float:
        """Durations of all operations together."""
        return float(self.steps["duration_ns"].sum(dtype=np.float64)) / 1e9

    @property
    def mapped_peak_bytes(self) -> int:
        """Most bytes of ranges that live at once, whatever is in them."""
        kinds = self.steps["kind"]
        change = self.ranges["length_bytes"].astype(np.int64)[self.steps["range"]]
        now = np.cumsum(change * (kinds == ALLOC) - change * (kinds == FREE))
        return int(now.max(initial=0))

    @property
    def uses_most(self) -> int:
        return int(self.steps["uses"].max(initial=0))

    def __repr__(self) -> str:
        return (
            f"<Program {self.name}: {self.operations} operations, {len(self.ranges)} ranges, "
            f"peak {self.peak_bytes / 2**30:.2f} GiB>"
        )


class Builder:
    """Collects steps and uses in the order of the program."""

    def __init__(self) -> None:
        self._steps: list[tuple[int, ...]] = []
        self._uses: list[tuple[int, int, int, int]] = []
        self._seq = 0

    @property
    def operations(self) -> int:
        return self._seq

    def operation(
        self,
        kind: int,
        uses: Iterable[Use],
        *,
        duration_ns: int = 0,
        host_ns: int = 0,
        stream: int = 0,
        length_bytes: int = 0,
        signature: int = 0,
    ) -> None:
        """An operation of the GPU's; `length_bytes` of copies over the link. `signature` of a
        kernel: what it shares with those that do the same on other addresses; 0: not known."""
        self._seq += 1
        figures = host_ns, duration_ns, length_bytes, self._seq
        self._add(kind, uses, figures, stream, signature)

    def discard(self, uses: Iterable[Use], stream: int = 0) -> None:
        """The contents of these are worthless from here on, in stream order."""
        self._add(DISCARD, uses, (0, 0, 0, 0), stream, 0)

    def sync(self, *, stream: int = ALL_STREAMS, host_ns: int = 0, mark: bool = False) -> None:
        """A wait for the GPU; with `mark` figures are taken there."""
        place = len(self._uses)
        self._steps.append((host_ns, 0, 0, 0, SYNC, stream, place, 0, 0, int(mark), 0))

    def alloc(self, index: int, host_ns: int = 0) -> None:
        self._steps.append((host_ns, 0, 0, 0, ALLOC, 0, len(self._uses), 0, index, 0, 0))

    def free(self, index: int, host_ns: int = 0) -> None:
        self._steps.append((host_ns, 0, 0, 0, FREE, 0, len(self._uses), 0, index, 0, 0))

    def _add(
        self, kind: int, uses: Iterable[Use], figures: tuple[int, ...], stream: int, signature: int
    ) -> None:
        first = len(self._uses)
        self._uses.extend((offset, length, index, access) for index, offset, length, access in uses)
        count = len(self._uses) - first
        self._steps.append((*figures, kind, stream, first, count, 0, 0, signature))

    def tables(self) -> tuple[Table, Table]:
        """Steps and uses; a wait for everything is added where the program ends without."""
        last = self._steps[-1] if self._steps else None
        if last is None or last[4] != SYNC or last[5] != ALL_STREAMS:
            self.sync()
        return np.array(self._steps, STEP), np.array(self._uses, USE)


def repeated(steps: Table, count: int) -> Table:
    """The steps `count` times one after the other, with operations numbered through."""
    whole = np.tile(steps, count)
    own = whole["seq"] != 0
    whole["seq"][own] = np.arange(1, int(np.count_nonzero(own)) + 1)
    return whole


def ranges_in_a_row(lengths_bytes: Sequence[int]) -> tuple[Table, int]:
    """Ranges of whole blocks, one behind the other, and how many blocks they have."""
    table = np.zeros(len(lengths_bytes), RANGE)
    blocks = -(-np.asarray(lengths_bytes, np.int64) // BLOCK_BYTES)
    table["length_bytes"] = blocks * BLOCK_BYTES
    table["first_block"] = np.concatenate(([0], np.cumsum(blocks)[:-1]))
    table["slot"] = np.arange(len(table))
    table["generation"] = 1
    return table, int(blocks.sum())


def in_turn(programs: Sequence[Program]) -> Program:
    """Programs one after another in one process, as when a training changes its batch size.

    Their ranges are those of the one with most blocks, each as long as there or shorter. Each
    begins with the allocation of its ranges and a wait, as those of pump/sim/tensors.py do.
    """
    largest = max(programs, key=lambda program: program.blocks)
    steps, uses = [largest.steps[: len(largest.ranges) + 1]], []
    used = seq = 0
    for program in programs:
        part = program.steps[len(program.ranges) + 1 :].copy()
        part["first_use"] += used
        issued = part["seq"] > 0
        count = int(np.count_nonzero(issued))
        part["seq"][issued] = seq + np.arange(1, count + 1)
        steps.append(part)
        uses.append(program.uses)
        used, seq = used + len(program.uses), seq + count
    tables = np.concatenate(steps), np.concatenate(uses)
    most = largest.blocks, max(program.streams for program in programs), largest.peak_bytes
    return Program(largest.name, *tables, largest.ranges, *most)
