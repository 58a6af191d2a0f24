"""Summarizes a recording for `pump trace info`. Reads the file once, in order."""

from __future__ import annotations

import contextlib
import os
import stat
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO, Final

import numpy as np

from pump.base import inputs, outputs
from pump.base.nvml import gpu_uuid
from pump.trace import format as form
from pump.trace import place
from pump.trace import records as rec
from pump.trace.estimate import Estimate, OwnTimes
from pump.trace.format import Column, Columns, signed
from pump.trace.reader import Reader, rows_of

SETTLE_S: Final = 1.0
"""Longest wait for the writer of a client that has just ended."""

KIND_WORDS: Final = {
    form.KERNEL: "kernels",
    form.COPY: "copies",
    form.MEMSET: "memsets",
}
REASON_WORDS: Final = {
    form.LOST_RING_FULL: "ring full",
    form.LOST_SKIPPED: "skipped to catch up",
    form.LOST_MALFORMED: "malformed",
    form.LOST_RECORDER: "writer too slow",
}


def summary(path: str) -> dict[str, Any]:
    """Returns the numbers of the recording at `path`, for JSON. Keys: docs/trace-format.md.

    Raises TraceError, OSError.
    """
    with opened(path) as (file, being_written):
        reader = Reader(file)
        found = Summary(reader.header)
        for columns in reader.chunks():
            found.add(columns)
        left = place.unfinished(path)
        return {
            **found.result(state_of(reader, being_written), reader.read_bytes),
            "unfinished": left,
        }


def state_of(reader: Reader, being_written: bool) -> str:
    """Returns the state of a recording that has been read to its end: complete, truncated, or being
    recorded."""
    if not reader.truncated:
        return "complete"
    return "being recorded" if being_written else "truncated"


@contextlib.contextmanager
def opened(path: str) -> Iterator[tuple[BinaryIO, bool]]:
    """Opens the recording at `path`, or its draft while a writer works on it (pump/trace/place.py).
    Yields the file, and whether a writer does. Waits SETTLE_S for one that ends. Raises OSError."""
    with contextlib.ExitStack() as files:
        file = files.enter_context(inputs.opened(path))
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            yield file, False
            return
        being_written = not outputs.is_free(file.fileno(), SETTLE_S)
        # A finished recording may have replaced the file that was opened.
        file = files.enter_context(inputs.opened(path))
        for part, written in place.parts(path) if being_written else []:
            if written:
                with contextlib.suppress(FileNotFoundError):  # published in between
                    file = files.enter_context(inputs.opened(part))
        yield file, being_written


class Summary:
    """Sums over one recording, chunk by chunk. header: as Reader.header."""

    def __init__(self, header: Mapping[str, Any]) -> None:
        self.header = header
        self.operations = Operations()
        self.devices: dict[int, rec.Device] = {}
        self.budgets: dict[int, set[int]] = {}
        self.memory = Memory()
        self.lost: Counter[int] = Counter()
        self.resyncs = 0
        self.gaps = Gaps()
        self.begin_ns: int | None = None
        self.end_ns = 0

    def add(self, columns: Columns) -> None:
        """Counts the rows of the next chunk."""
        for record in rows_of(columns, _RARE_GROUPS):
            self._add_rare(record)
        self.operations.add(columns)
        self.memory.add(columns)
        self.gaps.add(columns)
        for name in ("op_time_ns", "range_time_ns", "sync_end_ns", "progress_time_ns"):
            values = signed(columns[name])
            if len(values):
                low, high = int(values.min()), int(values.max())
                self.begin_ns = low if self.begin_ns is None else min(low, self.begin_ns)
                self.end_ns = max(high, self.end_ns)

    def _add_rare(self, record: rec.Record) -> None:
        match record:
            case rec.Name() | rec.Params():
                self.operations.know(record)
            case rec.Device():
                self.devices[record.device] = record
                self.budgets.setdefault(record.device, set()).add(record.budget_bytes)
            case rec.Lost():
                self.lost[record.reason] += record.events
            case rec.Resync():
                self.resyncs += 1

    def result(self, state: str, file_bytes: int) -> dict[str, Any]:
        """Returns the sums for JSON; keys as in `summary`.

        state: complete, truncated or being recorded. file_bytes: number of bytes read.
        """
        operations = self.operations.count()
        return {
            "state": state,
            "file_bytes": file_bytes,
            "bytes_per_operation": file_bytes / operations if operations else None,
            **{name: self.header.get(name) for name in HEADER_NAMES},
            "devices": [
                _device(self.devices[number], self.budgets[number])
                for number in sorted(self.devices)
            ],
            "seconds": max(0, self.end_ns - (self.begin_ns or 0)) / 1e9,
            **self.operations.result(),
            **self.memory.result(),
            **self.gaps.result(),
            "lost": {
                REASON_WORDS.get(reason, f"reason {reason}"): count
                for reason, count in sorted(self.lost.items())
            },
            "resyncs": self.resyncs,
        }


