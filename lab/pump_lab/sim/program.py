"""A program for the simulator: ranges, operations with their uses, waits.

Its tables have the layout of `lab/simulate/sim.h`, so that C reads them in place.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pump.model.bounds import BLOCK_BYTES
from pump_lab.abi import ffi, lib

KERNEL: Final[int] = lib.GPU_KERNEL
COPY_H2D: Final[int] = lib.GPU_COPY_H2D
COPY_D2H: Final[int] = lib.GPU_COPY_D2H
COPY_LOCAL: Final[int] = lib.GPU_COPY_LOCAL
MEMSET: Final[int] = lib.GPU_MEMSET
DISCARD: Final[int] = lib.GPU_DISCARD
SYNC: Final[int] = lib.PUMP_SIM_SYNC
ALLOC: Final[int] = lib.PUMP_SIM_ALLOC
FREE: Final[int] = lib.PUMP_SIM_FREE
ADVISE: Final[int] = lib.PUMP_SIM_ADVISE
ALL_STREAMS: Final[int] = lib.PUMP_SIM_ALL
OPERATIONS: Final = (KERNEL, COPY_H2D, COPY_D2H, COPY_LOCAL, MEMSET)

READ: Final[int] = lib.PUMP_ACCESS_READ
WRITE: Final[int] = lib.PUMP_ACCESS_WRITE
OVERWRITE: Final[int] = lib.PUMP_ACCESS_OVERWRITE

STEP: Final = np.dtype(
    [
        *((name, np.uint64) for name in ("host_ns", "duration_ns", "length_bytes", "seq")),
        *((name, np.uint32) for name in ("kind", "stream", "first_use", "uses", "range")),
        ("mark", np.uint16),
        ("wide", np.uint16),
        ("signature", np.uint64),
        ("dropped", np.uint32),
        ("reserved", np.uint32),
    ]
)
USE: Final = np.dtype(
    [
        ("offset_bytes", np.uint64),
        ("length_bytes", np.uint64),
        ("range", np.uint32),
        ("access", np.uint32),
        ("rows", np.uint64),
        ("row_bytes", np.uint32),
        ("sorted", np.uint16),
        ("pages", np.uint16),
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
        raise ImportError(f"struct pump_sim_{_struct} does not match its dtype")

Table = NDArray[Any]
Use = tuple[int, int, int, int] | tuple[int, int, int, int, int, int, int, int]
"""(range, offset_bytes, length_bytes, access), and for sparse kernels also (rows, row_bytes,
sorted, pages). `rows`: touched rows of the use. `sorted`: 1 if in ascending order. `pages`: touched
64 KiB pages of each block instead of all. 0: unknown."""


class ProgramError(ValueError):
    """One line that describes what is wrong with a trace."""


BLOCKS_MOST: Final = 1 << 21
"""Limit for all ranges together: 4 TiB."""
OPERATIONS_MOST: Final = 2_000_000
TOUCHES_MOST: Final = 1 << 27
"""Limit for the block uses of all operations together. A use costs 2 us and 110 bytes of
simulation, or up to 11 us and 450 bytes if no block is used twice."""
TOUCHES_FREE: Final = 1 << 19
TOUCHES_PER_BYTE: Final = 64
"""Block uses that a trace may need without --most-uses: a fixed number, plus some for each byte of
its file. Recordings of training and inference have about one per byte."""
TOUCHES_OF_OPERATION: Final = 16
"""The cost of an operation without its blocks, in block uses."""
SECONDS_MOST: Final = 24 * 3600
"""Limit for the total time of operations and the gaps between them."""
STEP_NS_MOST: Final = 3600 * 10**9
"""Limit for an operation, and for the gap between two."""


def signature_of(shape: object) -> int:
    """Returns the signature of operations of one shape: a 64-bit hash (BLAKE2b) of its text."""
    digest = hashlib.blake2b(repr(shape).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def touches_allowed(file_bytes: int, per_byte: int = TOUCHES_PER_BYTE) -> int:
    """Returns the block uses that a trace with `file_bytes` may need without --most-uses."""
    return min(TOUCHES_MOST, TOUCHES_FREE + per_byte * file_bytes)


def check_bounds(
    source: str,
    *,
    blocks: int = 0,
    operations: int = 0,
    touches: int = 0,
    seconds: float = 0,
    touches_most: int = TOUCHES_MOST,
) -> None:
    """Raises ProgramError for more than can be simulated in reasonable time and memory. `touches`:
    Block uses, without the ones of the operations themselves."""
    touches += operations * TOUCHES_OF_OPERATION
    if TOUCHES_MOST >= touches > touches_most:
        raise ProgramError(
            f"{source}: more uses of blocks than expected from the file's length "
            f"({touches_most:,}); if that is right, add --most-uses {TOUCHES_MOST}"
        )
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
    """A program: tables of STEP, USE and RANGE. The last step waits for all streams."""

    name: str
    steps: Table
    uses: Table
    ranges: Table
    blocks: int
    streams: int
    peak_bytes: int
    """Most bytes that live at once: an oversubscription is relative to them."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Additional data for the report, such as the address mapping."""

    @property
    def operations(self) -> int:
        """Returns how many steps are operations."""
        return int(np.count_nonzero(self.steps["seq"]))

    @property
    def compute_seconds(self) -> float:
        """Returns the total duration of all operations."""
        return float(self.steps["duration_ns"].sum(dtype=np.float64)) / 1e9

    @property
    def mapped_peak_bytes(self) -> int:
        """Returns the most bytes of ranges that live at once, used or not."""
        kinds = self.steps["kind"]
        change = self.ranges["length_bytes"].astype(np.int64)[self.steps["range"]]
        now = np.cumsum(change * (kinds == ALLOC) - change * (kinds == FREE))
        return int(now.max(initial=0))

    @property
    def uses_most(self) -> int:
        """Returns the most uses of one operation."""
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
        self._uses: list[tuple[int, ...]] = []
        self._seq = 0

    @property
    def operations(self) -> int:
        """Returns how many operations have been added."""
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
        wide: int = 0,
        dropped: int = 0,
    ) -> None:
        """Adds an operation. `host_ns`: Time of the program's thread before its issue.
        `length_bytes`: For copies over the link. `signature`: Equal for kernels that do the same
        at other addresses; 0: unknown. `wide`: The wide uses, as lib.uvm_wide_uses() returns
        them. `dropped`: The number of further, unknown operands."""
        self._seq += 1
        figures = host_ns, duration_ns, length_bytes, self._seq
        self._add(kind, uses, figures, stream, signature=signature, wide=wide, dropped=dropped)

    def discard(self, uses: Iterable[Use], stream: int = 0) -> None:
        """Adds a discard: the contents of these uses are dead afterwards, in stream order."""
        self._add(DISCARD, uses, (0, 0, 0, 0), stream)

    def sync(self, *, stream: int = ALL_STREAMS, host_ns: int = 0, mark: bool = False) -> None:
        """Adds a wait for the GPU. `mark`: whether counters are sampled there."""
        place = len(self._uses)
        self._steps.append((host_ns, 0, 0, 0, SYNC, stream, place, 0, 0, int(mark), 0, 0, 0, 0))

    def alloc(self, index: int, host_ns: int = 0) -> None:
        """Adds the allocation of range `index`, host_ns after the previous step."""
        self._steps.append((host_ns, 0, 0, 0, ALLOC, 0, len(self._uses), 0, index, 0, 0, 0, 0, 0))

    def advise(self, index: int, advice: int) -> None:
        """Adds advice (GPU_ADVICE_*) on range `index`: a call of cuMemAdvise."""
        place = len(self._uses)
        self._steps.append((0, 0, 0, 0, ADVISE, 0, place, 0, index, advice, 0, 0, 0, 0))

    def free(self, index: int, host_ns: int = 0) -> None:
        """Adds the free of range `index`, host_ns after the previous step."""
        self._steps.append((host_ns, 0, 0, 0, FREE, 0, len(self._uses), 0, index, 0, 0, 0, 0, 0))

    def _add(
        self,
        kind: int,
        uses: Iterable[Use],
        figures: tuple[int, ...],
        stream: int,
        *,
        signature: int = 0,
        wide: int = 0,
        dropped: int = 0,
    ) -> None:
        first = len(self._uses)
        self._uses.extend(
            (offset, length, index, access, *(rows or (0, 0, 0, 0)))
            for index, offset, length, access, *rows in uses
        )
        count = len(self._uses) - first
        self._steps.append(
            (*figures, kind, stream, first, count, 0, 0, wide, signature, dropped, 0)
        )

    def tables(self) -> tuple[Table, Table]:
        """Returns steps and uses; adds a wait for all streams if it is not the last step."""
        last = self._steps[-1] if self._steps else None
        if last is None or last[4] != SYNC or last[5] != ALL_STREAMS:
            self.sync()
        return np.array(self._steps, STEP), np.array(self._uses, USE)


def repeated(steps: Table, count: int) -> Table:
    """Returns the steps repeated `count` times, with consecutive operation numbers."""
    whole = np.tile(steps, count)
    own = whole["seq"] != 0
    whole["seq"][own] = np.arange(1, int(np.count_nonzero(own)) + 1)
    return whole


def ranges_in_a_row(lengths_bytes: Sequence[int]) -> tuple[Table, int]:
    """Returns adjacent ranges of whole blocks, and their total number of blocks."""
    table = np.zeros(len(lengths_bytes), RANGE)
    blocks = -(-np.asarray(lengths_bytes, np.int64) // BLOCK_BYTES)
    table["length_bytes"] = blocks * BLOCK_BYTES
    table["first_block"] = np.concatenate(([0], np.cumsum(blocks)[:-1]))
    table["slot"] = np.arange(len(table))
    table["generation"] = 1
    return table, int(blocks.sum())
