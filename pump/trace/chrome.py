"""Writes a recording as a Chrome trace, which Perfetto and chrome://tracing open.

Source of the format: "Trace Event Format" (the Trace Viewer's document): a JSON object with
`traceEvents`; complete events ("X", times in us), counters ("C"), metadata ("M").

A recording holds when operations were issued and when markers had executed, not when single
operations ran. So the run of an operation is an estimate, and its category is "estimate". It begins
at the issue, or at the end of the previous operation on the stream. It lasts for an equal share of
the time until the next marker. Waits and samples are measured.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from typing import Any, Final, TextIO

from pump.base.names import readable_kernel
from pump.trace import format as form
from pump.trace import records as rec
from pump.trace.info import opened
from pump.trace.reader import Reader

PENDING_MAX: Final = 100_000
"""Most operations of a stream that wait for a marker; older ones are left out."""
WORDS: Final = {form.COPY: "copy", form.MEMSET: "memset"}
PROGRAM, GPU = 1, 2
"""Process numbers of the trace: actions of the program, actions of the GPU."""

Event = dict[str, Any]


def export(path: str, out: TextIO) -> int:
    """Writes the recording at `path` as a Chrome trace; returns the number of its events.

    Raises TraceError, OSError.
    """
    with opened(path) as (file, _):
        reader = Reader(file)
        out.write('{"displayTimeUnit":"ms","otherData":')
        json.dump({"recording": dict(reader.header)}, out)
        out.write(',"traceEvents":[\n')
        count = 0
        for event in events(reader):
            out.write(",\n" if count else "")
            json.dump(event, out)
            count += 1
        out.write("\n]}\n")
        return count


def events(reader: Reader) -> Iterator[Event]:
    """Yields the events of a recording, times in us from its first event."""
    yield _named(PROGRAM, "process_name", "program")
    yield _named(GPU, "process_name", "GPU (times of operations are estimates)")
    maker = _Maker()
    for record in reader.records():
        yield from maker.of(record)


def _named(process: int, what: str, name: str, thread: int = 0) -> Event:
    return {"ph": "M", "pid": process, "tid": thread, "name": what, "args": {"name": name}}


class _Maker:
    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        self.begin_ns: int | None = None
        self.pending: dict[int, deque[rec.Operation]] = {}
        self.busy_until_ns: dict[int, int] = {}

    def of(self, record: rec.Record) -> Iterator[Event]:
        match record:
            case rec.Name():
                self.names[record.function] = readable_kernel(record.name)
            case rec.Operation() if record.kind in form.OPERATIONS:
                yield from self._issued(record)
            case rec.Progress():
                yield from self._executed(record)
            case rec.Sync() if record.begin_ns and record.end_ns >= record.begin_ns:
                yield self._span("wait", "wait", (PROGRAM, 0), record.begin_ns, record.end_ns)
            case rec.RangeRow() if record.kind in (form.ALLOC, form.FREE):
                yield self._allocation(record)
            case rec.Sample():
                yield from self._sample(record)
            case rec.Lost():
                yield self._instant("lost", record.time_ns, {"events": record.events})
            case rec.Policy():
                yield self._instant(f"policy {record.policy}", record.time_ns, {})

    def _us(self, time_ns: int) -> float:
        if self.begin_ns is None:
            self.begin_ns = time_ns
        return max(0, time_ns - self.begin_ns) / 1e3

    def _span(
        self, name: str, kind: str, place: tuple[int, int], begin_ns: int, end_ns: int
    ) -> Event:
        begin_us = self._us(begin_ns)
        span_us = max(0.0, self._us(end_ns) - begin_us)
        process, thread = place
        where = {"pid": process, "tid": thread, "ts": begin_us, "dur": span_us}
        return {"ph": "X", "name": name, "cat": kind, **where}

    def _instant(self, name: str, time_ns: int, args: Event) -> Event:
        place = {"pid": PROGRAM, "tid": 0, "ts": self._us(time_ns), "s": "p"}
        return {"ph": "i", "name": name, "cat": "pump", **place, "args": args}

    def _issued(self, operation: rec.Operation) -> Iterator[Event]:
        self._us(operation.time_ns)  # sets time 0, if this is the first event
        if operation.stream not in self.pending:
            self.pending[operation.stream] = deque(maxlen=PENDING_MAX)
            name = f"device {operation.device}, stream {operation.stream}"
            yield _named(GPU, "thread_name", name, operation.stream)
        self.pending[operation.stream].append(operation)

    def _executed(self, progress: rec.Progress) -> Iterator[Event]:
        """Divides the time up to a marker equally among the operations before it."""
        pending = self.pending.get(progress.stream, deque())
        done = []
        while pending and pending[0].seq <= progress.seq:
            done.append(pending.popleft())
        at_ns = self.busy_until_ns.get(progress.stream, 0)
        for number, operation in enumerate(done):
            at_ns = max(at_ns, operation.time_ns)
            end_ns = at_ns + max(0, progress.time_ns - at_ns) // (len(done) - number)
            event = self._span(
                self._name(operation), "estimate", (GPU, operation.stream), at_ns, end_ns
            )
            reached = sum(extent.length_bytes for extent in operation.extents)
            event["args"] = {"operation": operation.seq, "reaches_bytes": reached}
            yield event
            at_ns = end_ns
        if done:
            self.busy_until_ns[progress.stream] = at_ns

    def _name(self, operation: rec.Operation) -> str:
        if operation.kind != form.KERNEL:
            return WORDS[operation.kind]
        return self.names.get(operation.function, f"function {operation.function:#x}")

    def _allocation(self, row: rec.RangeRow) -> Event:
        word = "allocate" if row.kind == form.ALLOC else "free"
        args = {"bytes": row.length_bytes, "range": f"{row.slot}.{row.generation}"}
        return self._instant(word, row.time_ns, args)

    def _sample(self, sample: rec.Sample) -> Iterator[Event]:
        place = {"ph": "C", "pid": GPU, "tid": 0, "ts": self._us(sample.time_ns)}
        sure = max(0, sample.resident_bytes - sample.maybe_evicted_bytes)
        memory = {
            "on the GPU": sure,
            "in doubt": sample.maybe_evicted_bytes,
            "arriving": sample.arriving_bytes,
            "leaving": sample.leaving_bytes,
            "on the host": sample.host_bytes,
        }
        moved = {"in": sample.moved_to_gpu_bytes, "out": sample.moved_to_host_bytes}
        misses = {
            "late": sample.blocks_late,
            "unseen": sample.blocks_unseen,
            "no room": sample.blocks_no_room,
        }
        device = sample.device
        yield {**place, "name": f"memory of device {device} (bytes)", "args": memory}
        yield {**place, "name": "total moved (bytes)", "args": moved}
        yield {**place, "name": f"total missed blocks of device {device}", "args": misses}
        yield {**place, "name": "window (operations)", "args": {"depth": sample.window_depth}}
