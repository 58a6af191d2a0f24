"""Converts the operations of the examples to blocks, for the lower bound of pump_lab.floor.

It exports that module's BLOCK_BYTES, Touch, Traffic, least_traffic, may_appear and floor_seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pump_lab.floor import (
    BLOCK_BYTES,
    Touch,
    Traffic,
    floor_seconds,
    least_traffic,
    may_appear,
)

__all__ = [
    "BLOCK_BYTES",
    "Touch",
    "Traffic",
    "block_numbers",
    "floor_seconds",
    "least_traffic",
    "may_appear",
    "touches",
]


def block_numbers(tensors: Mapping[str, int]) -> dict[str, range]:
    """Returns the blocks of each tensor, given its bytes. A tensor below one block has none."""
    numbers: dict[str, range] = {}
    first = 0
    for name, length_bytes in tensors.items():
        count = -(-length_bytes // BLOCK_BYTES) if length_bytes >= BLOCK_BYTES else 0
        numbers[name] = range(first, first + count)
        first += count
    return numbers


def touches(operations: Iterable[object], blocks: Mapping[str, range]) -> list[Touch]:
    """Converts operations of examples/mlp.py to blocks; leaves out operations that touch none."""

    def of(names: Iterable[str]) -> tuple[int, ...]:
        return tuple(block for name in names for block in blocks[name])

    # By attribute name: Operation is defined in mlp.py, which this module does not import.
    found = [
        Touch(*(of(getattr(operation, kind)) for kind in ("reads", "updates", "overwrites")))
        for operation in operations
    ]
    return [touch for touch in found if touch.reads or touch.updates or touch.overwrites]
