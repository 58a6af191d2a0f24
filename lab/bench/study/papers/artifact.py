"""Simulates G10's method on the machine of its public artifact, at the level of tensors.

DESIGN
  The machine follows github.com/platformxlab/G10 (src/simulation*.cc, src/resources/genconfigs.py),
  and was written independently from its description. It has GPU memory of 40 GiB, 15.754 GB/s each
  way, host memory of 128 GiB and flash with 3.2 GB/s each way. Memory moves in batches; at most a
  fifth of a batch is flash's. Each tensor has its own addresses. If pages are missing, a kernel
  lasts as long as the artifact's measured times with faults give (_fault_seconds), and at least
  until the pages arrive. Eviction is first in, first out. That is the effect of the artifact's
  "LRU", because a kernel's use of resident pages changes no order there. Pages are CHUNK_BYTES long
  instead of 4 KiB. Batches are longer by the same factor, so allocations of the schedule in free
  memory are there at once.

  Unified Memory does not know deaths: dead contents are evicted, and return before they are
  overwritten. G10 frees dead contents, allocates memory for new contents in advance, and carries
  out the schedule of study/greedy.py.

  Two iterations run from an empty machine. The artifact publishes its faster one, which its bytes
  identify: only in the second do arrivals equal evictions. Here the other iteration may be faster
  (ViT under Unified Memory).
"""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
from study import greedy
from study.sim_g10 import HOST_BYTES, MEMORY_BYTES
from study.sim_g10 import RATE as LINK_GBPS

GIB: Final = 1 << 30
CHUNK_BYTES: Final = 2 << 20
FLASH_GBPS: Final = 3.2
FAULT_US: Final = 45
FLASH_US: Final = 20
"""Latency of a fault, and the additional latency of flash."""
ALLOCATE_S_PER_BYTE: Final = 8.14e-13

BATCH: Final = 5
"""Chunks each way in a batch."""
FLASH_BATCH: Final = int(BATCH / LINK_GBPS * FLASH_GBPS)
BATCH_SECONDS: Final = BATCH * CHUNK_BYTES / LINK_GBPS / 1e9
NEW_BATCH: Final = int(BATCH_SECONDS / (ALLOCATE_S_PER_BYTE * CHUNK_BYTES))

ITERATIONS: Final = 2
NOWHERE, GPU, HOST, FLASH = range(4)


@dataclass(frozen=True)
class Kernel:
    """A kernel. Seconds: with all in memory, with its inputs missing, with all missing."""

    seconds: float
    seconds_inputs_missing: float
    seconds_all_missing: float
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    @property
    def tensors(self) -> tuple[int, ...]:
        return self.inputs + self.outputs


@dataclass(frozen=True)
class Trace:
    """One iteration. Tensors have numbers."""

    kernels: list[Kernel]
    bytes_of: dict[int, int]
    persistent: frozenset[int]

    @property
    def seconds(self) -> float:
        return sum(one.seconds for one in self.kernels)

    def uses(self) -> dict[int, list[int]]:
        """Returns the kernels of each tensor, in order."""
        found: dict[int, list[int]] = {}
        for i, kernel in enumerate(self.kernels):
            for tensor in kernel.tensors:
                found.setdefault(tensor, []).append(i)
        return found


@dataclass(frozen=True)
class Result:
    """Result of an iteration; GiB by tier."""

    seconds: float
    from_flash: float
    to_flash: float
    from_host: float
    to_host: float


class Move(NamedTuple):
    """A command of the schedule before a kernel. `to`: NOWHERE if the tensor is dead."""

    tensor: int
    to: int


def read(text: str | bytes) -> Trace:
    """Parses a JSON trace with the source's durations, including durations with faults."""
    raw: dict[str, Any] = json.loads(text)
    kernels = []
    for row in raw["kernels"]:
        inputs = tuple(dict.fromkeys(row["reads"]))
        outputs = tuple(t for t in dict.fromkeys(row["writes"]) if t not in set(inputs))
        plain = float(row["duration_us"])
        some = max(plain, float(row["uvm_input_fault_duration_us"]))
        every = max(some, float(row["uvm_all_fault_duration_us"]))
        kernels.append(Kernel(plain / 1e6, some / 1e6, every / 1e6, inputs, outputs))
    sizes = {int(t["id"]): int(t["bytes"]) for t in raw["tensors"]}
    persistent = frozenset(int(t["id"]) for t in raw["tensors"] if t["persistent"])
    return Trace(kernels, sizes, persistent)


