"""Small recordings, written as the worker would."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trace_rows import RowMaker

from pump.trace import records as rec
from pump.trace.writer import Rows, TraceWriter

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
