"""Gathers the numbers of a report from a recording. Reads the file once, in order.

Recorded numbers are bytes by place, misses by cause and bytes moved (SAMPLE rows), and counts. The
time of a kernel (pump/trace/estimate.py) and its misses are estimated, with "estimated" in the
name. The misses of each interval are divided among the operations that executed in it, by the bytes
that they reach.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pump.report.hops import Hops
from pump.trace import format as form
from pump.trace.format import Column, Columns, signed
from pump.trace.info import Summary, opened, state_of
from pump.trace.reader import Reader

POINTS: Final = 400
"""Most points of the pace."""
SERIES_POINTS: Final = 150
"""Most points of a series over time: a phone cannot show more."""
OPERATIONS_MAX: Final = 4_000_000
"""Most operations that get misses of their own; later ones are left out."""
EXTENTS_MAX: Final = 200_000
EXTENTS_SHOWN: Final = 20
STEP_S: Final = 0.02
"""Least time between two points of the executed operations."""
TIME: Final = "estimated_seconds"
PLACES: Final = ("resident", "maybe_evicted", "arriving", "leaving", "host")
CAUSES: Final = ("late", "unseen", "no_room")

Report = dict[str, Any]
Array = NDArray[np.int64]


def report(path: str) -> Report:
    """Returns the numbers of the recording at `path`, for JSON: pump.trace.info.summary with series
    over time, misses by kernel, and extents.

    Raises TraceError, OSError.
    """
    with opened(path) as (file, being_written):
        reader = Reader(file)
        gathered = _Gathered(Summary(reader.header))
        for columns in reader.chunks():
            gathered.add(columns)
    found = gathered.result(path, state_of(reader, being_written), reader.read_bytes)
    return {
        **found,
        "time_lost": estimate_of(reader.end),
        "turns_waited_seconds": _seconds_of(reader.end, form.HELD_TIME),
        "in_place_bytes_peak": _count_of(reader.end, form.IN_PLACE_PEAK),
    }


def estimate_of(end: Mapping[str, Any] | None) -> dict[str, float] | None:
    """Returns pump's estimate of the time lost to memory, in seconds; None if there is none."""
    values = [(end or {}).get(name) for name in form.LOST_TIMES]
    if not all(isinstance(value, int) and 0 <= value < 1 << 63 for value in values):
        return None
    lost, least, most, whole = (value / 1e9 for value in values if value is not None)
    if not whole or not least <= lost <= most:
        return None
    estimate = {"seconds": lost, "least_seconds": least, "most_seconds": most, "of_seconds": whole}
    return estimate | {"core_seconds": min(lost, _seconds_of(end, form.DELAYED_TIME) or 0.0)}


def _seconds_of(end: Mapping[str, Any] | None, key: str) -> float | None:
    """Returns a time in the end of a recording, in seconds; None if it is not recorded."""
    value = _count_of(end, key)
    return None if value is None else value / 1e9


def _count_of(end: Mapping[str, Any] | None, key: str) -> int | None:
    """Returns a number in the end of a recording; None if it is not recorded."""
    value = (end or {}).get(key)
    return value if isinstance(value, int) and 0 <= value < 1 << 63 else None