def unified_memory(trace: Trace) -> list[Result]:
    """Returns the iterations under Unified Memory, from an empty machine."""
    return iterations(trace, [])


def scheduled(trace: Trace) -> list[Result]:
    """Returns the iterations under G10's schedule."""
    return iterations(trace, moves(trace))


def iterations(trace: Trace, commands: Sequence[Sequence[Move]]) -> list[Result]:
    """Runs the iterations. `commands`: before each kernel; empty for Unified Memory."""
    machine = _Machine(trace, commands)
    return [machine.iteration() for _ in range(ITERATIONS)]


# ---- the schedule --------------------------------------------------------------------------


def moves(trace: Trace) -> list[list[Move]]:
    """Returns G10's commands before each kernel."""
    count = len(trace.kernels)
    found: list[list[Move]] = [[] for _ in range(count)]
    iteration = _iteration(trace)
    begins = np.concatenate(([0.0], np.cumsum(iteration.seconds)))
    for tensor, kernels in trace.uses().items():
        if tensor in trace.persistent:
            continue
        ready = begins[kernels[0]] - trace.bytes_of[tensor] * ALLOCATE_S_PER_BYTE
        ahead = int(np.searchsorted(begins, ready, "right")) - 1
        found[max(0, ahead)].append(Move(tensor, GPU))
        if kernels[-1] + 1 < count:
            found[kernels[-1] + 1].append(Move(tensor, NOWHERE))
        else:
            found[0].insert(0, Move(tensor, NOWHERE))
    link, rate = (gbps * GIB / 1e9 for gbps in (LINK_GBPS, FLASH_GBPS))  # as the artifact plans
    flash = greedy.Flash(HOST_BYTES, rate, rate, FAULT_US + FLASH_US, FAULT_US + FLASH_US)
    for period in greedy.schedule(iteration, MEMORY_BYTES, link, link, flash):
        tensor = period.span[0]
        to = FLASH if period.past_host else HOST
        found[(period.begin + 1) % count].append(Move(tensor, to))
        found[period.comes % count].append(Move(tensor, GPU))
    return found


def _iteration(trace: Trace) -> greedy.Iteration:
    count = len(trace.kernels)
    live = np.zeros(count)
    periods = []
    for tensor, kernels in trace.uses().items():
        length_bytes = trace.bytes_of[tensor]
        once = sorted(set(kernels))
        pairs = list(pairwise(once))
        if tensor in trace.persistent:
            pairs.append((once[-1], once[0] + count))
            live += length_bytes
        else:
            live[once[0] : once[-1] + 1] += length_bytes
        periods += [
            greedy.Period((tensor, 0, length_bytes), begin, end)
            for begin, end in pairs
            if end - begin > 1
        ]
    seconds = np.array([kernel.seconds for kernel in trace.kernels])
    return greedy.Iteration(0, count, list(range(count)), seconds, live, periods, [])


# ---- the machine ---------------------------------------------------------------------------


@dataclass
class _Batch:
    """Chunks that a batch has carried."""

    ins: int = 0
    ins_flash: int = 0
    outs: int = 0
    outs_flash: int = 0
    new: int = 0


@dataclass
class _Queues:
    """Chunks that wait for their transfer, by faults and by commands."""

    fault_flash: deque[int] = field(default_factory=deque)
    fault_host: deque[int] = field(default_factory=deque)
    fault_new: deque[int] = field(default_factory=deque)
    fetch_flash: deque[int] = field(default_factory=deque)
    fetch_host: deque[int] = field(default_factory=deque)
    fetch_new: deque[int] = field(default_factory=deque)
    leave_flash: deque[int] = field(default_factory=deque)
    leave_host: deque[int] = field(default_factory=deque)

    def are_empty(self) -> bool:
        return not any(vars(self).values())


