"""What a worker notes of a client that has no line of its own: a signal or _exit has ended it."""

from __future__ import annotations

from typing import Any

from pump.wire.abi import lib
from pumpd.common import last_line


def note(shm: Any, folder: str) -> None:
    """Note the client's figures in the job's folder, for the job's last line; nothing of a client
    that pump has left alone. shm: its mapping, whose figures are whatever it wrote there."""
    count = min(shm.header.device_count, lib.PUMP_MAX_DEVICES)
    active = [
        device
        for device in (shm.devices[index] for index in range(count))
        if device.device_state == lib.PUMP_DEVICE_ACTIVE
    ]
    counters = shm.worker_counters
    if not folder or not active or not counters.lost_of_ns:
        return
    last_line.note(
        folder,
        last_line.Cut(
            counters.lost_of_ns,
            counters.lost_ns,
            counters.lost_least_ns,
            counters.lost_most_ns,
            shm.shim_counters.converted_bytes_peak,
            sum(device.budget_bytes for device in active),
        ),
    )
