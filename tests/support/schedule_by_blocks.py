"""The schedule of a device, block by block: the definition of the rule of docs/schedule.md.

The faster schedule.c handles runs of consecutive blocks at once, not single blocks.
tests/sim/test_sim_schedule_rule.py checks that both make the same schedules.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

BLOCK_BYTES = 2 << 20
SPARE_PERCENT = 3
NEVER = 1 << 62


@dataclass(frozen=True)
class Bounds:
    """Bounds of a schedule. `entries`, `blocks`: maximum per list. `ahead`: an operation counts as
    executed once later operations have taken this many blocks. `waiting`: most listed evictions
    that wait for an operation. `pace_bytes`: bytes of earlier arrivals that may be unfinished when
    an eviction starts. `slices`: most blocks per entry, to the GPU and to the host. `clean`: an
    entry of clean blocks may have at least this many."""

    entries: int = 256
    blocks: int = 512
    waiting: int = 128
    ahead: int = 512
    pace_bytes: int = 96 << 20
    slices: tuple[int, int] = (8, 8)
    clean: int = 8


@dataclass(frozen=True)
class Block:
    """A block. stays: its eviction would cost a copy. clean: its last eviction cost no copy."""

    number: int
    slot: int = 0
    length_bytes: int = BLOCK_BYTES
    stays: bool = False
    clean: bool = False


@dataclass(frozen=True)
class Use:
    """An operation's use of a block. `due`: the block's place, "away", "maybe evicted" or "there".
    It is "" unless this operation is the next user and no transfer of the block is in flight.
    `again`: the next operation that needs the contents; 0: none."""

    block: Block
    due: str = ""
    again: int = 0


@dataclass(frozen=True)
class Operation:
    """An issued or predicted operation. `anew`: blocks that it rewrites after a discard in the
    plan. `frees`: blocks discarded after it. `larger`: it needs more than the budget. `predicted`:
    not issued."""

    seq: int
    uses: Sequence[Use]
    stream: int = 0
    anew: int = 0
    frees: int = 0
    larger: bool = False
    predicted: bool = False

    def takes(self) -> int:
        """Returns the blocks of memory that the operation takes."""
        return sum(use.due == "away" for use in self.uses) + self.anew


@dataclass(frozen=True)
class Wait:
    """A condition: operation `seq` has executed (0: none), a total of `left_bytes` has left, and
    `ended_bytes` of arrivals have ended (moved or refused)."""

    seq: int = 0
    stream: int = 0
    left_bytes: int = 0
    ended_bytes: int = 0


@dataclass(frozen=True)
class Device:
    """A device; counts are in blocks. `away`: blocks of live ranges that are not on the device.
    `idle`: its blocks that no known operation uses, in order of eviction. `discarded`: the
    condition that ends the discards in flight. `ended_bytes`: ended bytes of arrivals, including
    those in flight. `discard_stream`: the stream that executes discards; 0: the stream of the
    operation before them."""

    budget: int
    there: int
    arriving: int = 0
    leaving: int = 0
    discarding: int = 0
    away: int = 0
    idle: Sequence[Block] = ()
    discarded: Wait = Wait()
    discard_stream: int = 0
    left_bytes: int = 0
    leaving_bytes: int = 0
    ended_bytes: int = 0


@dataclass
class Entry:
    """Consecutive blocks of one range. need: operation that an arrival serves; 0: eviction."""

    first: int
    blocks: int
    slot: int
    need: int
    wait: Wait
    length_bytes: int


@dataclass
class Listed:
    """A list of the schedule. slice: most blocks per entry. clean: as in Bounds."""

    entries_left: int
    blocks_left: int
    slice: int
    clean: int
    entries: list[Entry] = field(default_factory=list)

    def add(self, block: Block, need: int, wait: Wait) -> bool:
        """Adds a block to the last entry or to a new one. Returns False if the list is full."""
        if self.blocks_left == 0:
            return False
        if self.entries and self._joins(self.entries[-1], block, need, wait):
            last = self.entries[-1]
            last.first = min(last.first, block.number)
            last.blocks += 1
            last.length_bytes += block.length_bytes
            later = max(last.wait, wait, key=lambda one: one.seq)
            left_bytes = max(last.wait.left_bytes, wait.left_bytes)
            last.wait = Wait(later.seq, later.stream, left_bytes, last.wait.ended_bytes)
        elif self.entries_left > 0:
            self.entries.append(Entry(block.number, 1, block.slot, need, wait, block.length_bytes))
            self.entries_left -= 1
        else:
            return False
        self.blocks_left -= 1
        return True

    def has_place(self, block: Block, need: int) -> bool:
        """Returns whether the list has space for the block, whatever the block waits for."""
        joins = bool(self.entries) and self._is_beside(self.entries[-1], block, need)
        return self.blocks_left > 0 and (joins or self.entries_left > 0)

    def _is_beside(self, last: Entry, block: Block, need: int) -> bool:
        behind, front = block.number == last.first + last.blocks, block.number == last.first - 1
        most = max(self.slice, self.clean) if block.clean else self.slice
        if not (behind or (front and not need)) or last.blocks >= most:
            return False
        return (last.slot, last.need) == (block.slot, need)

    def _joins(self, last: Entry, block: Block, need: int, wait: Wait) -> bool:
        if not self._is_beside(last, block, need):
            return False
        if not need:
            return last.wait.seq == wait.seq
        return 0 in (last.wait.seq, wait.seq) or last.wait.stream == wait.stream


@dataclass
class Room:
    """Free memory for `blocks` blocks after `wait`. `step_bytes`: each of these blocks also waits
    until this many more bytes have left."""

    blocks: int
    wait: Wait
    step_bytes: int = 0


class Schedule:
    """The lists `arrivals` and `departures`, from a plan for the first `known` operations. Later
    operations only show when blocks are needed. short_of_ops: more known operations would extend
    the schedule."""

    def __init__(
        self, device: Device, operations: Sequence[Operation], known: int, bounds: Bounds
    ) -> None:
        self.device, self.bounds = device, bounds
        self.operations = operations[:known]
        to_gpu, to_host = (
            Listed(bounds.entries, bounds.blocks, most, bounds.clean) for most in bounds.slices
        )
        self.coming, self.going = to_gpu, to_host
        # `there`: blocks on the device that may leave, latest next use first. `staying`: blocks
        # that cost a copy and that predicted operations need; they leave after the others. `used`:
        # blocks used by operations that count as executed.
        self.there = [(NEVER, block) for block in device.idle]
        self.staying: list[tuple[int, Block]] = []
        for op in reversed(operations):
            due = [use.block for use in op.uses if use.due in ("there", "maybe evicted")]
            for block in reversed(due):
                stays = block.stays and op.predicted
                (self.staying if stays else self.there).append((op.seq, block))
        self.used: list[tuple[int, Operation, Block]] = []
        self.at = self.executed = 0  # index of the current operation; number of executed ones
        self.taken = [0, *accumulate(op.takes() for op in self.operations)]
        self.rooms: list[Room] = []
        self.left_bytes = device.left_bytes + device.leaving_bytes
        self.horizon = NEVER  # first operation that uses an evicted block
        self.ended_bytes = device.ended_bytes  # when all listed arrivals have ended
        self.waiting, self.full, self.paced = 0, False, False
        self.begin()
        self.paced = not any(op.larger for op in operations)
        self.short_of_ops = self.plan()
        self.paced = False
        if self.short_of_ops:
            self.keep_spare()
        self.arrivals = to_gpu.entries
        # Evictions that may start at once come first, then the others in order of operations.
        self.departures = sorted(to_host.entries, key=lambda entry: entry.wait.seq)
        self.set_paces(to_host.entries)

    def begin(self) -> None:
        """Finds the free memory before the first operation: free blocks, discards in flight and
        evictions in flight. Blocks above the budget leave first."""
        device = self.device
        occupied = device.there + device.arriving + device.leaving + device.discarding
        free = device.budget - occupied
        for _ in range(-(free + device.leaving)):
            if not self.leave(0):
                break
        owed = max(-free, 0)  # these only bring the device down to its budget
        owed_bytes = Wait(left_bytes=device.left_bytes + owed * BLOCK_BYTES)
        self.add_room(free, Wait())
        self.add_room(device.discarding, device.discarded)
        self.add_room(device.leaving - owed, owed_bytes, BLOCK_BYTES)

    def plan(self) -> bool:
        """Serves the operations in order. Returns False if the plan ends before the last one."""
        for at, op in enumerate(self.operations):
            self.at = at
            if op.seq >= self.horizon:
                return False
            while self.executed < self.at and self.taken_by_later_operations() >= self.bounds.ahead:
                self.execute()
            if op.larger:
                self.fill_up(op)
                return False
            if not self.bring(op, NEVER) or not all(self.take_room(op) for _ in range(op.anew)):
                return False
            stream = self.device.discard_stream or op.stream
            self.add_room(op.frees, Wait(op.seq, stream))
        return True

    # ---- arrivals

    def bring(self, op: Operation, most: int) -> bool:
        """Lists the arrivals of the operation's missing blocks; at most `most` blocks that take
        free memory. A block that the driver may have evicted takes none, because its memory is
        already counted. Returns False if there is no memory for a block."""
        for use in op.uses:
            wait: Wait | None = Wait()
            if use.due == "away" and most > 0:
                most -= 1
                self.paced = self.paced and self.coming.has_place(use.block, op.seq)
                wait = self.take_room(op)
                self.paced = self.paced and wait is not None and wait.seq == 0
            elif use.due != "maybe evicted":
                continue
            if wait is None:
                return False
            if self.coming.add(use.block, op.seq, wait):  # a full list only takes the memory
                self.ended_bytes += use.block.length_bytes
        return True

    def fill_up(self, op: Operation) -> None:
        """Brings blocks of an operation larger than the budget up to the budget; faults bring the
        rest."""
        there = sum(use.due in ("there", "maybe evicted") for use in op.uses)
        room = self.device.budget - self.device.arriving - there
        if room > 0:
            self.bring(op, room)

    # ---- free memory

    def add_room(self, blocks: int, wait: Wait, step_bytes: int = 0) -> None:
        if blocks > 0:
            self.rooms.append(Room(blocks, wait, step_bytes))

    def take_room(self, op: Operation) -> Wait | None:
        """Takes memory for an arrival: the first free memory, else the memory of an eviction.
        Returns the condition of this memory; None if no block may leave."""
        if not self.rooms:
            return Wait(left_bytes=self.left_bytes) if self.leave(op.seq) else None
        wait, step_bytes = self.rooms[0].wait, self.rooms[0].step_bytes
        wait = Wait(wait.seq, wait.stream, wait.left_bytes + step_bytes)
        self.rooms[0].wait = wait
        self.rooms[0].blocks -= 1
        if self.rooms[0].blocks == 0:
            del self.rooms[0]
        return wait

    # ---- evictions

    def leave(self, need: int) -> bool:
        """Lists the eviction of the block with the latest next use: a block on the device, or one
        used by an operation that counts as executed. Its next use must be more than 1.5 times as
        far away as operation `need`. Counts further operations as executed until there is such a
        block. Returns False if no block may leave."""
        if need:
            need += (need - self.operations[0].seq) // 2
        while not self.full:
            if not self.there or self.there[0][0] <= need:
                self.there, self.staying = self.staying or self.there, []
            there = self.there[0][0] if self.there else 0
            used = self.used[0][0] if self.used else 0
            if max(there, used) > need:
                break
            if self.executed == self.at:
                return False
            self.execute()
        if self.full:
            return False
        if used > there:
            again, op, block = self.used.pop(0)
            gone = self.let_go(block, Wait(op.seq, op.stream, 0, self.bytes_before_eviction()))
        else:
            again, block = self.there.pop(0)
            gone = self.let_go(block, Wait(0, 0, 0, self.bytes_before_eviction()))
        if gone:
            self.horizon = min(self.horizon, again)
        self.full = not gone
        return gone

    def bytes_before_eviction(self) -> int:
        """Returns the bytes of arrivals that must have ended before an eviction: all listed ones,
        except for Bounds.pace_bytes. Returns 0 after an arrival that waits for an operation or is
        not listed, and before an operation larger than the budget."""
        return max(0, self.ended_bytes - self.bounds.pace_bytes) if self.paced else 0

    def set_paces(self, asked: Sequence[Entry]) -> None:
        """Gives each sorted departure the pace of the entry that was at the same position, in
        bytes, before sorting."""
        paces = [entry.wait.ended_bytes for entry in asked]
        ends = list(accumulate(entry.length_bytes for entry in asked))
        before = 0
        for entry in self.departures:
            pace = paces[bisect_right(ends, before)]
            entry.wait = replace(entry.wait, ended_bytes=pace)
            before += entry.length_bytes

    def let_go(self, block: Block, wait: Wait) -> bool:
        """Lists an eviction and counts its bytes as left. Lists only the first `Bounds.waiting`
        blocks that wait for an operation. Returns False if the list is full."""
        if not wait.seq or self.waiting < self.bounds.waiting:
            self.waiting += wait.seq > 0
            if not self.going.add(block, 0, wait):
                return False
        self.left_bytes += block.length_bytes
        return True

    def taken_by_later_operations(self) -> int:
        """Returns the blocks taken by the operations not yet executed, except the first of them."""
        return self.taken[self.at + 1] - self.taken[self.executed + 1]

    def execute(self) -> None:
        """Counts one more operation as executed. Its blocks with the latest next use may then
        leave."""
        op = self.operations[self.executed]
        self.executed += 1
        last = max((use.again for use in op.uses), default=0)
        if last > 0:
            self.used += [(last, op, use.block) for use in op.uses if use.again == last]
        self.used.sort(key=lambda used: -used[0])  # among equals the first executed one

    def keep_spare(self) -> None:
        """Evicts blocks that no known operation needs until SPARE_PERCENT of the budget is free."""
        device = self.device
        blocks = device.there + device.arriving + device.leaving + device.discarding + device.away
        wanted = min(device.budget * SPARE_PERCENT // 100, blocks - device.budget)
        wanted -= sum(room.blocks for room in self.rooms)
        for again, block in self.there[: max(wanted, 0)]:
            if again != NEVER or not self.let_go(block, Wait()):
                return