class _Machine:
    def __init__(self, trace: Trace, commands: Sequence[Sequence[Move]]) -> None:
        self.trace, self.commands = trace, commands
        self.chunks: dict[int, range] = {}
        count = 0
        for tensor, length in trace.bytes_of.items():
            chunks = round(length / CHUNK_BYTES)  # none for small tensors: they take no memory
            self.chunks[tensor] = range(count, count + chunks)
            count += chunks
        self.tensor_of = [t for t, chunks in self.chunks.items() for _ in chunks]
        self.place = bytearray(count)
        self.moving = bytearray(count)
        self.order: dict[int, None] = {}
        """Resident chunks, oldest arrival first; without chunks that are to leave."""
        self.free = MEMORY_BYTES // CHUNK_BYTES
        self.host_free = HOST_BYTES // CHUNK_BYTES
        self.queues = _Queues()
        self.now = 0.0
        self.next_batch = 0.0
        self.needed: frozenset[int] = frozenset()
        self.awaited: set[int] = set()
        self.counted = [0, 0, 0, 0]

    def iteration(self) -> Result:
        began, self.counted = self.now, [0, 0, 0, 0]
        for i, kernel in enumerate(self.trace.kernels):
            self._kernel(kernel, self.commands[i] if self.commands else ())
        gib = [count * CHUNK_BYTES / GIB for count in self.counted]
        return Result(self.now - began, *gib)

    def _kernel(self, kernel: Kernel, commands: Sequence[Move]) -> None:
        begin, end = self.now, None
        self.needed = frozenset(kernel.tensors)
        for move in commands:
            self._command(move)
        while True:
            missing = self._fault(kernel)
            if missing is None:
                break
            if end is None:
                end = begin + missing
            while self.awaited:
                self._batch()
        if end is None:
            end = begin + kernel.seconds
        end = max(end, self.now)
        while self.next_batch <= end and not self.queues.are_empty():
            self._batch()
        self.now = end

    def _command(self, move: Move) -> None:
        place, moving, queues = self.place, self.moving, self.queues
        for chunk in self.chunks[move.tensor]:
            if moving[chunk]:
                continue
            at = place[chunk]
            if move.to == NOWHERE:
                if at == GPU:
                    del self.order[chunk]
                    self.free += 1
                elif at == HOST:
                    self.host_free += 1
                place[chunk] = NOWHERE
            elif move.to == GPU and at != GPU:
                if at == NOWHERE and self.free and not queues.fetch_new:
                    self._arrive(chunk)
                    continue
                moving[chunk] = 1
                (queues.fetch_new, None, queues.fetch_host, queues.fetch_flash)[at].append(chunk)
            elif move.to != GPU and at == GPU:
                moving[chunk] = 1
                del self.order[chunk]
                (queues.leave_host if move.to == HOST else queues.leave_flash).append(chunk)

    def _fault(self, kernel: Kernel) -> float | None:
        """Requests the missing chunks; returns the kernel's seconds, or None if all are there."""
        place, moving, queues = self.place, self.moving, self.queues
        shares = []
        for tensors in (kernel.inputs, kernel.outputs):
            pages = [0, 0, 0, 0]
            for tensor in tensors:
                for chunk in self.chunks[tensor]:
                    if moving[chunk]:
                        self.awaited.add(chunk)
                        continue
                    at = place[chunk]
                    pages[at] += 1
                    if at == GPU:
                        continue
                    moving[chunk] = 1
                    self.awaited.add(chunk)
                    (queues.fault_new, None, queues.fault_host, queues.fault_flash)[at].append(
                        chunk
                    )
            total = sum(len(self.chunks[t]) for t in tensors)
            missing = sum(pages) - pages[GPU]
            size = sum(self.trace.bytes_of[t] for t in tensors)
            shares.append((size * missing / total if total else 0.0,
                           pages[FLASH] / missing if missing else 0.0, size))  # fmt: skip
        if not self.awaited:
            return None
        return kernel.seconds + _fault_seconds(kernel, *shares)

    def _batch(self) -> None:
        """Carries out a batch, at its time."""
        self.now = max(self.now, self.next_batch)
        self.next_batch = self.now + BATCH_SECONDS
        batch, queues = _Batch(), self.queues
        while queues.leave_flash and batch.outs < BATCH and batch.outs_flash < FLASH_BATCH:
            self._leave(queues.leave_flash.popleft(), FLASH, batch)
        while queues.leave_host and batch.outs < BATCH:
            to = HOST if self.host_free else FLASH
            if to == FLASH and batch.outs_flash >= FLASH_BATCH:
                break
            self._leave(queues.leave_host.popleft(), to, batch)
        self._fetch(queues.fault_flash, batch)
        self._fetch(queues.fault_host, batch)
        self._fetch(queues.fault_new, batch)
        self._fetch(queues.fetch_flash, batch)
        self._fetch(queues.fetch_host, batch)
        self._fetch(queues.fetch_new, batch)

    def _fetch(self, queue: deque[int], batch: _Batch) -> None:
        while queue:
            chunk = queue[0]
            at = self.place[chunk]
            if at == NOWHERE:
                if batch.new >= NEW_BATCH:
                    return
            elif batch.ins >= BATCH or (at == FLASH and batch.ins_flash >= FLASH_BATCH):
                return
            if not self.free and not self._make_room(batch):
                return
            queue.popleft()
            if at == NOWHERE:
                batch.new += 1
            else:
                batch.ins += 1
                batch.ins_flash += at == FLASH
                self.counted[0 if at == FLASH else 2] += 1
                self.host_free += at == HOST
            self._arrive(chunk)

    def _arrive(self, chunk: int) -> None:
        self.free -= 1
        self.place[chunk] = GPU
        self.moving[chunk] = 0
        self.order[chunk] = None
        self.awaited.discard(chunk)

    def _make_room(self, batch: _Batch) -> bool:
        to = HOST if self.host_free else FLASH
        if batch.outs >= BATCH or (to == FLASH and batch.outs_flash >= FLASH_BATCH):
            return False
        chunk = next(iter(self.order), None)
        if chunk is None:
            return False
        del self.order[chunk]
        self._leave(chunk, to, batch)
        return True

    def _leave(self, chunk: int, to: int, batch: _Batch) -> None:
        """Evicts the chunk; if the kernel needs it, requests it again."""
        batch.outs += 1
        batch.outs_flash += to == FLASH
        self.counted[1 if to == FLASH else 3] += 1
        self.host_free -= to == HOST
        self.free += 1
        self.place[chunk] = to
        needed = self.tensor_of[chunk] in self.needed
        self.moving[chunk] = needed
        if needed:
            self.awaited.add(chunk)
            (self.queues.fault_host if to == HOST else self.queues.fault_flash).append(chunk)