class _Gathered:
    def __init__(self, summary: Summary) -> None:
        self.summary = summary
        self.hops = Hops()
        self.samples: list[Columns] = []
        self.operations: list[tuple[Column, ...]] = []
        self.progress: list[tuple[Column, ...]] = []
        self.kernels: dict[str, int] = {}
        self.extents: Counter[tuple[int, int, int, int]] = Counter()
        self.lengths: dict[int, int] = {}
        self.count = 0
        self.first_issue_ns: int | None = None

    def add(self, columns: Columns) -> None:
        self.summary.add(columns)
        self.hops.add(columns)
        if len(columns["sample_device"]):
            self.samples.append({n: c for n, c in columns.items() if n.startswith("sample_")})
        if len(columns["progress_seq"]):
            names = ("progress_seq", "progress_stream", "progress_time_ns")
            self.progress.append(tuple(columns[name] for name in names))
        slots, lengths = columns["range_slot"].tolist(), columns["range_length_bytes"].tolist()
        self.lengths.update(
            (slot, length) for slot, length in zip(slots, lengths, strict=True) if length
        )
        if len(columns["op_seq"]) and self.count < OPERATIONS_MAX:
            self._operations(columns)
        self._extents(columns)

    def _operations(self, columns: Columns) -> None:
        kind = columns["kind"][np.isin(columns["kind"], form.ROWS_OF["op"])]
        ends = np.cumsum(columns["op_extents"], dtype=np.int64)
        reach = np.concatenate(([0.0], np.cumsum(columns["extent_length_bytes"], dtype=np.float64)))
        reached = reach[ends] - reach[ends - columns["op_extents"]]
        key = np.zeros(len(kind), np.int64)
        for word, name in ((form.COPY, "(copies)"), (form.MEMSET, "(memsets)")):
            key[kind == word] = self._kernel_number(name)
        handles, index = np.unique(columns["kernel_function"], return_inverse=True)
        names = self.summary.operations.names
        keys = [self._kernel_number(names.get(h, f"function {h:#x}")) for h in handles.tolist()]
        key[kind == form.KERNEL] = np.array(keys, np.int64)[index] if keys else 0
        real = kind != form.HINT
        if self.first_issue_ns is None and real.any():
            self.first_issue_ns = int(signed(columns["op_time_ns"])[np.argmax(real)])
        parts = (columns["op_seq"], columns["op_stream"], columns["op_device"], key, reached)
        self.operations.append(tuple(part[real] for part in parts))
        self.count += int(np.count_nonzero(real))

    def _kernel_number(self, name: str) -> int:
        return self.kernels.setdefault(name, len(self.kernels))

    def _extents(self, columns: Columns) -> None:
        if not len(columns["extent_slot"]) or len(self.extents) > EXTENTS_MAX:
            return
        names = ("slot", "generation", "offset_bytes", "length_bytes")
        stacked = np.stack([columns[f"extent_{n}"].astype(np.uint64) for n in names], axis=1)
        found, counts = np.unique(stacked, axis=0, return_counts=True)
        for row, count in zip(found.tolist(), counts.tolist(), strict=True):
            self.extents[row[0], row[1], row[2], row[3]] += count

    # ---- results ----

    def result(self, path: str, state: str, file_bytes: int) -> Report:
        found = self.summary.result(state, file_bytes)
        samples = _join_samples(self.samples)
        begin_ns, end_ns = self._launched()
        devices = []
        shares: NDArray[np.float64] = np.zeros(len(self.kernels))
        for facts in found["devices"]:
            mine = _of_device(samples, facts["device"])
            series = _series(mine, begin_ns, end_ns)
            devices.append({**facts, **_totals(mine), "series": series})
            shares += self._missed(mine, facts["device"])
        missed = dict(zip(self.kernels, shares.tolist(), strict=True))
        others = [
            {"name": f"({word})", "count": found[word], TIME: found[f"{word}_{TIME}"]}
            for word in ("copies", "memsets")
            if found[word]
        ]
        kernels = [
            {**kernel, "estimated_missed_blocks": missed.get(kernel["name"], 0.0)}
            for kernel in found.pop("kernel_list") + others
        ]
        return {
            "file": path,
            **{key: value for key, value in found.items() if key != "devices"},
            "active_seconds": max(0, end_ns - begin_ns) / 1e9,
            "sampled": bool(len(samples["sample_device"])),
            "moved_to_gpu_bytes": _last_value(samples, "sample_moved_to_gpu_bytes"),
            "moved_to_host_bytes": _last_value(samples, "sample_moved_to_host_bytes"),
            "devices": devices,
            "operations_series": self._executed(begin_ns),
            "pace": self._pace(),
            "kernel_list": kernels,
            "top_extents": self._top_extents(),
            "hops": self.hops.result(),
        }

    def _launched(self) -> tuple[int, int]:
        """Returns the times (ns) of the first issue and of the last event. Imports before the
        first, and clean-up after the last, are not part of the series."""
        begin_ns = self.first_issue_ns
        begin_ns = self.summary.begin_ns or 0 if begin_ns is None else begin_ns
        return begin_ns, max(begin_ns, self.summary.end_ns)

    def _missed(self, samples: Columns, device: int) -> NDArray[np.float64]:
        """Estimates the misses of a device by kernel, in the order of `kernels`."""
        answer: NDArray[np.float64] = np.zeros(len(self.kernels))
        times = signed(samples["sample_time_ns"])
        if not self.operations or len(times) < 2:
            return answer
        seq, stream, of_device, key, reached = (
            np.concatenate(parts) for parts in zip(*self.operations, strict=True)
        )
        mine = of_device == device
        done_ns = self._done_ns(signed(seq[mine]), stream[mine])
        interval = np.clip(np.searchsorted(times, done_ns) - 1, 0, len(times) - 2)
        misses = _count_misses(samples)
        new = np.maximum(np.diff(misses), 0).astype(np.float64)
        new[0] += misses[0]
        whole = np.bincount(interval, reached[mine], len(new))
        rate = np.divide(new, whole, out=np.zeros_like(new), where=whole > 0)
        answer += np.bincount(key[mine], reached[mine] * rate[interval], len(answer))
        return answer

    def _done_ns(self, seq: Array, stream: Column) -> Array:
        """Returns the time (ns) of the first marker after each operation."""
        done = np.full(len(seq), np.iinfo(np.int64).max)
        if not self.progress:
            return done
        marks, streams, times = (np.concatenate(p) for p in zip(*self.progress, strict=True))
        for number in np.unique(stream).tolist():
            own, ours = streams == number, stream == number
            if not own.any():
                continue
            place = np.searchsorted(signed(marks[own]), seq[ours])
            known = np.append(signed(times[own]), np.iinfo(np.int64).max)
            done[ours] = known[place]
        return done

    def _executed(self, begin_ns: int) -> dict[str, list[float]]:
        """Returns the number of executed operations over time, according to markers."""
        if not self.progress:
            return {"seconds": [], "executed": []}
        marks, _, times = (np.concatenate(p) for p in zip(*self.progress, strict=True))
        order = np.argsort(times, kind="stable")
        seconds = (signed(times)[order] - begin_ns) / 1e9
        executed = np.maximum.accumulate(signed(marks)[order]) - int(signed(marks).min())
        # At even times, because markers arrive in bursts: a rate between two markers is noise.
        at = np.linspace(0.0, max(float(seconds[-1]), STEP_S), SERIES_POINTS + 1)
        at = at if at[1] >= STEP_S else np.arange(0.0, at[-1] + STEP_S, STEP_S)
        place = np.searchsorted(seconds, at, side="right")
        so_far = np.append(0, executed)[place]
        return {"seconds": at.tolist(), "executed": so_far.astype(float).tolist()}

    def _pace(self) -> dict[str, list[float]]:
        """Returns counts of executed operations, and when each was reached, in seconds from the
        first launch. The last point is the newest operation that is known to have executed."""
        if not self.operations or not self.progress or self.first_issue_ns is None:
            return {"operations": [], "seconds": []}
        seq, stream = (
            np.concatenate(part) for part in tuple(zip(*self.operations, strict=True))[:2]
        )
        order = np.argsort(signed(seq), kind="stable")
        done_ns = self._done_ns(signed(seq)[order], stream[order])
        known = np.maximum.accumulate(done_ns)
        known = known[known < np.iinfo(np.int64).max]
        chosen = _thin(len(known), POINTS)
        seconds = (known[chosen] - self.first_issue_ns) / 1e9
        return {"operations": (chosen + 1.0).tolist(), "seconds": seconds.tolist()}

    def _top_extents(self) -> list[dict[str, int]]:
        """Returns the extents with the largest products of uses and length."""
        ranked = sorted(self.extents.items(), key=lambda item: -item[0][3] * item[1])
        return [
            {
                "slot": slot,
                "generation": generation,
                "offset_bytes": offset,
                "length_bytes": length,
                "range_bytes": self.lengths.get(slot, 0),
                "uses": uses,
            }
            for (slot, generation, offset, length), uses in ranked[:EXTENTS_SHOWN]
        ]


