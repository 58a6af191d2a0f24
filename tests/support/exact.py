"""Finds the least time of an iteration by exhaustive search, for programs of a few blocks.

Time passes in steps. In each step a block may arrive and a block may leave (`both`: at the same
time, else only one or the other). An operation runs for some steps with all its blocks in memory; a
block that it overwrites needs memory but no transfer. A block takes memory from the start of its
arrival to the end of its departure. A departing block is copied; if its contents are never read
again, it leaves in no time. At the end of an iteration, contents for the next iteration must exist
in memory or on the host.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pump_lab.floor import Touch

_NEVER = 10_000

State = tuple[int, int, int]
"""Next operation, its remaining steps (0: not started), blocks in memory (a bit each)."""


class Machine:
    """operations: of one iteration. steps: the duration of each operation."""

    def __init__(
        self, operations: Sequence[Touch], steps: Sequence[int], blocks: int, *, both: bool
    ) -> None:
        self.steps, self.room, self.both = steps, blocks, both
        self.needed = [_mask((*touch.reads, *touch.updates)) for touch in operations]
        self.used = [_mask((*t.reads, *t.updates, *t.overwrites)) for t in operations]
        self.alive = [0] * (len(operations) + 1)
        for _ in range(2):
            self.alive[-1] = self.alive[0]
            for i in range(len(operations) - 1, -1, -1):
                self.alive[i] = self.needed[i] | (self.alive[i + 1] & ~self.used[i])
        """Blocks by operation with contents that this or a later operation needs."""

    def least_steps(self) -> int:
        """Returns the steps of one iteration, from the best initial state to any final state."""
        return self._least(self._beginnings(), None)

    def least_round(self) -> int:
        """Returns the steps of an iteration that ends with the same blocks in memory as at its
        start, for the best start."""
        found = _NEVER
        for there in self._beginnings():
            found = min(found, self._least([there], there, found))
        return found

    def _beginnings(self) -> list[int]:
        return [there for there in _parts(self.alive[0]) if there.bit_count() <= self.room]

    def _least(self, beginnings: Sequence[int], wanted: int | None, most: int = _NEVER) -> int:
        """Returns the least steps; at most `most`. wanted: blocks in memory at the end."""
        end, seen = len(self.steps), set[State]()
        now = {(0, 0, there) for there in beginnings}
        for time in range(most):
            now = self._begun(now) - seen
            if any(at == end and wanted in (None, there) for at, _, there in now):
                return time
            seen |= now
            now = {later for state in now for later in self._later(state)}
        return most

    def _begun(self, states: set[State]) -> set[State]:
        """Adds the states that follow at once: operations start, and operations of length 0 end."""
        found, waiting = set(states), list(states)
        while waiting:
            at, left, there = waiting.pop()
            if at == len(self.steps) or left or self.needed[at] & ~there:
                continue
            there |= self.used[at]
            if there.bit_count() > self.room:
                continue
            state = at, self.steps[at], there
            if self.steps[at] == 0:
                state = at + 1, 0, there & self.alive[at + 1]
            if state not in found:
                found.add(state)
                waiting.append(state)
        return found

    def _later(self, state: State) -> Iterator[State]:
        """Yields the states after one more step."""
        at, left, there = state
        busy = self.used[at] if left else 0
        outside = self.alive[at + 1 if left else at] & ~there & ~busy
        full = there.bit_count() == self.room
        for goes in (0, *_bits(there & ~busy)):
            for comes in (0, *(() if full else _bits(outside))):
                if goes and comes and not self.both:
                    continue
                after = there & ~goes | comes
                if left == 1:
                    yield at + 1, 0, after & self.alive[at + 1]
                else:
                    yield at, max(0, left - 1), after


def _mask(blocks: Sequence[int]) -> int:
    return sum({1 << block for block in blocks})


def _bits(mask: int) -> list[int]:
    return [1 << i for i in range(mask.bit_length()) if mask >> i & 1]


def _parts(mask: int) -> Iterator[int]:
    """Yields all subsets of a bit mask."""
    part = mask
    while True:
        yield part
        if part == 0:
            return
        part = (part - 1) & mask