HEADER_NAMES: Final = (
    *("pump", "recorded", "policy", "client_number", "client_pid", "command", "job"),
)
NAMES_MAX: Final = 100_000
"""Most names, kernels and signatures that are counted separately: a hostile file has more."""

_RARE_GROUPS: Final = ("name", "params", "device", "lost", "resync")


class Operations:
    """Sums over the operations of a recording, and their times."""

    def __init__(self) -> None:
        self.kinds: Counter[int] = Counter()
        self.kernels: Counter[str] = Counter()
        self.names: dict[int, str] = {}
        self.estimate = Estimate()
        self.own_times = OwnTimes()
        self._numbers: dict[str, int] = {}
        self._shapes: dict[int, int] = {}
        self._signatures: set[int] = set()
        self._streams: set[int] = set()
        self._extents = 0
        self._extent_bytes = 0.0
        self._graph_launches = self._graph_operations = 0

    def know(self, record: rec.Name | rec.Params) -> None:
        """Takes over the name of a function, or the shape of a launch."""
        if isinstance(record, rec.Name):
            if len(self.names) < NAMES_MAX:
                self.names[record.function] = record.name
        elif len(self._shapes) < NAMES_MAX:
            shape = hash((record.function, record.grid, record.block))
            self._shapes[record.signature] = shape

    def count(self) -> int:
        """Returns the number of operations."""
        return sum(self.kinds[kind] for kind in form.OPERATIONS)

    def add(self, columns: Columns) -> None:
        """Counts the operations of the next chunk."""
        kind = _values_of_kinds(columns, "kind", form.ROWS_OF["op"])
        real = kind != form.HINT
        for word in form.OPERATIONS:
            self.kinds[word] += int(np.count_nonzero(kind == word))
        self.kinds[form.HINT] += int(np.count_nonzero(~real))
        uses = np.repeat(real, columns["op_extents"])
        self._extents += int(np.count_nonzero(uses))
        self._extent_bytes += float(columns["extent_length_bytes"][uses].sum(dtype=np.float64))
        name = np.zeros(len(kind), np.int64)
        for word in (form.COPY, form.MEMSET):
            name[kind == word] = self._number_of(f"({KIND_WORDS[word]})")
        name[kind == form.KERNEL] = self._kernel_names(columns["kernel_function"])
        key = self._keys()[name]
        self._add_own_times(columns, kind, name)
        if len(self._signatures) < NAMES_MAX:
            self._signatures.update(np.unique(columns["kernel_signature"]).tolist())
        stream = columns["op_stream"]
        for number in np.unique(stream[real]).tolist():
            mine = real & (stream == number)
            self._streams.add(number)
            seq, issued = signed(columns["op_seq"][mine]), signed(columns["op_time_ns"][mine])
            self.estimate.operations(number, seq, issued, key[mine])
        for number in np.unique(columns["progress_stream"]).tolist():
            mine = columns["progress_stream"] == number
            seq = signed(columns["progress_seq"][mine])
            self.estimate.progress(number, seq, signed(columns["progress_time_ns"][mine]))
        self._graph_launches += len(columns["graph_operations"])
        self._graph_operations += int(columns["graph_operations"].sum(dtype=np.uint64))

    def _add_own_times(self, columns: Columns, kind: Column, name: Column) -> None:
        shape = -1 - name
        signatures, index = np.unique(columns["kernel_signature"], return_inverse=True)
        shapes = np.array([self._shape_of(one) for one in signatures.tolist()], np.int64)
        shape[kind == form.KERNEL] = shapes[index]
        end = np.cumsum(columns["op_extents"], dtype=np.int64)
        upto = np.concatenate(([0], np.cumsum(signed(columns["extent_length_bytes"]))))
        reach = upto[end] - upto[end - columns["op_extents"].astype(np.int64)]
        real = kind != form.HINT
        seq = signed(columns["op_seq"])
        self.own_times.operations(seq[real], name[real], shape[real], reach[real])
        self.own_times.graphs(signed(columns["graph_seq"]), signed(columns["graph_operations"]))
        self.own_times.samples(signed(columns["timed_seq"]), signed(columns["timed_elapsed_ns"]))

    def seconds(self) -> dict[str, float]:
        """Returns the total seconds of the operations of each kind, without waits for memory if
        known. Kinds without samples have the markers' estimate, scaled by the other kinds' ratio of
        samples to markers (at most 1)."""
        counts = Counter(self.kernels)
        counts.update({f"({KIND_WORDS[one]})": self.kinds[one] for one in (form.COPY, form.MEMSET)})
        found = self.estimate.seconds()
        means = {name: self.own_times.mean_ns(number) for name, number in self._numbers.items()}
        sampled = {name: mean * counts[name] / 1e9 for name, mean in means.items() if mean}
        both = sampled.keys() & found.keys()
        marked = sum(found[name] for name in both)
        share = min(1.0, sum(sampled[name] for name in both) / marked) if marked else 1.0
        return {name: seconds * share for name, seconds in found.items()} | sampled

    def _shape_of(self, signature: int) -> int:
        """Returns a signed 64-bit key that launches of one function, grid and block share."""
        return self._shapes.get(signature, signature >> 1)

    def own_ns(self, operation: rec.Operation) -> int | None:
        """Returns the own time of an operation of this recording; None without a sample."""
        kernel = operation.kind == form.KERNEL
        word = "" if kernel else f"({KIND_WORDS[operation.kind]})"
        shape = self._shape_of(operation.signature) if kernel else -1 - self._number_of(word)
        reach_bytes = sum(extent.length_bytes for extent in operation.extents)
        return self.own_times.own_ns(shape, reach_bytes)

    def _number_of(self, name: str) -> int:
        return self._numbers.setdefault(name, len(self._numbers))

    def _keys(self) -> Column:
        """Returns the estimate's key of each name, by its number."""
        return np.array([self.estimate.key(name) for name in self._numbers] or [0], np.int64)

    def _kernel_names(self, function: Column) -> Column:
        handles, index, counts = np.unique(function, return_inverse=True, return_counts=True)
        numbers = np.zeros(len(handles), np.int64)
        for number, (handle, count) in enumerate(
            zip(handles.tolist(), counts.tolist(), strict=True)
        ):
            name = self.names.get(handle, f"function {handle:#x}")
            if name not in self.kernels and len(self.kernels) >= NAMES_MAX:
                name = "(others)"
            self.kernels[name] += count
            numbers[number] = self._number_of(name)
        return numbers[index]

    def result(self) -> dict[str, Any]:
        """Returns the sums by their keys in `summary`."""
        seconds = self.seconds()
        return {
            "operations": self.count(),
            **{KIND_WORDS[kind]: self.kinds[kind] for kind in form.OPERATIONS},
            "hints": self.kinds[form.HINT],
            "graph_launches": self._graph_launches,
            "graph_operations": self._graph_operations,
            "streams": len(self._streams),
            "signatures": len(self._signatures),
            "extents": self._extents,
            "extent_bytes": self._extent_bytes,
            "kernel_list": [
                {"name": name, "count": count, "estimated_seconds": seconds.get(name)}
                for name, count in sorted(self.kernels.items(), key=lambda i: (-i[1], i[0]))
            ],
            "copies_estimated_seconds": seconds.get("(copies)"),
            "memsets_estimated_seconds": seconds.get("(memsets)"),
        }


