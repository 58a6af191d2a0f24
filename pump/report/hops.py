"""Finds where transfers waited: sums and percentiles of a recording's hops, and the slowest one.

A slice of a schedule passes five hops: an executor wakes up, prepares the call and calls the
driver, the link carries the data, and the worker reads the completion. Two more hops delay the
schedule: the poll that sees an executed marker, and the read of an event in the ring.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pump.model.bounds import BLOCK_BYTES
from pump.report.words import seconds, size
from pump.trace import format as form
from pump.trace.format import Columns, signed

MOST: Final = 4_000_000
"""Bound for slices, for markers and for reads; later ones are left out."""

DIRECTIONS: Final = ("to_gpu", "to_host")
WORDS: Final = {
    "waited": "executor wakes up",
    "called": "executor prepares the call",
    "driver": "driver call",
    "link": "link, until the completion is seen",
    "seen": "worker reads the completion",
    "marker": "marker waits for a poll (at most)",
    "ring": "worker reads the event",
}
"""Names of hops. The first five belong to single slices."""
SLICE: Final = ("waited", "called", "driver", "link", "seen")
NOT_PUMPS: Final = ("driver", "link")
THREADS: Final = {
    form.THREADS_TO_GPU: "threads that copy to the GPU",
    form.THREADS_TO_HOST: "threads that copy to the host",
    form.THREADS_MARKERS: "marker thread",
    form.THREADS_LINK: "connection thread",
    form.THREADS_PROGRAM: "threads of the program",
    form.THREADS_WORKER: "worker",
}
_TO: Final = {"to_gpu": "to the GPU", "to_host": "to the host"}
_US: Final = 1e-6

Values = NDArray[Any]
Found = dict[str, Any]


class Hops:
    """Gathers the hops of one recording, chunk by chunk."""

    def __init__(self) -> None:
        self._slices: dict[str, list[Columns]] = {direction: [] for direction in DIRECTIONS}
        self._refused = dict.fromkeys(DIRECTIONS, 0)
        self._others: dict[str, list[Values]] = {"marker": [], "ring": []}
        self._counts: dict[str, int] = dict.fromkeys((*DIRECTIONS, *self._others), 0)
        self._threads: dict[int, tuple[int, int]] = {}

    def add(self, columns: Columns) -> None:
        """Takes the rows of the next chunk."""
        for number, direction in enumerate(DIRECTIONS):
            mine = columns["transfer_direction"] == number
            moved = mine & (columns["transfer_result"] == 0)
            self._refused[direction] += int(np.count_nonzero(mine & ~moved))
            if self._has_place(direction, int(np.count_nonzero(moved))):
                names = ("bytes", "kept", *(f"{hop}_us" for hop in SLICE))
                rows = {n: columns[f"transfer_{n}"][moved] for n in names}
                if direction == "to_host":
                    rows["bytes"] = _copied(rows["bytes"], rows["kept"])
                self._slices[direction].append(rows)
        before, seen = columns["progress_before_ns"], columns["progress_time_ns"]
        polled = (before > 0) & (before <= seen)
        self._add("marker", (seen[polled] - before[polled]) / 1e3)
        self._add("ring", columns["read_waited_us"])
        for group in np.unique(columns["threads_group"]).tolist():
            last = np.flatnonzero(columns["threads_group"] == group)[-1]
            ran, delay = signed(columns["threads_ran_ns"]), signed(columns["threads_delay_ns"])
            self._threads[group] = int(ran[last]), int(delay[last])

    def _add(self, hop: str, values: Values) -> None:
        if self._has_place(hop, len(values)):
            self._others[hop].append(values)

    def _has_place(self, what: str, count: int) -> bool:
        self._counts[what] += count
        return count > 0 and self._counts[what] <= MOST

    def result(self) -> Found:
        """Returns the part `hops` of a report; docs/guides/why.md explains it."""
        found: Found = {direction: self._direction(direction) for direction in DIRECTIONS}
        for hop, parts in self._others.items():
            found[hop] = _figures(np.concatenate(parts)) if parts else None
        found["threads"] = [
            {"threads": name, "ran_seconds": ran / 1e9, "delay_seconds": delay / 1e9}
            for group, name in THREADS.items()
            for ran, delay in [self._threads.get(group, (0, 0))]
            if group in self._threads
        ]
        return found

    def _direction(self, direction: str) -> Found | None:
        parts = self._slices[direction]
        if not parts:
            return None
        columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        return {
            "slices": len(columns["bytes"]),
            "bytes": int(columns["bytes"].sum(dtype=np.float64)),
            "refused": self._refused[direction],
            **{hop: _figures(columns[f"{hop}_us"]) for hop in SLICE},
        }


def _copied(lengths: Values, kept: Values) -> Values:
    """Returns the bytes that slices to the host had to copy, shape [n]."""
    bits = np.unpackbits(kept[:, np.newaxis].view(np.uint8), axis=1)
    copied: Values = lengths - np.minimum(lengths, bits.sum(axis=1, dtype=np.uint64) * BLOCK_BYTES)
    return copied


def _figures(us: Values) -> Found:
    """Returns statistics of times in us, shape [n], n > 0."""
    median, most = np.percentile(us, (50, 99)).tolist()
    return {
        "count": len(us),
        "median_seconds": median * _US,
        "p99_seconds": most * _US,
        "sum_seconds": float(us.sum(dtype=np.float64)) * _US,
    }


class Row(NamedTuple):
    """A hop as text: its times and its name."""

    median: str
    p99: str
    sum: str
    hop: str


class Part(NamedTuple):
    """A heading and its hops: hops of slices in one direction, or hops that all slices wait for."""

    heading: str
    rows: list[Row]


def parts(found: Found) -> list[Part]:
    """Formats `Hops.result`, the delays of transfers, as tables; none if nothing was moved."""
    tables = []
    for direction in DIRECTIONS:
        if mine := found[direction]:
            refused = f", {mine['refused']:,} refused" if mine["refused"] else ""
            heading = f"{mine['slices']:,} slices {_TO[direction]}, {size(mine['bytes'])}"
            rows = [_row(hop, mine[hop]) for hop in SLICE]
            tables.append(Part(heading + refused, rows))
    others = [_row(hop, found[hop]) for hop in ("marker", "ring") if found[hop]]
    if tables and others:
        tables.append(Part("what schedules wait for", others))
    return tables


def _row(hop: str, numbers: Found) -> Row:
    names = ("median", "p99", "sum")
    median, p99, whole = (seconds(numbers[f"{name}_seconds"], 3) for name in names)
    return Row(median, p99, whole, WORDS[hop])


def thread_times(found: Found) -> list[tuple[str, str, str]]:
    """Returns groups of threads: how long they ran, and how long they waited for a CPU core."""
    return [
        (seconds(group["ran_seconds"]), seconds(group["delay_seconds"]), group["threads"])
        for group in found["threads"]
    ]


def largest(found: Found) -> str:
    """Returns a sentence that names the slowest hop, by its mean for one slice, apart from driver
    and link; "" without slices. A marker's mean is half of its longest delay."""
    means: list[tuple[float, str]] = []
    for direction in DIRECTIONS:
        for hop in SLICE if found[direction] else ():
            if hop not in NOT_PUMPS:
                means.append((_mean(found[direction][hop]), f"{WORDS[hop]}, {_TO[direction]}"))
    if not means:
        return ""
    if found["marker"]:
        means.append((_mean(found["marker"]) / 2, "marker waits for a poll"))
    if found["ring"]:
        means.append((_mean(found["ring"]), WORDS["ring"]))
    mean, words = max(means)
    return (
        f"Apart from driver and link, the slowest hop is: {words} ({seconds(mean, 3)} on average)."
    )


def _mean(numbers: Found) -> float:
    return float(numbers["sum_seconds"] / numbers["count"])
