"""Notes the numbers of a client that printed no last line, because a signal or _exit ended it."""

from __future__ import annotations

from typing import Any

from pump.wire.abi import lib
from pumpd.common import last_line


def note(shm: Any, folder: str) -> None:
    """Notes the client's numbers in the job's folder, for the job's last line. Skips a client that
    stayed dormant. `shm`: the client's mapping; the client may have written any values to it."""
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
