"""Calls the learner of extents in tests: launches with kernel parameters.

Not a test. Parameters are bytes with pointers as words. `Client` finds the pointers like the shim,
by the ranges that it knows.
"""

import hashlib
from dataclasses import dataclass, field
from typing import Any

from study import extents_replay

MIB = 1 << 20
BASE = 0x7F0000000000
LEARNER = extents_replay.installed()


def words(*values: int) -> bytes:
    """Returns parameters of 8 bytes each."""
    return b"".join(value.to_bytes(8, "little") for value in values)


def ints(*values: int) -> bytes:
    """Returns parameters of 4 bytes each."""
    return b"".join(value.to_bytes(4, "little") for value in values)


@dataclass
class Client:
    """A learner with ranges of the given lengths; range i is in slot i."""

    lengths: list[int]
    blocks: dict[int, int] = field(default_factory=dict)
    """For range 0: bytes of each block that its allocator reported, by offset."""
    learner: Any = field(init=False)

    def __post_init__(self) -> None:
        self.ffi, self.lib = LEARNER
        self.learner = self.ffi.gc(self.lib.pump_extents_new(), self.lib.pump_extents_delete)
        for slot, length in enumerate(self.lengths):
            self.lib.pump_extents_segment(self.learner, slot, 1, self.base(slot), length)

    def base(self, slot: int) -> int:
        return BASE + (slot << 36)

    def at(self, offset: int, slot: int = 0) -> int:
        """Returns the address of a byte of a range."""
        return self.base(slot) + offset

    def name(self, function: int, name: str) -> None:
        self.lib.pump_extents_name(self.learner, function, name.encode(), len(name.encode()))

    def copied(self, offset: int, length: int, slot: int = 0) -> None:
        self.lib.pump_extents_bytes(self.learner, slot, 1, offset, length)

    def pointers(self, parameters: bytes) -> list[tuple[int, int, int, int, int]]:
        found: dict[int, tuple[int, int, int, int, int]] = {}
        for argument in range(0, len(parameters) - 7, 8):
            value = int.from_bytes(parameters[argument : argument + 8], "little")
            for slot, length in enumerate(self.lengths):
                offset = value - self.base(slot)
                if 0 <= offset < length and value not in found:
                    found[value] = (slot, 1, argument, self.units_to_end(slot, offset), offset)
        return list(found.values())

    def units_to_end(self, slot: int, offset: int) -> int:
        for begin, length in self.blocks.items():
            if slot == 0 and begin <= offset < begin + length:
                return (begin + length) // 512 - offset // 512
        return 0

    def signature(self, parameters: bytes, grid: tuple[int, int, int]) -> int:
        masked = bytearray(parameters)
        for argument in range(0, len(parameters) - 7, 8):
            if self.pointers(parameters[argument : argument + 8]):
                masked[argument : argument + 8] = bytes(8)
        digest = hashlib.blake2b(bytes(masked) + repr(grid).encode(), digest_size=8).digest()
        return int.from_bytes(digest, "little")

    def launch(
        self,
        function: int,
        parameters: bytes,
        grid: tuple[int, int, int] = (1, 1, 1),
        *,
        threads: int = 128,
        tell: bool = True,
    ) -> dict[int, int]:
        """Launches a kernel; returns the bytes that the learner expects it to use, by argument."""
        signature = self.signature(parameters, grid)
        block = (threads, 1, 1)
        if tell:
            self.lib.pump_extents_params(
                self.learner, function, signature, grid, block, parameters, len(parameters)
            )
        pointers = self.pointers(parameters)
        lengths = self.ffi.new("uint64_t[]", max(1, len(pointers)))
        used = self.lib.pump_extents_kernel(
            self.learner,
            function,
            signature,
            len(pointers),
            self.ffi.new("struct pump_pointer[]", pointers or 1),
            lengths,
        )
        believed = {pointer[2]: int(lengths[i]) for i, pointer in enumerate(pointers)}
        assert used == sum(length != 0 for length in believed.values())
        return believed