def _join_samples(parts: list[Columns]) -> Columns:
    names = [name for name in form.FIELDS if name.startswith("sample_")]
    empty: Columns = {name: np.zeros(0, form.FIELDS[name].dtype) for name in names}
    return {name: np.concatenate([empty[name], *(p[name] for p in parts)]) for name in names}


def _of_device(samples: Columns, device: int) -> Columns:
    mine = samples["sample_device"] == device
    return {name: column[mine] for name, column in samples.items()}


def _last_value(samples: Columns, name: str) -> int:
    return int(samples[name][-1]) if len(samples[name]) else 0


def _count_misses(samples: Columns) -> Array:
    misses: Array = np.sum([signed(samples[f"sample_blocks_{cause}"]) for cause in CAUSES], axis=0)
    return misses


def _totals(samples: Columns) -> dict[str, int]:
    names = ("used", "hit", *CAUSES)
    totals = {f"blocks_{name}": _last_value(samples, f"sample_blocks_{name}") for name in names}
    resident = signed(samples["sample_resident_bytes"])
    allocated = signed(samples["sample_allocated_bytes"])
    totals["resident_bytes_peak"] = int(resident.max()) if len(resident) else 0
    totals["allocated_bytes_peak"] = int(allocated.max()) if len(allocated) else 0
    return totals


def _thin(count: int, most: int) -> Array:
    """Returns indices of at most `most` of `count` samples, with the first and the last."""
    if count <= most:
        return np.arange(count)
    return np.unique(np.linspace(0, count - 1, most).astype(np.int64))


def _series(samples: Columns, begin_ns: int, end_ns: int) -> dict[str, list[float]]:
    """Returns values of a device over time, at most SERIES_POINTS. Seconds from the first launch.
    The last sample before the launch counts as one at 0, and the first after the end as one at the
    end."""
    times = signed(samples["sample_time_ns"])
    first = max(0, int(np.searchsorted(times, begin_ns, "right")) - 1)
    last = max(first, int(np.searchsorted(times, end_ns, "right")))
    chosen = first + _thin(min(last + 1, len(times)) - first, SERIES_POINTS)
    series = {"seconds": ((times[chosen].clip(begin_ns, end_ns) - begin_ns) / 1e9).tolist()}
    names = [*(f"{place}_bytes" for place in PLACES), "allocated_bytes"]
    names += ["moved_to_gpu_bytes", "moved_to_host_bytes", "window_depth"]
    names += [f"blocks_{cause}" for cause in CAUSES]
    for name in names:
        series[name] = signed(samples[f"sample_{name}"])[chosen].astype(float).tolist()
    # Resident bytes include possibly evicted bytes.
    pairs = zip(series["resident_bytes"], series["maybe_evicted_bytes"], strict=True)
    series["sure_bytes"] = [max(0.0, resident - maybe_evicted) for resident, maybe_evicted in pairs]
    return series
