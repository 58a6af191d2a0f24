"""Programs from pump's own recordings (docs/trace-format.md).

The duration of an operation is estimated by kind, from timed samples, or in older recordings from
markers (pump/trace/estimate.py). Host time is the time between two issues, or from the end of a
wait to the next issue. It includes waits for a full launch queue, and is limited by STEP_NS_MOST.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from pump.model.bounds import BLOCK_BYTES
from pump.trace import format as trace
from pump.trace import records as rec
from pump.trace.info import Operations, Summary
from pump.trace.reader import Reader
from pump_lab.abi import lib
from pump_lab.sim import program as form
from pump_lab.sim.program import Builder, Program, ProgramError, Use

DURATIONS: Final = ("estimated from markers", "estimated from timed samples")
KINDS: Final = {
    trace.KERNEL: form.KERNEL,
    trace.COPY: form.COPY_LOCAL,
    trace.MEMSET: form.MEMSET,
}
_ACCESS_UNKNOWN: Final = 0


def is_recording(data: bytes) -> bool:
    """Returns whether the file begins like a recording."""
    return data[: len(trace.MAGIC)] == trace.MAGIC


def program(data: bytes, source: str, touches_most: int = form.TOUCHES_MOST) -> Program:
    """Returns the recording as a program. Raises ProgramError that names `source`. `touches_most`:
    The limit of its block uses."""
    try:
        return _Taker(data, source, touches_most).program()
    except trace.TraceError as error:
        raise ProgramError(f"{source}: {error}") from None


class _Taker:
    """Reads a recording twice: for the durations, and row by row."""

    def __init__(self, data: bytes, source: str, touches_most: int) -> None:
        self._source = source
        self._touches_most = touches_most
        summary = Summary(Reader(io.BytesIO(data)).header)
        for columns in Reader(io.BytesIO(data)).chunks():
            summary.add(columns)
        self._summary = summary
        self._each_ns = _durations(summary.operations)
        self._header = summary.header
        self._budgets = {device.device: device.budget_bytes for device in summary.devices.values()}
        self._builder = Builder()
        self._live: dict[tuple[int, int], int] = {}
        self._rows: list[rec.RangeRow] = []
        self._streams: dict[int, int] = {}
        self._devices: set[int] = set()
        self._shapes: dict[int, int] = {}
        """By recorded signature: the signature of function, grid and block."""
        self._bytes = self._peak = self._touches = self._dropped = 0
        self._clock_ns: int | None = None
        """When the program's thread could continue."""
        self._times_ns: list[int] = []
        """That time after each step."""
        self.skipped: Counter[str] = Counter()
        self.truncated = self._take(data)

    def _take(self, data: bytes) -> bool:
        """Reads the rows; returns whether the recording has no end."""
        reader = Reader(io.BytesIO(data))
        for record in reader.records():
            match record:
                case rec.Operation():
                    self._operation(record)
                case rec.RangeRow():
                    self._range(record)
                case rec.Sync():
                    self._sync(record)
                case rec.Params():
                    shape = record.function, record.grid, record.block
                    self._shapes[record.signature] = form.signature_of(shape)
                case rec.Lost():
                    self.skipped["lost"] += record.events
        return reader.truncated

    def _host_ns(self, time_ns: int) -> int:
        before = time_ns if self._clock_ns is None else self._clock_ns
        self._clock_ns = max(before, time_ns)
        self._times_ns.append(self._clock_ns)
        return min(max(0, time_ns - before), form.STEP_NS_MOST)

    def _operation(self, record: rec.Operation) -> None:
        if record.kind not in KINDS:
            return
        self._devices.add(record.device)
        uses: list[Use] = []
        for extent in record.extents:
            index = self._live.get((extent.slot, extent.generation))
            if index is None or extent.length_bytes == 0:
                continue
            room = self._rows[index].length_bytes - extent.offset_bytes
            if room <= 0:
                continue
            access = extent.access if extent.access != _ACCESS_UNKNOWN else form.WRITE
            length_bytes = min(room, extent.length_bytes)
            uses.append((index, extent.offset_bytes, length_bytes, access))
            self._touches += length_bytes // BLOCK_BYTES + 1
        form.check_bounds(
            self._source,
            operations=self._builder.operations,
            touches=self._touches,
            touches_most=self._touches_most,
        )
        self._dropped += record.dropped
        if not self._builder.operations:  # a wait without effect, for a mark after the last import
            self._builder.sync(host_ns=self._host_ns(record.time_ns))
        name = self._summary.operations.names.get(record.function, f"function {record.function:#x}")
        key = name if record.kind == trace.KERNEL else f"({_WORDS[record.kind]})"
        self._builder.operation(
            KINDS[record.kind],
            uses,
            duration_ns=self._duration_ns(record, key),
            host_ns=self._host_ns(record.time_ns),
            stream=self._streams.setdefault(record.stream, len(self._streams)),
            signature=self._shapes.get(record.signature, record.signature),
            wide=lib.uvm_wide_uses(name.encode()) if record.kind == trace.KERNEL else 0,
            dropped=record.dropped,
        )

    def _duration_ns(self, record: rec.Operation, name: str) -> int:
        own_ns = self._summary.operations.own_ns(record)
        return self._each_ns.get(name, 0) if own_ns is None else min(own_ns, form.STEP_NS_MOST)

    def _range(self, record: rec.RangeRow) -> None:
        key = record.slot, record.generation
        if record.kind == trace.FREE:
            index = self._live.pop(key, None)
            if index is not None:
                self._builder.free(index, self._host_ns(record.time_ns))
                self._bytes -= self._rows[index].length_bytes
            return
        if key in self._live:
            return
        self._devices.add(record.device)
        self._live[key] = len(self._rows)
        self._rows.append(record)
        self._builder.alloc(self._live[key], self._host_ns(record.time_ns))
        self._bytes += record.length_bytes
        self._peak = max(self._peak, self._bytes)

    def _sync(self, record: rec.Sync) -> None:
        begin_ns = record.begin_ns or record.end_ns
        host_ns = self._host_ns(begin_ns)
        self._clock_ns = self._times_ns[-1] = max(self._clock_ns or 0, record.end_ns)
        self._builder.sync(host_ns=host_ns)

    def program(self) -> Program:
        """Returns the program. Raises ProgramError if nothing can be simulated."""
        if not self._rows or not self._builder.operations:
            what = "operation" if self._rows else "allocation"
            when = " before it was cut off" if self.truncated else ""
            raise ProgramError(
                f"{self._source}: no {what} was recorded{when}, so nothing can be simulated"
            )
        if len(self._devices) > 1:
            raise ProgramError(
                f"{self._source}: GPUs {', '.join(map(str, sorted(self._devices)))} were used, and "
                "one is simulated; record a run on one GPU (pump-run --device)"
            )
        steps, uses = self._builder.tables()
        end = _end(steps)
        steps["mark"][end] = 1
        warm = _warm(steps)
        begin = int(np.argmax(steps["seq"] > 0)) - 1 if warm is None else warm
        steps["mark"][begin] = 1
        ranges, blocks = _places(self._rows)
        times_ns = steps["duration_ns"].astype(np.float64) + steps["host_ns"]
        form.check_bounds(self._source, blocks=blocks, seconds=float(times_ns.sum()) / 1e9)
        facts: dict[str, Any] = {
            "recorded_policy": self._header.get("policy"),
            "durations": DURATIONS[bool(self._summary.operations.own_times)],
            "operands_dropped": self._dropped,
            "events_lost": self.skipped["lost"],
            "recorded_budget_bytes": self._budget_bytes() if self._budgets else None,
            "short_of_bytes": max(0, self._peak - self._budget_bytes()),
            "recorded_mode": virtual_mode(self._header),
            "truncated": self.truncated,
            "recorded_seconds": self._seconds(begin, end),
            "simulated_part": "starting at its first launch" if warm is None else WITHOUT_START,
            "steady_steps": len(steps) - begin - 1,
        }
        return Program(
            self._source, steps, uses, ranges, blocks, max(1, len(self._streams)),
            self._peak, facts,
        )  # fmt: skip

    def _seconds(self, begin: int, end: int) -> float | None:
        """Returns how long the run took between two steps; None without a wait at the end."""
        times_ns = self._times_ns
        return (times_ns[end] - times_ns[begin]) / 1e9 if end < len(times_ns) else None

    def _budget_bytes(self) -> int:
        """Returns the budget of the recorded run, or its peak if no budget was recorded."""
        return min((self._budgets.get(device, self._peak) for device in self._devices), default=0)


