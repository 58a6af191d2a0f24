"""The schedule of a device, block by block: the definition of the rule of docs/schedule.md.

schedule.c makes the same schedule by runs of blocks; tests/sim/test_sim_schedule_rule.py
holds them equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

BLOCK_BYTES = 2 << 20
SPARE_PERCENT = 3
NEVER = 1 << 62


@dataclass(frozen=True)
class Bounds:
    """ahead: in blocks, how much room operations take before one that comes earlier counts as
    executed. waiting: blocks listed to leave that wait for an operation. slices: most blocks of
    an entry, to the GPU and to the host."""

    entries: int = 256
    blocks: int = 512
    waiting: int = 128
    ahead: int = 512
    slices: tuple[int, int] = (8, 8)


@dataclass(frozen=True)
class Block:
    number: int
    slot: int = 0
    length_bytes: int = BLOCK_BYTES


@dataclass(frozen=True)
class Use:
    """due: "away", "maybe evicted" or "there", if the operation is the next to use the block and
    nothing is under way with it. again: the operation that needs its contents again, 0: none."""

    block: Block
    due: str = ""
    again: int = 0


@dataclass(frozen=True)
class Operation:
    """An issued or predicted operation. anew: blocks it writes whose contents have been discarded
    on the way. frees: blocks that are discarded behind it. larger: it is too large for the budget.
    """

    seq: int
    uses: Sequence[Use]
    stream: int = 0
    anew: int = 0
    frees: int = 0
    larger: bool = False

    def takes(self) -> int:
        """Blocks of room."""
        return sum(use.due == "away" for use in self.uses) + self.anew


@dataclass(frozen=True)
class Wait:
    """An operation has executed (0: none), and so many bytes have left the device in all."""

    seq: int = 0
    stream: int = 0
    left_bytes: int = 0


@dataclass(frozen=True)
class Device:
    """Counts of blocks; idle: those on the device that no known operation uses, the first to leave
    first. discarded: when the discards under way have ended. discard_stream: whose progress tells
    of discards; 0: that of the operation before them."""

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


@dataclass
class Entry:
    """Consecutive blocks that come for the operation `need`, or leave (0)."""

    first: int
    blocks: int
    slot: int
    need: int
    wait: Wait


@dataclass
class Listed:
    """Entries one way, at most so many, and of so many blocks."""

    entries_left: int
    blocks_left: int
    slice: int
    entries: list[Entry] = field(default_factory=list)

    def add(self, block: Block, need: int, wait: Wait) -> bool:
        """The block joins the entry in front of it, or begins one; False: no place is left."""
        if self.blocks_left == 0:
            return False
        if self.entries and self._joins(self.entries[-1], block, need, wait):
            last = self.entries[-1]
            last.first = min(last.first, block.number)
            last.blocks += 1
            later = max(last.wait, wait, key=lambda one: one.seq)
            last.wait = Wait(later.seq, later.stream, max(last.wait.left_bytes, wait.left_bytes))
        elif self.entries_left > 0:
            self.entries.append(Entry(block.number, 1, block.slot, need, wait))
            self.entries_left -= 1
        else:
            return False
        self.blocks_left -= 1
        return True

    def _joins(self, last: Entry, block: Block, need: int, wait: Wait) -> bool:
        behind, front = block.number == last.first + last.blocks, block.number == last.first - 1
        if not (behind or (front and not need)) or last.blocks >= self.slice:
            return False
        if (last.slot, last.need) != (block.slot, need):
            return False
        if not need:
            return last.wait.seq == wait.seq
        return 0 in (last.wait.seq, wait.seq) or last.wait.stream == wait.stream


@dataclass
class Room:
    """So many blocks once the wait is over. step_bytes: so much more has to leave for each."""

    blocks: int
    wait: Wait
    step_bytes: int = 0


class Schedule:
    """`arrivals` and `departures`, in order, over the first `known` of the operations; those
    behind them tell only when blocks are needed. short_of_ops: more of them would make it longer.
    """

    def __init__(
        self, device: Device, operations: Sequence[Operation], known: int, bounds: Bounds
    ) -> None:
        self.device, self.bounds = device, bounds
        self.operations = operations[:known]
        to_gpu, to_host = (Listed(bounds.entries, bounds.blocks, most) for most in bounds.slices)
        self.coming, self.going = to_gpu, to_host
        # What is there and may leave, needed last first; what operations of the walk have used.
        self.there = [(NEVER, block) for block in device.idle]
        for op in reversed(operations):
            due = [use.block for use in op.uses if use.due in ("there", "maybe evicted")]
            self.there += [(op.seq, block) for block in reversed(due)]
        self.used: list[tuple[int, Operation, Block]] = []
        self.at = self.executed = 0  # the walk's operation; how many count as executed
        self.taken = [0, *accumulate(op.takes() for op in self.operations)]
        self.rooms: list[Room] = []
        self.left_bytes = device.left_bytes + device.leaving_bytes
        self.horizon = NEVER  # the first operation that uses what leaves
        self.waiting, self.full = 0, False
        self.begin()
        self.short_of_ops = self.walk()
        if self.short_of_ops:
            self.keep_spare()
        self.arrivals = to_gpu.entries
        # What may leave at once comes first, the rest as operations execute.
        self.departures = sorted(to_host.entries, key=lambda entry: entry.wait.seq)

    def begin(self) -> None:
        """Room is what is free, what discards give back, and what is leaving. What is there beyond
        the budget leaves first."""
        device = self.device
        occupied = device.there + device.arriving + device.leaving + device.discarding
        free = device.budget - occupied
        for _ in range(-(free + device.leaving)):
            if not self.leave(0):
                break
        owed = max(-free, 0)  # of what is leaving, that is no room yet
        owed_bytes = Wait(left_bytes=device.left_bytes + owed * BLOCK_BYTES)
        self.add_room(free, Wait())
        self.add_room(device.discarding, device.discarded)
        self.add_room(device.leaving - owed, owed_bytes, BLOCK_BYTES)

    def walk(self) -> bool:
        """Over the operations in order; False: the walk ends before they do."""
        for at, op in enumerate(self.operations):
            self.at = at
            if op.seq >= self.horizon:
                return False
            while self.executed < self.at and self.taken_behind() >= self.bounds.ahead:
                self.execute()
            if op.larger:
                self.fill_up(op)
                return False
            if not self.bring(op, NEVER) or not all(self.bear(op) for _ in range(op.anew)):
                return False
            stream = self.device.discard_stream or op.stream
            self.add_room(op.frees, Wait(op.seq, stream))
        return True

    # ---- what comes

    def bring(self, op: Operation, most: int) -> bool:
        """What the operation lacks comes, at most so many blocks that take room. One that may have
        been evicted is prefetched without."""
        for use in op.uses:
            wait: Wait | None = Wait()
            if use.due == "away" and most > 0:
                most -= 1
                wait = self.take_room(op)
            elif use.due != "maybe evicted":
                continue
            if wait is None:
                return False
            self.coming.add(use.block, op.seq, wait)  # where there is no place, room is all
        return True

    def fill_up(self, op: Operation) -> None:
        """An operation too large for the budget is filled up to it; faults bring the rest."""
        there = sum(use.due in ("there", "maybe evicted") for use in op.uses)
        room = self.device.budget - self.device.arriving - there
        if room > 0:
            self.bring(op, room)

    # ---- room

    def add_room(self, blocks: int, wait: Wait, step_bytes: int = 0) -> None:
        if blocks > 0:
            self.rooms.append(Room(blocks, wait, step_bytes))

    def take_room(self, op: Operation) -> Wait | None:
        """The first room there is; else a block leaves for the one that comes. None: none may."""
        if not self.rooms:
            return Wait(left_bytes=self.left_bytes) if self.leave(op.seq) else None
        wait, step_bytes = self.rooms[0].wait, self.rooms[0].step_bytes
        wait = Wait(wait.seq, wait.stream, wait.left_bytes + step_bytes)
        self.rooms[0].wait = wait
        self.use_up(0)
        return wait

    def bear(self, op: Operation) -> bool:
        """A block written anew takes the newest room: mostly its own, of its discard."""
        if not self.rooms:
            return self.leave(op.seq)
        self.use_up(-1)
        return True

    def use_up(self, index: int) -> None:
        self.rooms[index].blocks -= 1
        if self.rooms[index].blocks == 0:
            del self.rooms[index]

    # ---- what leaves

    def leave(self, need: int) -> bool:
        """The block that is needed last leaves, and behind `need`: of those that are there, or
        of those that executed operations have used. Where there is none, the next operations of
        the walk count as executed."""
        while not self.full:
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
            gone = self.let_go(block, Wait(op.seq, op.stream))
        else:
            again, block = self.there.pop(0)
            gone = self.let_go(block, Wait())
        if gone:
            self.horizon = min(self.horizon, again)
        self.full = not gone
        return gone

    def let_go(self, block: Block, wait: Wait) -> bool:
        """False: the list has no place. Of what waits only the first are listed."""
        if not wait.seq or self.waiting < self.bounds.waiting:
            self.waiting += wait.seq > 0
            if not self.going.add(block, 0, wait):
                return False
        self.left_bytes += block.length_bytes
        return True

    def taken_behind(self) -> int:
        """Room that operations take behind the first that does not count as executed."""
        return self.taken[self.at + 1] - self.taken[self.executed + 1]

    def execute(self) -> None:
        """One more operation counts as executed; what it used and needs again last may leave."""
        op = self.operations[self.executed]
        self.executed += 1
        last = max((use.again for use in op.uses), default=0)
        if last > 0:
            self.used += [(last, op, use.block) for use in op.uses if use.again == last]
        self.used.sort(key=lambda used: -used[0])  # of equals the first that has executed

    def keep_spare(self) -> None:
        """Room for what nothing has announced: blocks that no known operation needs leave."""
        device = self.device
        blocks = device.there + device.arriving + device.leaving + device.discarding + device.away
        wanted = min(device.budget * SPARE_PERCENT // 100, blocks - device.budget)
        wanted -= sum(room.blocks for room in self.rooms)
        for again, block in self.there[: max(wanted, 0)]:
            if again != NEVER or not self.let_go(block, Wait()):
                return
