"""A chunk of a recording with right checksums, and the page and the program made from it."""

from __future__ import annotations

import atexit
import os
import random
import sys
import tempfile
from pathlib import Path

from pump.report import gather
from pump.report.page import page
from pump.trace import format as form
from pump.trace.format import TraceError
from pump.trace.writer import Rows, TraceWriter
from pump_lab.sim import recording as simulated
from pump_lab.sim.program import ProgramError

from . import one_line

sys.path.append(str(Path(__file__).resolve().parents[2] / "support"))

from trace_rows import RowMaker, random_record

FILE = Path(tempfile.gettempdir()) / f"pump-fuzz-{os.getpid()}"
atexit.register(FILE.unlink, missing_ok=True)


def target(data: bytes) -> None:
    if len(data) < 3:
        return
    kind = (form.CHUNK_EVENTS, form.CHUNK_END, form.CHUNK_HEADER)[data[0] % 3]
    rows, body = int.from_bytes(data[1:3], "little"), data[3:]
    start = body if kind == form.CHUNK_HEADER else b"{}"
    file = [form.file_start(), form.pack_chunk(form.CHUNK_HEADER, 0, start, 0)]
    if kind != form.CHUNK_HEADER:
        file.append(form.pack_chunk(kind, rows, body, 0))
    whole = b"".join(file)
    FILE.write_bytes(whole)
    try:
        page(gather.report(str(FILE)))
        simulated.program(whole, "input")
    except (TraceError, ProgramError) as error:
        one_line(error)


def seeds() -> list[bytes]:
    found = [b"\1\0\0{}", b'\2\0\0{"pump":"0.1","device":[{"index":0}]}']
    for seed in range(6):
        dice = random.Random(seed)
        maker = RowMaker()
        for _ in range(1 + 4 * seed):
            maker.add(random_record(dice))
        found.append(_events(maker.made()))
    return found


def _events(rows: Rows) -> bytes:
    """Returns a writer's only chunk of events for these rows, as an input."""
    with tempfile.TemporaryFile() as file:
        writer = TraceWriter(file.fileno(), {})
        writer.events(rows)
        writer.flush()
        file.seek(form.FILE_START.size)
        for _ in range(2):  # the header is the first chunk
            frame = form.unpack_frame(file.read(form.FRAME_BYTES))
            body = form.unpack_body(frame, file.read(frame.stored_bytes))
    return b"\0" + frame.rows.to_bytes(2, "little") + body
