"""Measures the time of the extents learner: recorded launches, fed from C.

The events of one file are packed into arrays, and extents_generator.c feeds them to a learner, so
that no Python runs in between. First the learner gets the whole file, so that its memory has been
touched like a long-running worker's. Then it gets the file again, and launches from the third
iteration on count. Parameters are sent as by the shim: with each new signature."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from harness import ROOT, MeasurementError
from study.extents_replay import STEADY_FROM
from study.extents_traffic import Bytes, Event, Gone, Launch, Name, Range

SOURCE = ROOT / "lab" / "bench" / "load_generators" / "extents_generator.c"


class Packed:
    """The events of a file as C arrays. `steady`: index of the first event that counts."""

    def __init__(self, ffi: Any, events: Sequence[Event]) -> None:
        packed: list[dict[str, Any]] = []
        pointers: list[tuple[int, int, int, int, int]] = []
        payload = bytearray()
        told: set[int] = set()
        self.steady = len(events)
        self.counts: list[int] = []
        for event in events:
            row: dict[str, Any] = {}
            if isinstance(event, Range):
                row = {"kind": 0, "slot": event.slot, "generation": event.generation}
                row |= {"offset_bytes": event.base, "length_bytes": event.length_bytes}
            elif isinstance(event, Gone):
                row = {"kind": 1, "slot": event.slot}
            elif isinstance(event, Name):
                row = {"kind": 2, "function": event.function, "payload_begin": len(payload)}
                payload += event.name.encode()
                row["payload_bytes"] = len(event.name.encode())
            elif isinstance(event, Bytes):
                row = {"kind": 3, **event._asdict()}
            elif event.pointers:
                row = self.launch(event, len(pointers), payload, told)
                pointers += [
                    (p.slot, p.generation, p.argument, 0, p.offset_bytes) for p in event.pointers
                ]
                if event.iteration >= STEADY_FROM:
                    self.steady = min(self.steady, len(packed))
                    self.counts.append(len(event.pointers))
            else:
                continue
            packed.append(row)
        self.length = len(packed)
        self.steady = min(self.steady, self.length)
        self.events = ffi.new("struct feed_event[]", packed)
        self.pointers = ffi.new("struct pump_pointer[]", pointers or 1)
        self.payload = ffi.new("uint8_t[]", bytes(payload) or 1)

    def launch(
        self, event: Launch, begin: int, payload: bytearray, told: set[int]
    ) -> dict[str, Any]:
        row: dict[str, Any] = {"kind": 4, "function": event.function, "signature": event.signature}
        row |= {"grid": event.grid, "threads": event.threads}
        row |= {"count": len(event.pointers), "pointer_begin": begin}
        if event.signature not in told:
            told.add(event.signature)
            row |= {"payload_begin": len(payload), "payload_bytes": len(event.parameters)}
            payload += event.parameters
        return row


class Cost:
    """Time of each steady launch of a file, in nanoseconds: the median of several replays."""

    def __init__(self, generator: tuple[Any, Any], events: Sequence[Event]) -> None:
        self.ffi, self.lib = generator
        self.packed = Packed(self.ffi, events)
        self.counts = np.array(self.packed.counts)
        self.times: list[Any] = []

    def measure(self) -> float:
        """Replays once; returns the mean microseconds of a steady launch."""
        packed = self.packed
        arguments = (packed.pointers, packed.payload)
        learner = self.lib.pump_extents_new()
        if learner == self.ffi.NULL:
            raise MeasurementError("no memory for a learner of extents")
        try:
            for end in (packed.length, packed.steady):
                self.lib.feed(learner, packed.events, 0, end, *arguments, self.ffi.NULL)
            times = np.zeros(max(1, len(self.counts)), dtype=np.uint32)
            self.lib.feed(
                learner,
                packed.events,
                packed.steady,
                packed.length,
                *arguments,
                self.ffi.cast("uint32_t *", times.ctypes.data),
            )
        finally:
            self.lib.pump_extents_delete(learner)
        self.times.append(times[: len(self.counts)])
        return float(np.mean(self.times[-1])) / 1000 if len(self.counts) else 0.0

    @property
    def mean(self) -> float:
        """Returns the mean microseconds of a steady launch, by the median of all its replays."""
        return float(np.mean(np.median(self.times, axis=0))) / 1000 if self.times else 0.0

    def of(self, least: int, most: int) -> float | None:
        """Returns the median microseconds of launches with least..most pointers; None: none."""
        chosen = (self.counts >= least) & (self.counts <= most)
        if not chosen.any():
            return None
        return float(np.median(np.median(self.times, axis=0)[chosen])) / 1000
