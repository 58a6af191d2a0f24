"""The blocks that a program's operations use, for the floor (pump/sim/floor.py)."""

from __future__ import annotations

from pump.model.bounds import BLOCK_BYTES
from pump.sim import program as form
from pump.sim.floor import Touch
from pump.sim.program import Program


def touches(program: Program, first: int = 0, end: int | None = None) -> list[Touch]:
    """Operations among the steps [first, end)."""
    starts = program.ranges["first_block"].tolist()
    uses = program.uses.tolist()
    found = []
    for step in program.steps[first:end].tolist():
        if step[3] == 0:  # no operation
            continue
        reads: set[int] = set()
        updates: set[int] = set()
        whole: set[int] = set()
        for offset, length, index, access in uses[step[6] : step[6] + step[7]]:
            stop = offset + length
            blocks = range(
                starts[index] + offset // BLOCK_BYTES, starts[index] - (-stop // BLOCK_BYTES)
            )
            if access == form.READ:
                reads.update(blocks)
            elif access == form.OVERWRITE:
                # What a block holds beside the use is kept, if the range goes on there.
                inner = range(
                    starts[index] - (-offset // BLOCK_BYTES), starts[index] + stop // BLOCK_BYTES
                )
                if stop % BLOCK_BYTES and stop >= int(program.ranges["length_bytes"][index]) - (
                    BLOCK_BYTES
                ):
                    inner = range(inner.start, blocks.stop)
                whole.update(inner)
                updates.update(set(blocks) - set(inner))
            else:
                updates.update(blocks)
        updates |= reads & whole
        found.append(Touch(tuple(reads - updates), tuple(updates), tuple(whole - updates - reads)))
    return found
