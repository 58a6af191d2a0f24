"""Counts evicted bytes that had no owner: an allocator's blocks against departures from the GPU.

DESIGN
  There are two independent records on one clock. allocator_probe.c logs each block that PyTorch's
  allocator hands out and takes back. The virtual driver logs each copy to the host, and when
  kernels were issued and begun (gpu_events.py).

  A departure is dated back to the issue of the newest kernel that had begun. A block is live if the
  allocator had handed it out by then and not taken it back. So a tensor that is freed while its
  kernels are queued stays live until a kernel begins that was issued after the free. That holds if
  one stream has all the work, as in PyTorch's training loop.

  Live bytes of a departure are the bytes of live blocks in the copied pages; all others are dead.
  Blocks have the allocator's rounded lengths. Dead bytes are of three kinds, by what could be known
  when they left (docs/decisions/0013-dead-bytes-that-remain.md):

    `part`     Another part of their 2 MiB is live.
    `handed`   By then handed out again, to an owner whose first kernel had not begun.
    `free`     The others: no block had them.

  Pure.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from gpu_events import BLOCK_BYTES, PAGE_BYTES, Event, Launch, Move, Start

PAGES = 32


class Handed(NamedTuple):
    """A block is handed out, or taken back (length_bytes 0)."""

    time_ns: int
    address: int
    length_bytes: int


class Departure(NamedTuple):
    """Pages of the 2 MiB block at `address` that were copied out at `left_ns`. `pages`: a bit for
    each. `issued_ns`: when the program issued the newest kernel that had begun by then."""

    issued_ns: int
    address: int
    pages: int
    left_ns: int


class Bytes(NamedTuple):
    """Bytes that were copied out."""

    free: int = 0
    handed: int = 0
    part: int = 0
    live: int = 0

    @property
    def dead(self) -> int:
        return self.free + self.handed + self.part


def read_handed(lines: Iterable[str]) -> list[Handed]:
    """Parses the lines of allocator_probe.c. Raises ValueError for any other line."""
    found = []
    for line in lines:
        time_ns, address, length_bytes = line.split()
        found.append(Handed(int(time_ns), int(address), int(length_bytes)))
    return found


def read_departures(events: Iterable[Event]) -> list[Departure]:
    """Returns all copies to the host."""
    events = list(events)
    issued = {event.ticket: event.issued_ns for event in events if isinstance(event, Launch)}
    found, newest_ns = [], 0
    for event in events:
        if isinstance(event, Start):
            newest_ns = max(newest_ns, issued.get(event.ticket, 0))
        elif isinstance(event, Move) and event.how in ("out", "ahead", "evict"):
            address = event.block * BLOCK_BYTES
            found.append(Departure(newest_ns, address, event.pages, event.time_ns))
    return found


def split(handed: Iterable[Handed], departures: Iterable[Departure]) -> Bytes:
    """Returns the dead and live bytes of all departures."""
    blocks = _Blocks()
    upcoming = sorted(handed, key=lambda one: one.time_ns)
    times = _hand_outs(upcoming)
    at = live = 0
    dead = {"free": 0, "handed": 0, "part": 0}
    for departure in sorted(departures, key=lambda one: one.issued_ns):
        while at < len(upcoming) and upcoming[at].time_ns <= departure.issued_ns:
            blocks.apply(upcoming[at])
            at += 1
        copied = owned = 0
        for begin, end in _stretches(departure):
            copied += end - begin
            owned += blocks.owned(begin, end)
        live += owned
        dead[_kind(departure, blocks, times)] += copied - owned
    return Bytes(**dead, live=live)


def shares(moved: Bytes, naive_dead_bytes: int) -> dict[str, float]:
    """Returns shares of the moved bytes. `fewer`: the share of naive's dead bytes that did not
    leave. `fewer_at_most`: the same if no bytes of the kind `free` had left either. A discard that
    runs alongside kernels cannot save more, because it may overtake the first kernel of the next
    owner. `free_share`: free bytes / all bytes that left."""
    naive = max(1, naive_dead_bytes)
    return {
        "fewer": 1 - moved.dead / naive,
        "fewer_at_most": 1 - (moved.dead - moved.free) / naive,
        "free_share": moved.free / max(1, moved.dead + moved.live),
    }


def _hand_outs(handed: Iterable[Handed]) -> dict[int, list[int]]:
    """Returns the times of hand-outs in each 2 MiB, by block number, in order."""
    times: dict[int, list[int]] = {}
    for one in handed:
        if one.length_bytes > 0:
            last = (one.address + one.length_bytes - 1) // BLOCK_BYTES
            for block in range(one.address // BLOCK_BYTES, last + 1):
                times.setdefault(block, []).append(one.time_ns)
    return times


def _kind(departure: Departure, blocks: _Blocks, times: Mapping[int, Sequence[int]]) -> str:
    """Returns the kind of evicted dead bytes: `part`, `handed` (out again), `free`; see DESIGN."""
    if blocks.owned(departure.address, departure.address + BLOCK_BYTES):
        return "part"
    of_block = times.get(departure.address // BLOCK_BYTES, ())
    since = bisect.bisect_right(of_block, departure.issued_ns)
    return "handed" if bisect.bisect_right(of_block, departure.left_ns) > since else "free"


def _stretches(departure: Departure) -> Iterator[tuple[int, int]]:
    """Yields the stretches of neighbouring pages that left together."""
    first = None
    for page in range(PAGES + 1):
        leaves = page < PAGES and departure.pages >> page & 1
        if leaves and first is None:
            first = page
        elif not leaves and first is not None:
            yield departure.address + first * PAGE_BYTES, departure.address + page * PAGE_BYTES
            first = None


class _Blocks:
    """Live blocks by address; they never overlap."""

    def __init__(self) -> None:
        self._begins: list[int] = []
        self._ends: list[int] = []

    def apply(self, one: Handed) -> None:
        at = bisect.bisect_left(self._begins, one.address)
        if one.length_bytes > 0:
            self._begins.insert(at, one.address)
            self._ends.insert(at, one.address + one.length_bytes)
        elif at < len(self._begins) and self._begins[at] == one.address:
            del self._begins[at], self._ends[at]

    def owned(self, begin: int, end: int) -> int:
        """Returns the bytes of live blocks between two addresses."""
        at = bisect.bisect_right(self._ends, begin)
        found = 0
        while at < len(self._begins) and self._begins[at] < end:
            found += min(end, self._ends[at]) - max(begin, self._begins[at])
            at += 1
        return found
