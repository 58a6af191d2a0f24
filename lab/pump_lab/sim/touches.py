"""The blocks that a program's operations use, for the floor (pump_lab.floor)."""

from __future__ import annotations

from collections.abc import Sequence

from pump.model.bounds import BLOCK_BYTES
from pump_lab.floor import Touch
from pump_lab.sim import program as form
from pump_lab.sim.program import Program


def touches(program: Program, first: int = 0, end: int | None = None) -> list[Touch]:
    """Returns the operations among the steps [first, end), with the blocks that they use.

    A use that does not fill a block keeps its other contents, unless the whole block was discarded
    since its last use.
    """
    stop = len(program.steps) if end is None else end
    # Discards of the previous iteration may affect this one.
    begin = max(0, 2 * first - stop)
    spans = _Spans(program)
    dead: set[int] = set()
    found = []
    for number, step in enumerate(program.steps[begin:stop].tolist(), begin):
        uses = spans.uses[step[6] : step[6] + step[7]]
        if step[4] == form.DISCARD:
            for use in uses:
                dead.update(spans.inner(use))
        if step[3] == 0:  # not an operation
            continue
        touch = _touch(spans, uses, dead)
        dead.difference_update(touch.reads, touch.updates, touch.overwrites)
        if number >= first:
            found.append(touch)
    return found


class _Spans:
    """The uses of a program (offset_bytes, length_bytes, range, access), and their blocks."""

    def __init__(self, program: Program) -> None:
        self.uses = program.uses.tolist()
        self._first = program.ranges["first_block"].tolist()
        self._length_bytes = program.ranges["length_bytes"].tolist()

    def outer(self, use: tuple[int, int, int, int]) -> range:
        """Returns all blocks that a use reaches."""
        offset, length, index, *_ = use
        first = self._first[index]
        return range(first + offset // BLOCK_BYTES, first - (-(offset + length) // BLOCK_BYTES))

    def inner(self, use: tuple[int, int, int, int]) -> range:
        """Returns the blocks that a use fills; the last block of a range ends with the range."""
        offset, length, index, *_ = use
        first, stop = self._first[index], offset + length
        end = first + stop // BLOCK_BYTES
        if stop % BLOCK_BYTES and stop >= self._length_bytes[index] - BLOCK_BYTES:
            end = self.outer(use).stop
        return range(first - (-offset // BLOCK_BYTES), end)


def _touch(spans: _Spans, uses: Sequence[tuple[int, int, int, int]], dead: set[int]) -> Touch:
    reads: set[int] = set()
    updates: set[int] = set()
    whole: set[int] = set()
    for use in uses:
        blocks, access = spans.outer(use), use[3]
        if access == form.READ:
            reads.update(blocks)
        elif access == form.OVERWRITE:
            filled = dead.intersection(blocks).union(spans.inner(use))
            whole.update(filled)
            updates.update(filled.symmetric_difference(blocks))
        else:
            updates.update(blocks)
    updates |= reads & whole
    return Touch(tuple(reads - updates), tuple(updates), tuple(whole - updates - reads))