Share = tuple[float, float, int]
"""Missing bytes, their share on flash, and all bytes."""


def _fault_seconds(kernel: Kernel, inputs: Share, outputs: Share) -> float:
    """Returns the seconds that faults add: missing bytes / the rate of faults of the measured
    kernel. The rate is at most the link's. On flash, its latency lowers the rate, which is at most
    flash's. Both tiers work at the same time. Like the artifact, this counts only whole seconds of
    the measured times, so the link's rate applies nearly always."""
    plain, some, every = map(
        math.floor, (kernel.seconds, kernel.seconds_inputs_missing, kernel.seconds_all_missing)
    )
    spans = every - some, some - plain
    link, flash = LINK_GBPS * 1e9, FLASH_GBPS * 1e9
    rates = [
        share[2] / span if span > 0 else float("inf")
        for span, share in zip(spans, (inputs, outputs), strict=True)
    ]
    slower = FAULT_US / (FAULT_US + FLASH_US)
    flash_rates = [
        min(rate * slower, flash) if share[1] else 0.0
        for rate, share in zip(rates, (inputs, outputs), strict=True)
    ]
    left = link - max(flash_rates)
    seconds = [0.0, 0.0]
    for (missing, on_flash, _), rate, flash_rate in zip(
        (inputs, outputs), rates, flash_rates, strict=True
    ):
        if not missing:
            continue
        seconds[0] += missing * (1 - on_flash) / min(rate, left)
        if on_flash:
            seconds[1] += missing * on_flash / flash_rate
    return max(seconds)
