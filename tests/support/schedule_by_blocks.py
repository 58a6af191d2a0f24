"""The schedule of a device, block by block: the definition of the rule of docs/schedule.md.

schedule.c makes the same schedule by runs of blocks; tests/sim/test_sim_schedule_rule.py
holds them equal.
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
    """Bounds of a schedule. entries, blocks: of each list. ahead: an operation counts as executed
    once the operations behind it take so many blocks of room. waiting: most listed blocks that
    leave only when an operation has executed. pace_bytes: so much of what is listed to come in
    front may not have ended yet when a block leaves. slices: most blocks of an entry, to the GPU
    and to the host. clean: at least so many where they were clean."""

    entries: int = 256
    blocks: int = 512
    waiting: int = 128
    ahead: int = 512
    pace_bytes: int = 96 << 20
    slices: tuple[int, int] = (8, 8)
    clean: int = 8


@dataclass(frozen=True)
class Block:
    """A block. stays: its departure would cost a copy; clean: the last one cost none."""

    number: int
    slot: int = 0
    length_bytes: int = BLOCK_BYTES
    stays: bool = False
    clean: bool = False


@dataclass(frozen=True)
class Use:
    """One operation's use of one block. due: where the block is, "away", "maybe evicted" or
    "there"; "" unless this operation is the next to use it and no transfer of it is under way.
    again: the operation that needs its contents next; 0: none."""

    block: Block
    due: str = ""
    again: int = 0


@dataclass(frozen=True)
class Operation:
    """An issued or predicted operation. anew: blocks that it writes after a discard that lies
    ahead in the walk. frees: blocks that are discarded behind it. larger: than the budget.
    predicted: it was not issued yet."""

    seq: int
    uses: Sequence[Use]
    stream: int = 0
    anew: int = 0
    frees: int = 0
    larger: bool = False
    predicted: bool = False

    def takes(self) -> int:
        """Return the blocks of room that it takes."""
        return sum(use.due == "away" for use in self.uses) + self.anew


@dataclass(frozen=True)
class Wait:
    """A condition: operation `seq` has executed (0: none), `left_bytes` have left in all, and
    `ended_bytes` of arrivals have ended, moved or refused."""

    seq: int = 0
    stream: int = 0
    left_bytes: int = 0
    ended_bytes: int = 0


@dataclass(frozen=True)
class Device:
    """A device; counts are of blocks. away: blocks of live ranges that are not on it. idle: blocks
    on it that no known operation uses, in the order in which they may leave. discarded: the
    condition under which the discards under way have ended. ended_bytes: of arrivals, once those
    under way have ended. discard_stream: the stream on which
    discards execute; 0: that of the operation before them."""

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
    """Consecutive blocks of one range. need: the operation for which they come; 0: they leave."""

    first: int
    blocks: int
    slot: int
    need: int
    wait: Wait
    length_bytes: int


@dataclass
class Listed:
    """One list of the schedule. slice: most blocks of an entry; clean: and of clean ones."""

    entries_left: int
    blocks_left: int
    slice: int
    clean: int
    entries: list[Entry] = field(default_factory=list)

    def add(self, block: Block, need: int, wait: Wait) -> bool:
        """Add a block to the last entry, or in a new one. Return False if the list is full."""
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
        """Return False if the list is full, whatever the block waits for."""
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
    """Room for `blocks` blocks once `wait` is over. step_bytes: each further block of it has to
    wait until so many bytes more have left."""

    blocks: int
    wait: Wait
    step_bytes: int = 0


class Schedule:
    """The lists `arrivals` and `departures`, from a walk over the first `known` operations. Those
    behind them only say when blocks are needed. short_of_ops: with more known operations the
    schedule would be longer."""

    def __init__(
        self, device: Device, operations: Sequence[Operation], known: int, bounds: Bounds
    ) -> None:
        self.device, self.bounds = device, bounds
        self.operations = operations[:known]
        to_gpu, to_host = (
            Listed(bounds.entries, bounds.blocks, most, bounds.clean) for most in bounds.slices
        )
        self.coming, self.going = to_gpu, to_host
        # Blocks on the device that may leave, those needed last first; those that stay and that
        # predicted operations need, which leave behind these; and blocks that operations which
        # count as executed have used.
        self.there = [(NEVER, block) for block in device.idle]
        self.staying: list[tuple[int, Block]] = []
        for op in reversed(operations):
            due = [use.block for use in op.uses if use.due in ("there", "maybe evicted")]
            for block in reversed(due):
                stays = block.stays and op.predicted
                (self.staying if stays else self.there).append((op.seq, block))
        self.used: list[tuple[int, Operation, Block]] = []
        self.at = self.executed = 0  # index of the walk's operation; how many count as executed
        self.taken = [0, *accumulate(op.takes() for op in self.operations)]
        self.rooms: list[Room] = []
        self.left_bytes = device.left_bytes + device.leaving_bytes
        self.horizon = NEVER  # the first operation that uses a block that leaves
        self.ended_bytes = device.ended_bytes  # once all that comes so far has ended
        self.waiting, self.full, self.paced = 0, False, False
        self.begin()
        self.paced = not any(op.larger for op in operations)
        self.short_of_ops = self.walk()
        self.paced = False
        if self.short_of_ops:
            self.keep_spare()
        self.arrivals = to_gpu.entries
        # Blocks that may leave at once stand first, the others in the order of operations.
        self.departures = sorted(to_host.entries, key=lambda entry: entry.wait.seq)
        self.set_paces(to_host.entries)

    def begin(self) -> None:
        """Find the room before the first operation: free blocks, blocks of discards under way, and
        blocks that are leaving. Blocks above the budget leave first."""
        device = self.device
        occupied = device.there + device.arriving + device.leaving + device.discarding
        free = device.budget - occupied
        for _ in range(-(free + device.leaving)):
            if not self.leave(0):
                break
        owed = max(-free, 0)  # leaving blocks that only bring the device down to its budget
        owed_bytes = Wait(left_bytes=device.left_bytes + owed * BLOCK_BYTES)
        self.add_room(free, Wait())
        self.add_room(device.discarding, device.discarded)
        self.add_room(device.leaving - owed, owed_bytes, BLOCK_BYTES)

    def walk(self) -> bool:
        """Serve the operations in order. Return False if the walk ends before the last one."""
        for at, op in enumerate(self.operations):
            self.at = at
            if op.seq >= self.horizon:
                return False
            while self.executed < self.at and self.taken_behind() >= self.bounds.ahead:
                self.execute()
            if op.larger:
                self.fill_up(op)
                return False
            if not self.bring(op, NEVER) or not all(self.write_anew(op) for _ in range(op.anew)):
                return False
            stream = self.device.discard_stream or op.stream
            self.add_room(op.frees, Wait(op.seq, stream))
        return True

    # ---- what comes

    def bring(self, op: Operation, most: int) -> bool:
        """List the arrivals of the blocks that the operation lacks; at most `most` of those that
        take room. A block that the driver may have evicted takes none: its room is counted. Return
        False if there is no room for one."""
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
            if self.coming.add(use.block, op.seq, wait):  # if it is full, only room is taken
                self.ended_bytes += use.block.length_bytes
        return True

    def fill_up(self, op: Operation) -> None:
        """Bring blocks of an operation larger than the budget up to the budget; faults bring the
        rest."""
        there = sum(use.due in ("there", "maybe evicted") for use in op.uses)
        room = self.device.budget - self.device.arriving - there
        if room > 0:
            self.bring(op, room)

    # ---- room

    def add_room(self, blocks: int, wait: Wait, step_bytes: int = 0) -> None:
        if blocks > 0:
            self.rooms.append(Room(blocks, wait, step_bytes))

    def take_room(self, op: Operation) -> Wait | None:
        """Take room for a block that comes: the first there is, else that of a block that leaves
        for it. Return the condition of the room; None if no block may leave."""
        if not self.rooms:
            return Wait(left_bytes=self.left_bytes) if self.leave(op.seq) else None
        wait, step_bytes = self.rooms[0].wait, self.rooms[0].step_bytes
        wait = Wait(wait.seq, wait.stream, wait.left_bytes + step_bytes)
        self.rooms[0].wait = wait
        self.use_up(0)
        return wait

    def write_anew(self, op: Operation) -> bool:
        """Take the newest room for a block that is written after its discard: mostly that is the
        room that its own discard gave back. Return False if there is none."""
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
        """List the departure of the block that is needed last, if it is needed half as far behind
        operation `need` as that is ahead: one on the device, or one that an operation which counts
        as executed has used. If there is none, further operations count as executed. Return False
        if none may leave."""
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
            gone = self.let_go(block, Wait(op.seq, op.stream, 0, self.pace()))
        else:
            again, block = self.there.pop(0)
            gone = self.let_go(block, Wait(0, 0, 0, self.pace()))
        if gone:
            self.horizon = min(self.horizon, again)
        self.full = not gone
        return gone

    def pace(self) -> int:
        """Return what has to have ended before a block leaves: what is listed to come so far, but
        for Bounds.pace_bytes. 0 where something that comes waits for an operation or is not
        listed, and in front of an operation larger than the budget."""
        return max(0, self.ended_bytes - self.bounds.pace_bytes) if self.paced else 0

    def set_paces(self, asked: Sequence[Entry]) -> None:
        """Let the bytes that leave after so many others wait for what those wait for that were
        asked for after as many."""
        paces = [entry.wait.ended_bytes for entry in asked]
        ends = list(accumulate(entry.length_bytes for entry in asked))
        before = 0
        for entry in self.departures:
            pace = paces[bisect_right(ends, before)]
            entry.wait = replace(entry.wait, ended_bytes=pace)
            before += entry.length_bytes

    def let_go(self, block: Block, wait: Wait) -> bool:
        """List a departure, and count its bytes as left. Of blocks that wait for an operation only
        the first `Bounds.waiting` are listed. Return False if the list is full."""
        if not wait.seq or self.waiting < self.bounds.waiting:
            self.waiting += wait.seq > 0
            if not self.going.add(block, 0, wait):
                return False
        self.left_bytes += block.length_bytes
        return True

    def taken_behind(self) -> int:
        """Return the room that operations take behind the first that does not count as executed."""
        return self.taken[self.at + 1] - self.taken[self.executed + 1]

    def execute(self) -> None:
        """Count one more operation as executed. Of its blocks those that are needed again last may
        leave."""
        op = self.operations[self.executed]
        self.executed += 1
        last = max((use.again for use in op.uses), default=0)
        if last > 0:
            self.used += [(last, op, use.block) for use in op.uses if use.again == last]
        self.used.sort(key=lambda used: -used[0])  # of equals the first that has executed

    def keep_spare(self) -> None:
        """Let blocks that no known operation needs leave, until SPARE_PERCENT of the budget is
        free."""
        device = self.device
        blocks = device.there + device.arriving + device.leaving + device.discarding + device.away
        wanted = min(device.budget * SPARE_PERCENT // 100, blocks - device.budget)
        wanted -= sum(room.blocks for room in self.rooms)
        for again, block in self.there[: max(wanted, 0)]:
            if again != NEVER or not self.let_go(block, Wait()):
                return
