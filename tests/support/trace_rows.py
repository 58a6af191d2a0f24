"""Makes rows of the event ring as the worker passes them on, and the expected records."""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from pump.trace import format as form
from pump.trace import records as rec
from pump.trace.writer import ROW_COLUMNS, USE_COLUMNS, Rows, TraceWriter

ROW_TYPES: dict[str, Any] = {
    **dict.fromkeys(("seq", "time_ns", "function", "signature"), np.uint64),
    **dict.fromkeys(("stream", "device", "payload_bytes"), np.uint32),
    "kind": np.uint16,
    "dropped": np.uint16,
}
USE_TYPES: dict[str, Any] = {
    **dict.fromkeys(("slot", "generation", "argument"), np.uint32),
    **dict.fromkeys(("offset_bytes", "length_bytes"), np.uint64),
    "access": np.uint8,
}


class RowMaker:
    """Collects records; `made()` returns the rows that the ring would have carried."""

    def __init__(self) -> None:
        self.rows: list[dict[str, int]] = []
        self.uses: list[rec.Extent] = []
        self.counts: list[int] = []
        self.payloads: list[bytes] = []

    def add(self, record: rec.Record) -> None:
        row = dict.fromkeys(ROW_COLUMNS, 0)
        uses: tuple[rec.Extent, ...] = ()
        match record:
            case rec.Operation():
                own = record._asdict()
                uses = own.pop("extents")
                row |= own
            case rec.RangeRow():
                row |= {"kind": record.kind, "time_ns": record.time_ns, "device": record.device}
                row["function"] = record.base
                uses = (rec.Extent(record.slot, record.generation, 0, record.length_bytes, 2, 0),)
            case rec.Sync():
                row |= {"kind": form.SYNC, "seq": record.seq, "stream": record.stream}
                row |= {"signature": record.begin_ns, "time_ns": record.end_ns}
            case rec.Progress():
                row |= {"kind": form.PROGRESS, "seq": record.seq, "stream": record.stream}
                row |= {"signature": record.before_ns, "time_ns": record.time_ns}
            case rec.Timed():
                row |= {"kind": form.TIMED, "seq": record.seq, "stream": record.stream}
                row |= {"signature": record.elapsed_ns, "time_ns": record.time_ns}
            case rec.Graph():
                row |= {"kind": form.GRAPH, "seq": record.seq}
                row |= {"function": record.executable, "signature": record.operations}
            case rec.Name():
                row |= {"kind": form.NAME, "function": record.function}
                self._payload(row, record.name.encode())
            case rec.Params():
                row |= {"kind": form.PARAMS, "function": record.function}
                row["signature"] = record.signature
                sizes = (*record.grid, *record.block, record.parameter_bytes, 0)
                self._payload(row, struct.pack("<8I", *sizes) + record.data)
            case _:
                raise AssertionError(f"the event ring has no row for {record!r}")
        self.rows.append(row)
        self.uses += uses
        self.counts.append(len(uses))

    def _payload(self, row: dict[str, int], payload: bytes) -> None:
        row["payload_bytes"] = len(payload)
        if payload:
            self.payloads.append(payload)

    def made(self) -> Rows:
        return Rows(
            {n: np.array([r[n] for r in self.rows], ROW_TYPES[n]) for n in ROW_COLUMNS},
            {n: np.array([getattr(u, n) for u in self.uses], USE_TYPES[n]) for n in USE_COLUMNS},
            np.array(self.counts, np.uint32),
            self.payloads,
        )


def random_record(dice: random.Random) -> rec.Record:
    """Returns a random row that the ring can carry, sometimes with the largest values that fit."""

    def number(bits: int) -> int:
        return dice.getrandbits(dice.choice((1, bits // 4, bits // 2, bits)))

    def words(count: int) -> Any:
        return tuple(number(32) for _ in range(count))

    stream, device = dice.randrange(form.MAX_STREAMS), dice.randrange(form.MAX_DEVICES)
    slot = dice.randrange(form.MAX_SLOTS)
    operations = (form.KERNEL, form.KERNEL, form.COPY, form.MEMSET, form.HINT)
    kind = dice.choice((*operations, *range(5, 13), form.TIMED))
    range_words = (kind, number(64), slot, number(32), number(64), number(62), device, 0, 0)
    others: dict[int, Callable[[], rec.Record]] = {
        form.ALLOC: lambda: rec.RangeRow(*range_words),
        form.FREE: lambda: rec.RangeRow(*range_words),
        form.SYNC: lambda: rec.Sync(number(64), stream, number(64), number(64)),
        form.PROGRESS: lambda: rec.Progress(stream, number(64), number(64), number(64)),
        form.TIMED: lambda: rec.Timed(number(64), stream, number(64), number(64)),
        form.GRAPH: lambda: rec.Graph(number(64), number(64), number(64)),
        form.NAME: lambda: rec.Name(
            number(64), "".join(dice.choices("_Zaä√", k=dice.randrange(40)))
        ),
        form.PARAMS: lambda: rec.Params(
            number(64),
            number(64),
            words(3),
            words(3),
            number(32),
            dice.randbytes(dice.randrange(100)),
        ),
    }
    if kind in others:
        return others[kind]()
    extents = tuple(
        rec.Extent(
            *(dice.randrange(form.MAX_SLOTS), number(32), number(64), number(62)),
            *(dice.randrange(4), number(32)),
        )
        for _ in range(dice.choice((0, 1, 2, 7)))
    )
    function, signature = (number(64), number(64)) if kind == form.KERNEL else (0, 0)
    own_op = (kind, number(64), number(64), stream, device, function, signature)
    return rec.Operation(*own_op, extents, number(16))


# ---- small recordings, written as the worker would ----

Fill = Callable[[TraceWriter], None]


def written(path: Path, fill: Fill, end: dict[str, Any] | None = None) -> bytes:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        writer = TraceWriter(fd, {"pump": "test"})
        fill(writer)
        writer.flush()
        if end is not None:
            writer.end(end)
    finally:
        os.close(fd)
    return path.read_bytes()


def ring(records: list[rec.Record]) -> Rows:
    maker = RowMaker()
    for record in records:
        maker.add(record)
    return maker.made()


def device_facts(**more: int) -> dict[str, int]:
    facts = {"index": 1, "total_bytes": 1 << 40, "free_at_start_bytes": 5, "budget_bytes": 4}
    return {**facts, "plain_bytes": 3, "state": 2, "emulated": 1, **more}
