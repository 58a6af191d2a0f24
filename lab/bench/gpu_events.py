"""The events of the virtual GPU, line by line (PUMP_VIRTUAL_EVENTS).

lab/driver/timeline/events_log.c writes the file and explains its lines. Blocks are addresses
divided by 2 MiB. Times are nanoseconds of CLOCK_MONOTONIC. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

BLOCK_BYTES = 2 << 20
PAGE_BYTES = 64 << 10
OUT = ("out", "evict")
MOVES = ("fault", "first", "prefetch", *OUT, "none", "ahead")


class Launch(NamedTuple):
    """The program issues a kernel. `stretches`: (first block, number of blocks) it touches."""

    ticket: int
    issued_ns: int
    kernel: str
    stretches: tuple[tuple[int, int], ...]

    @property
    def blocks(self) -> frozenset[int]:
        """Returns the blocks that the kernel touches."""
        return frozenset(b for first, n in self.stretches for b in range(first, first + n))


class Start(NamedTuple):
    """An operation begins to execute."""

    ticket: int
    time_ns: int


class End(NamedTuple):
    """An operation has ended."""

    ticket: int
    time_ns: int


class Stall(NamedTuple):
    """An operation waits. `fault`: whether for faults; otherwise for pages in flight."""

    ticket: int
    fault: bool
    from_ns: int
    until_ns: int


class Move(NamedTuple):
    """Pages of a block move. `how`: see MOVES and gpu_moves (lab/gpu/gpu_engine.h). `pages`: a
    bit for each. `ready_ns`: the expected end of the copy; for evict, `time_ns`."""

    how: str
    block: int
    pages: int
    time_ns: int
    ready_ns: int

    @property
    def length_bytes(self) -> int:
        """Returns the size of the pages."""
        return self.pages.bit_count() * PAGE_BYTES


Event = Launch | Start | End | Stall | Move


def read(lines: Iterable[str]) -> Iterator[Event]:
    """Parses the lines. Raises ValueError for anything that the driver does not write."""
    for line in lines:
        word, *rest = line.split()
        match word, rest:
            case "launch", [ticket, issued, kernel, *stretches]:
                pairs = (stretch.split("+") for stretch in stretches)
                reached = tuple((int(first), int(count)) for first, count in pairs)
                yield Launch(int(ticket), int(issued), kernel, reached)
            case "start", [ticket, time]:
                yield Start(int(ticket), int(time))
            case "end", [ticket, time]:
                yield End(int(ticket), int(time))
            case "stall", [ticket, "fault" | "arrival" as why, begin, end]:
                yield Stall(int(ticket), why == "fault", int(begin), int(end))
            case _, [block, pages, time, ready] if word in MOVES:
                yield Move(word, int(block), int(pages, 16), int(time), int(ready))
            case _:
                raise ValueError(f"not a line of PUMP_VIRTUAL_EVENTS: {line.strip()!r}")
