"""The floor: the least time of a stretch of operations on a GPU with a given memory. Pure.

DESIGN
Under any policy the kernels take their time. A block that is not resident when an operation uses it
crosses the link. So floor = max(compute, least bytes to the GPU / link bandwidth).

Least bytes is Belady's bound (IBM Systems Journal 5(2), 1966) for blocks of 2 MiB. With the future
known, the block with the furthest next use is evicted. Contents that are overwritten before they
are read leave and return for free (dead contents need no copy). The blocks that are resident at the
start may be chosen freely, so the bound also holds for iterations out of a long run. Under these
rules evicting the furthest next use is optimal, so the bound holds for every policy.

Bytes to the host on that schedule are given for comparison. They never exceed the bytes to the GPU:
only blocks that are needed again are written back.

Unified Memory has no clean blocks: except for the first time in the stretch, a block that returns
has left with a copy before. Those bytes share the link with the arrivals, at the duplex rate
(Rates).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pump.model.bounds import BLOCK_BYTES


@dataclass(frozen=True)
class Touch:
    """The blocks that an operation reads, reads and writes, or writes without reading."""

    reads: tuple[int, ...]
    updates: tuple[int, ...]
    overwrites: tuple[int, ...]


@dataclass(frozen=True)
class Traffic:
    """Bytes moved to the GPU and to the host. `first_bytes`: Bytes to the GPU for blocks that
    arrive for the first time in the stretch."""

    h2d_bytes: int
    d2h_bytes: int
    first_bytes: int = 0


def may_appear(blocks: Iterable[int]) -> list[Touch]:
    """Returns a lower bound for an operation that may write any of these blocks, or none.

    Their contents may be new and on the GPU without a transfer, and the blocks need not be resident
    together. So each is overwritten in its own operation.
    """
    return [Touch((), (), (block,)) for block in blocks]


def least_traffic(operations: Sequence[Touch], repeats: int, memory_bytes: int) -> Traffic:
    """Returns the least bytes to the GPU for `repeats` iterations, with the bytes to the host."""
    capacity = memory_bytes // BLOCK_BYTES
    sequence = list(operations) * repeats
    needs, first_needs = _next_needs(sequence)
    # The blocks that are needed first fill the memory at the start.
    order = sorted((need, block) for block, need in first_needs.items() if need < len(sequence))
    resident = {block: need for need, block in order[:capacity]}  # block -> its next need
    queue = [(-need, block) for block, need in resident.items()]  # the furthest need first
    heapq.heapify(queue)
    dirty = set(resident)  # the host's copy is outdated
    never_there = set(first_needs) - dirty
    h2d = d2h = first = 0
    for now, touch in enumerate(sequence):
        used = (*touch.reads, *touch.updates, *touch.overwrites)
        own = frozenset(used)
        came = [block for block in (*touch.reads, *touch.updates) if block not in resident]
        h2d += len(came)
        first += len(never_there.intersection(came))
        never_there.difference_update(used)
        dirty.update(touch.updates, touch.overwrites)
        for block, need in zip(used, needs[now], strict=True):
            resident[block] = need
            heapq.heappush(queue, (-need, block))
        kept = []  # an operation's own blocks stay while it runs, if they fit at all
        while len(resident) > capacity:
            furthest, block = heapq.heappop(queue)
            if resident.get(block) != -furthest:
                continue  # an entry that is older than the block's newest use
            if block in own and len(used) <= capacity:
                kept.append((furthest, block))
                continue
            del resident[block]
            d2h += block in dirty and -furthest < len(sequence)
            dirty.discard(block)
        for entry in kept:
            heapq.heappush(queue, entry)
    return Traffic(h2d * BLOCK_BYTES, d2h * BLOCK_BYTES, first * BLOCK_BYTES)


def _next_needs(sequence: Sequence[Touch]) -> tuple[list[list[int]], dict[int, int]]:
    """Returns the next operation that needs a block's contents: after each use, and at the start.

    len(sequence) if there is none, because the contents are overwritten first or never used.
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
    """Returns max(compute, bytes over the link) for the stretch that both describe."""
    return max(compute_seconds, traffic.h2d_bytes / link_bytes_per_second)


# ---- Unified Memory ------------------------------------------------------------


@dataclass(frozen=True)
class Rates:
    """Rates of a machine.

    `h2d`, `d2h`: Bytes per nanosecond of one direction, while the other is idle. `duplex_in`,
    `duplex_out`: The share of its rate that each direction keeps while both are busy. `cpu_in_ns`,
    `cpu_out_ns`: CPU time for each block. `threads`: The number of threads that share that work.
    """

    h2d: float
    d2h: float
    duplex_in: float
    duplex_out: float
    cpu_in_ns: float
    cpu_out_ns: float
    threads: int

    @staticmethod
    def of(values: Mapping[str, object], threads: int) -> Rates:
        """Returns the rates of a device profile's values (lab/pump_lab/profiles)."""

        def number(key: str) -> float:
            value = values[key]
            assert isinstance(value, (int, float))
            return float(value)

        host_ns = 1000 * number("uvm.host_factor")  # a profile's microsecond
        return Rates(
            number("link.prefetch_h2d_gbps"),
            number("link.copy_d2h_gbps"),
            number("link.duplex_in"),
            number("link.duplex_out"),
            # A prefetch's one pass or a fault, whichever costs the driver less.
            host_ns * min(number("uvm.prefetch_block_us"), number("uvm.fault_block_us")),
            # The driver's own eviction, or a prefetch to the CPU with its page tables.
            host_ns
            * min(
                number("uvm.evict_us"),
                number("uvm.prefetch_block_us") + 512 * number("uvm.cpu_pte_us"),
            ),
            threads,
        )


@dataclass(frozen=True)
class Floor:
    """Seconds for the stretch; each field is a bound by itself."""

    compute: float
    link: float
    cpu: float

    @property
    def seconds(self) -> float:
        """Returns the greatest of the bounds."""
        return max(self.compute, self.link, self.cpu)


def floor_of(compute_seconds: float, traffic: Traffic, rates: Rates) -> Floor:
    """Returns the floor on Unified Memory: compute, link in both directions, CPU work."""
    back = max(0, traffic.h2d_bytes - traffic.first_bytes)
    return Floor(
        compute_seconds,
        link_seconds(traffic.h2d_bytes, back, rates),
        (traffic.h2d_bytes * rates.cpu_in_ns + back * rates.cpu_out_ns)
        / (BLOCK_BYTES * rates.threads * 1e9),
    )


def link_seconds(h2d_bytes: int, d2h_bytes: int, rates: Rates) -> float:
    """Returns the seconds on the link. Both directions run at once, each slowed, while both have
    bytes. Then the rest runs undisturbed."""
    there, back = h2d_bytes / rates.h2d, d2h_bytes / rates.d2h
    shares = duplex_shares(rates)
    return max(there * shares[0] + back, there + back * shares[1]) / 1e9


def duplex_shares(rates: Rates) -> tuple[float, float]:
    """Returns the least share of each direction's uncontended time that adds to the other's time.

    With both directions in use, a time T carries duplex_in + duplex_out times the bytes of one
    direction in T. If that is less than 1, one direction after the other is faster.
    """
    if rates.duplex_in + rates.duplex_out <= 1:
        return 1.0, 1.0
    return (1 - rates.duplex_out) / rates.duplex_in, (1 - rates.duplex_in) / rates.duplex_out
