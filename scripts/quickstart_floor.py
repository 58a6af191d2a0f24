"""The floor: what one iteration must cost at least on a GPU of a given memory. Pure.

DESIGN
  Whoever moves the memory, however clever: the kernels take their time, and a
  block that is not resident when an operation uses it must have come over the
  link. So  floor = max(compute, least bytes to the GPU / link bandwidth).

  Least bytes is Belady's bound for blocks of 2 MiB: a block that has to go is the
  one whose contents are needed latest, known in advance. Contents that will be
  overwritten before they are read are worth nothing: they leave and return for
  free (nobody has to copy what is dead). What is resident at the start may be
  chosen freely, so a stretch of iterations out of a long run is bounded too. Under
  these rules dropping the furthest need is optimal, so the bound holds for every
  policy.

  Bytes to the host on that schedule are given for comparison. They are never
  more than those to the GPU: only what is needed again is written back. A floor on
  the time needs the larger direction alone, since both run at once.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

BLOCK_BYTES = 2 << 20


@dataclass(frozen=True)
class Touch:
    """Blocks an operation uses: to read, to read and write, to write without reading."""

    reads: tuple[int, ...]
    updates: tuple[int, ...]
    overwrites: tuple[int, ...]


@dataclass(frozen=True)
class Traffic:
    """Bytes moved to the GPU and to the host."""

    h2d_bytes: int
    d2h_bytes: int


def block_numbers(tensors: Mapping[str, int]) -> dict[str, range]:
    """Blocks of each tensor, given its bytes. A tensor below one block has none."""
    numbers: dict[str, range] = {}
    first = 0
    for name, length_bytes in tensors.items():
        count = -(-length_bytes // BLOCK_BYTES) if length_bytes >= BLOCK_BYTES else 0
        numbers[name] = range(first, first + count)
        first += count
    return numbers


def touches(operations: Iterable[object], blocks: Mapping[str, range]) -> list[Touch]:
    """The operations of examples/mlp.py as blocks; those that touch none are left out."""

    def of(names: Iterable[str]) -> tuple[int, ...]:
        return tuple(block for name in names for block in blocks[name])

    # By name: an Operation lives beside the example, not here.
    found = [
        Touch(*(of(getattr(operation, kind)) for kind in ("reads", "updates", "overwrites")))
        for operation in operations
    ]
    return [touch for touch in found if touch.reads or touch.updates or touch.overwrites]


def least_traffic(operations: Sequence[Touch], repeats: int, memory_bytes: int) -> Traffic:
    """Least bytes to the GPU for `repeats` iterations, and those to the host beside them."""
    capacity = memory_bytes // BLOCK_BYTES
    sequence = list(operations) * repeats
    needs, first_needs = _next_needs(sequence)
    # What is needed first fills the memory at the start.
    order = sorted((need, block) for block, need in first_needs.items() if need < len(sequence))
    resident = {block: need for need, block in order[:capacity]}  # block -> who needs its contents
    queue = [(-need, block) for block, need in resident.items()]  # the furthest need first
    heapq.heapify(queue)
    dirty = set(resident)  # the host's copy is not the newest
    h2d = d2h = 0
    for now, touch in enumerate(sequence):
        used = (*touch.reads, *touch.updates, *touch.overwrites)
        h2d += sum(block not in resident for block in (*touch.reads, *touch.updates))
        dirty.update(touch.updates, touch.overwrites)
        for block, need in zip(used, needs[now], strict=True):
            resident[block] = need
            heapq.heappush(queue, (-need, block))
        kept = []  # an operation's own blocks stay while it runs, if they fit at all
        while len(resident) > capacity:
            furthest, block = heapq.heappop(queue)
            if resident.get(block) != -furthest:
                continue  # an entry from before the block's newest use
            if block in used and len(used) <= capacity:
                kept.append((furthest, block))
                continue
            del resident[block]
            d2h += block in dirty and -furthest < len(sequence)
            dirty.discard(block)
        for entry in kept:
            heapq.heappush(queue, entry)
    return Traffic(h2d * BLOCK_BYTES, d2h * BLOCK_BYTES)


def _next_needs(sequence: Sequence[Touch]) -> tuple[list[list[int]], dict[int, int]]:
    """Who needs a block's contents next: after each use of an operation; at the start.

    len(sequence) where nobody does, because they are overwritten first or never used.
    """
    never = len(sequence)
    upcoming: dict[int, int] = {}
    needs: list[list[int]] = [[] for _ in sequence]
    for now in range(len(sequence) - 1, -1, -1):
        touch = sequence[now]
        used = (*touch.reads, *touch.updates, *touch.overwrites)
        needs[now] = [upcoming.get(block, never) for block in used]
        for block in (*touch.reads, *touch.updates):
            upcoming[block] = now
        for block in touch.overwrites:
            upcoming[block] = never
    return needs, upcoming


def floor_seconds(compute_seconds: float, traffic: Traffic, link_bytes_per_second: float) -> float:
    """max(compute, bytes over the link) for the stretch that both describe."""
    return max(compute_seconds, traffic.h2d_bytes / link_bytes_per_second)
