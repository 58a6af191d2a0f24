"""Prefetches ranges in slices, and summarizes times of prefetches."""

from __future__ import annotations

from collections.abc import Sequence

from probe.figures import Json, gbps, undisturbed, us
from probe.gpu import Gpu


def moves_summary(samples: Sequence[tuple[int, int]], length: int) -> Json:
    """Summarizes samples (caller ns, total ns) of prefetches of `length` bytes."""
    totals = [total for _, total in samples]
    return {
        "caller_us": us(caller for caller, _ in samples),
        "total_us": us(totals),
        "gbps": gbps(length, undisturbed(float(total) for total in totals)),
    }


def sliced(gpu: Gpu, address: int, length: int, *, slice_length: int, to: int, stream: int) -> None:
    """Prefetches a range slice by slice and waits for the stream."""
    for offset in range(0, length, slice_length):
        gpu.prefetch(address + offset, min(slice_length, length - offset), to, stream)
    gpu.sync(stream)