class Memory:
    """Counts allocations, frees and live bytes."""

    def __init__(self) -> None:
        self._live: dict[int, int] = {}
        self._bytes = self._peak = self._allocations = self._frees = 0

    def add(self, columns: Columns) -> None:
        """Counts the allocations and frees of the next chunk."""
        kinds = (*form.ROWS_OF["range"], form.RESYNC)
        slot, length = columns["range_slot"].tolist(), columns["range_length_bytes"].tolist()
        at = 0
        for kind in _values_of_kinds(columns, "kind", kinds).tolist():
            if kind == form.RESYNC:
                self._live.clear()
                self._bytes = 0
                continue
            self._bytes -= self._live.pop(slot[at], 0)
            if kind == form.FREE:
                self._frees += 1
            else:
                self._live[slot[at]] = length[at]
                self._bytes += length[at]
                self._peak = max(self._peak, self._bytes)
                self._allocations += kind == form.ALLOC
            at += 1

    def result(self) -> dict[str, Any]:
        """Returns the sums by their keys in `summary`."""
        return {
            "allocations": self._allocations,
            "frees": self._frees,
            "allocated_bytes_peak": self._peak,
            "allocated_bytes_at_end": self._bytes,
        }


class Gaps:
    """Measures the program's waits for the GPU, and the times from a wait to the next issue."""

    def __init__(self) -> None:
        self._syncs = self._gaps = self._wait_ns = self._wait_most_ns = 0
        self._gap_ns = self._gap_most_ns = self._pause_most_ns = 0
        self._last: tuple[int, bool] | None = None  # time, whether it ends a wait

    def add(self, columns: Columns) -> None:
        """Counts the waits and issues of the next chunk."""
        waits = signed(columns["sync_end_ns"]) - signed(columns["sync_begin_ns"])
        waits = waits[(signed(columns["sync_begin_ns"]) > 0) & (waits > 0)]
        self._syncs += len(columns["sync_end_ns"])
        if len(waits):
            self._wait_ns += int(waits.sum(dtype=np.float64))
            self._wait_most_ns = max(self._wait_most_ns, int(waits.max()))
        ends, issues = signed(columns["sync_end_ns"]), signed(columns["op_time_ns"])
        times = np.concatenate((ends, issues))
        order = np.argsort(times, kind="stable")
        times, is_end = times[order], (np.arange(len(times)) < len(ends))[order]
        if len(times) == 0:
            return
        if self._last is not None:
            times = np.concatenate(([self._last[0]], times))
            is_end = np.concatenate(([self._last[1]], is_end))
        self._last = int(times[-1]), bool(is_end[-1])
        pauses = np.maximum(np.diff(times), 0)[~is_end[1:]]
        after_sync = is_end[:-1][~is_end[1:]]
        gaps = pauses[after_sync]
        self._gaps += len(gaps)
        if len(gaps):
            self._gap_ns += int(gaps.sum(dtype=np.float64))
            self._gap_most_ns = max(self._gap_most_ns, int(gaps.max()))
        if len(pauses):
            self._pause_most_ns = max(self._pause_most_ns, int(pauses.max()))

    def result(self) -> dict[str, Any]:
        """Returns the sums by their keys in `summary`, in seconds."""
        return {
            "synchronisations": self._syncs,
            "waited_seconds": self._wait_ns / 1e9,
            "longest_wait_seconds": self._wait_most_ns / 1e9,
            "host_gaps": self._gaps,
            "host_gap_seconds": self._gap_ns / 1e9,
            "longest_host_gap_seconds": self._gap_most_ns / 1e9,
            "longest_pause_between_issues_seconds": self._pause_most_ns / 1e9,
        }


def _device(device: rec.Device, budgets: set[int]) -> dict[str, Any]:
    return {
        "device": device.device,
        "uuid": gpu_uuid(device.uuid.hex()),
        "total_bytes": device.total_bytes,
        "free_at_start_bytes": device.free_at_start_bytes,
        "budget_bytes": device.budget_bytes,
        "least_budget_bytes": min(budgets),
        "most_budget_bytes": max(budgets),
        "emulated": bool(device.emulated),
    }


def _values_of_kinds(columns: Columns, name: str, kinds: tuple[int, ...]) -> Column:
    values = columns[name]
    return values[np.isin(columns["kind"], kinds)]
