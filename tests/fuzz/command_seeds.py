"""Small mappings of a sound worker: the seeds of fuzz_command.c."""

from __future__ import annotations

import struct

RANGE = struct.Struct("<QIIQQIIQ16x8Q")
COMMAND = struct.Struct("<QIIQQQQII")
ENTRY_REST = struct.Struct("<QQQII")
TO_GPU, TO_HOST, ENTRIES = 0, 1, 6
RANGE_BYTES, BLOCK_BYTES = 64 << 20, 2 << 20


def ranges(last_use: int) -> bytes:
    """Returns four range records that alternate between the devices."""
    whole = b""
    for i in range(4):
        uses = [last_use] * 8
        whole += RANGE.pack(2, 1, 1, (i + 1) << 30, RANGE_BYTES, i % 2, 0, 0, *uses)
    return whole


def schedule(device: int, version: int, length_bytes: int, need: int) -> bytes:
    """Returns a schedule; the conditions of all its entries hold."""
    whole = struct.pack("<QIIQ", version << 32, ENTRIES, ENTRIES, 0)
    for _ in (TO_GPU, TO_HOST):
        for i in range(ENTRIES):
            place = i * BLOCK_BYTES, length_bytes
            whole += COMMAND.pack(1 + i, device + 2 * (i % 2), 1, *place, 9, need, 1, 0)
            whole += ENTRY_REST.pack(0, 0, 0, 1, 0)
    return whole


def mapping(
    version: int,
    last_use: int = 0,
    length_bytes: int = BLOCK_BYTES,
    *,
    need: int = 0,
    valid_seq: int = (1 << 64) - 1,
) -> bytes:
    """Returns a mapping in which the next operation has number 8 and was not predicted."""
    schedules = b"".join(schedule(device, version, length_bytes, need) for device in range(2))
    issued = struct.pack("<QQI6I", 7, 7, 1, 1, 1, 1, 32, 1, 1)
    return ranges(last_use) + schedules + struct.pack("<QQ", 8, valid_seq) + issued


SEEDS = {
    "none": b"",
    "not-in-force": mapping(0),
    "in-force": mapping(1),
    "predicted": mapping(1, need=9),
    "deviated": mapping(1, need=9, valid_seq=8),
    "deviated-before": mapping(1, need=6, valid_seq=6),
    "stale": mapping(2, last_use=100),
    "larger-than-the-range": mapping(3, length_bytes=128 << 20),
    "between-blocks": mapping(4, length_bytes=4096),
}