def virtual_mode(header: Mapping[str, Any]) -> str | None:
    """Returns the mode of the virtual GPU that made the recording; None: a real GPU."""
    job = header.get("job")
    virtual = job.get("virtual") if isinstance(job, dict) else None
    return virtual.get("mode") if isinstance(virtual, dict) else None


def _end(steps: form.Table) -> int:
    """Returns the first wait for everything after the last operation; the rest is clean-up."""
    last = np.flatnonzero(steps["seq"])[-1:].sum()
    waits = (steps["kind"] == form.SYNC) & (steps["stream"] == form.ALL_STREAMS)
    return int(last + np.argmax(waits[last:]))


WARM_SHARE: Final = 0.1
"""Share of the operations that is the start of the program, with its first allocations."""
WITHOUT_START: Final = f"without its first {100 * WARM_SHARE:.0f} %"


def _warm(steps: form.Table) -> int | None:
    """Returns the wait after which the program is warm, or None. It is the first wait after
    WARM_SHARE of the operations, and within their first half."""
    done = np.cumsum(steps["seq"] != 0) / max(1, np.count_nonzero(steps["seq"]))
    waits = (steps["kind"] == form.SYNC) & (steps["stream"] == form.ALL_STREAMS)
    found = np.flatnonzero(waits & (done >= WARM_SHARE) & (done <= 0.5))
    return int(found[0]) if len(found) else None


_WORDS: Final = {trace.COPY: "copies", trace.MEMSET: "memsets"}


def _durations(operations: Operations) -> dict[str, int]:
    """Returns the nanoseconds of one operation, by name."""
    whole = operations.seconds()
    counts: dict[str, int] = dict(operations.kernels)
    for kind, word in _WORDS.items():
        counts[f"({word})"] = operations.kinds[kind]
    return {
        name: min(round(seconds / counts[name] * 1e9), form.STEP_NS_MOST)
        for name, seconds in whole.items()
        if counts.get(name)
    }


def _places(rows: list[rec.RangeRow]) -> tuple[form.Table, int]:
    """Returns ranges with their own blocks: recorded addresses without the gaps between them."""
    table = np.zeros(len(rows), form.RANGE)
    first = np.array([row.base // BLOCK_BYTES for row in rows], np.int64)
    last = np.array([-(-(row.base + row.length_bytes) // BLOCK_BYTES) for row in rows], np.int64)
    order = np.argsort(first, kind="stable")
    moved, end, shift = np.zeros(len(rows), np.int64), 0, 0
    for i in order.tolist():
        if first[i] >= end + shift:
            shift = int(first[i]) - end
        moved[i] = first[i] - shift
        end = max(end, int(last[i]) - shift)
    table["first_block"] = moved
    table["length_bytes"] = (last - first) * BLOCK_BYTES
    table["slot"] = [row.slot for row in rows]
    table["generation"] = [row.generation for row in rows]
    return table, int(end)
